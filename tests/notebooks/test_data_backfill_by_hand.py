"""The data backfill pair as an operator works it in JupyterLab: started, interrupted, paused, resumed, and proved."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Page, expect

from statlib.backfills.registry import Registry, register
from statlib.backfills.shipped.canonical_dois import CANONICAL_DOIS
from statlib.evidence.verify import verify
from statlib.kernel.cancellation import CancelCause, Cancellation
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import load_settings
from statlib.local.config_file import write_embedded, write_postgres
from statlib.local.replica_set import ReplicaSet
from statlib.postgres.connection import connected
from statlib.runbook.archive import find_runs, find_unfinished
from statlib.workers import backfills
from tests.backfilling import Bench
from tests.notebooks.test_data_backfill_books import RECORDS
from tests.notebooks.test_in_jupyterlab import (
    DESK,
    PHONE,
    TIMEOUT_S,
    Desk,
    Lab,
    __test__,
    browser,
    into_view,
    jupyterlab,
    kept_on_failure,
    look_at,
    page,
)
from tests.postgres import Database

__all__ = ["__test__", "browser", "page"]  # fixtures, and whether there is a browser
GIVEN = {
    "data_backfill": 'stable_id = "canonical-dois"\nwrite_path_rolled_out = True\nwait_s = 600.0',
    "data_backfill_pause": 'stable_id = "canonical-dois"',
}


@pytest.fixture
def repairing(
    mongo_server: ReplicaSet, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    config = tmp_path / "settings" / "statlib.toml"
    config.parent.mkdir(mode=0o700)
    monkeypatch.setenv("STATLIB_CONFIG", str(config))
    monkeypatch.setenv("STATLIB_ARCHIVE", str(tmp_path / "reports"))
    write_embedded(config.parent, uri=mongo_server.uri, database=f"t{new_token()}", families=())
    urls = database.settings.postgres
    write_postgres(config.parent, url=urls.url.get_secret_value(), admin_url=urls.admin_url.get_secret_value())
    database.admin(RECORDS, 20_000)
    with connected(load_settings()) as postgres:
        registry = Registry((CANONICAL_DOIS,))
        register(postgres, registry)
        yield Bench(database, postgres, registry)


@contextmanager
def working(b: Bench) -> Iterator[None]:
    cancellation = Cancellation()
    worker = threading.Thread(target=backfills.run, args=(load_settings(), b.registry, cancellation))
    worker.start()
    try:
        yield
    finally:
        cancellation.cancel(CancelCause.STOPPING)
        worker.join(60)
    assert not worker.is_alive()


def acting(lab: Lab, runbook: str) -> None:
    notebook: Any = nbformat.read(lab.notebook(runbook), as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source = f'{GIVEN[runbook]}\napply = True\nconfirm = "canonical-dois"'
    nbformat.write(notebook, lab.notebook(runbook))  # type: ignore[no-untyped-call]


def look_at_report(desk: Desk, report: Path, name: str) -> None:
    """By day and by night, at a desk and on a phone: nothing is wider than the screen."""
    for scheme in ("light", "dark"):
        desk.page.emulate_media(color_scheme=scheme)
        for width, height in (PHONE, DESK):
            desk.page.set_viewport_size({"width": width, "height": height})
            desk.page.goto(report.as_uri())
            wide = desk.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} px too wide at {width}"
            desk.picture(f"report-{name}-{width}-{scheme}")


@pytest.mark.timeout(TIMEOUT_S)
def test_the_pair_is_worked_by_hand(repairing: Bench, tmp_path: Path, page: Page) -> None:
    b = repairing
    with jupyterlab(tmp_path / "lab") as lab, kept_on_failure(page, lab):
        for runbook in GIVEN:
            acting(lab, runbook)
        first = Desk(page, lab, "data_backfill")
        first.open()
        first.run_all()
        waiting = first.output("repairing.wait")
        expect(waiting).to_contain_text("workers; it is running")
        into_view(waiting)
        first.picture("waiting-for-workers")
        first.interrupt()
        expect(waiting).to_contain_text("Interrupted by hand")
        assert b.lifecycle() == "running", "interrupting a wait interrupts no work"
        first.save()

        pausing = Desk(page, lab, "data_backfill_pause")
        pausing.open()
        pausing.run_all()
        expect(pausing.output("run.close()")).to_contain_text("Passed")
        assert b.lifecycle() == "paused"
        pausing.save()
        look_at(pausing, "paused")

        again = Desk(page, lab, "data_backfill")
        again.open()
        again.choose("Edit", re.compile("^Clear Outputs of All Cells$"))
        again.save()
        with working(b):
            again.run_all()
            expect(again.output("run.close()")).to_contain_text("Passed")
        assert b.lifecycle() == "completed"
        again.save()
        look_at(again, "completed")

        archive = tmp_path / "reports"
        runs = {run.runbook: run.final for run in find_runs(archive)}
        assert set(runs) == set(GIVEN)
        assert list(find_unfinished(archive)) == []
        for runbook, report in runs.items():
            assert [str(finding) for finding in verify(report).findings] == []
            look_at_report(again, report / "report.html", runbook)
