"""The runbooks of data backfills, as real processes on real databases: dry, paused, taken to completion, and forged."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statlib.backfills.controls import control
from statlib.backfills.lifecycle import Operator
from statlib.backfills.registry import Registry, register
from statlib.backfills.shipped.canonical_dois import CANONICAL_DOIS
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.cancellation import CancelCause, Cancellation
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import load_settings
from statlib.local.config_file import write_embedded, write_postgres
from statlib.local.replica_set import ReplicaSet
from statlib.postgres.connection import connected
from statlib.workers import backfills
from tests.backfilling import Bench, action
from tests.postgres import Database

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDS = """
INSERT INTO statlib_study_record (project_id, study_id, title, doi)
SELECT md5((n %% 3)::text)::uuid, md5(n::text)::uuid, 'Record', 'https://doi.org/10.1/' || upper(md5(n::text))
FROM generate_series(1, %s) n
"""


@dataclass(frozen=True)
class Deployment:
    bench: Bench
    archive: Path

    def run(self, runbook: str, **given: str) -> tuple[int, dict[str, Any], str]:
        """``statlib runbook run`` to its end: exit code, answer, errors."""
        parameters = {"stable_id": CANONICAL_DOIS.id, "apply": "true", "confirm": CANONICAL_DOIS.id} | given
        assignments = [part for key, value in parameters.items() for part in ("-p", f"{key}={value}")]
        command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", runbook, *assignments]
        ran = subprocess.run(
            [*command, "--archive", str(self.archive), "--json"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return ran.returncode, json.loads(ran.stdout) if ran.stdout else {}, ran.stderr


@pytest.fixture
def deployment(
    mongo_server: ReplicaSet, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    config = tmp_path / "settings" / "statlib.toml"
    config.parent.mkdir(mode=0o700)
    monkeypatch.setenv("STATLIB_CONFIG", str(config))
    write_embedded(config.parent, uri=mongo_server.uri, database=f"t{new_token()}", families=())
    urls = database.settings.postgres
    write_postgres(config.parent, url=urls.url.get_secret_value(), admin_url=urls.admin_url.get_secret_value())
    database.admin(RECORDS, 300)
    with connected(load_settings()) as postgres:
        registry = Registry((CANONICAL_DOIS,))
        register(postgres, registry)
        yield Deployment(Bench(database, postgres, registry), tmp_path / "reports")


def test_a_dry_run_measures_and_leaves_everything_as_it_was(deployment: Deployment) -> None:
    code, answer, errors = deployment.run("data_backfill", apply="false", confirm="")
    assert (code, answer["verdict"]) == (0, Verdict.DRY_RUN_ONLY), errors
    assert deployment.bench.lifecycle() == "pending"
    assert deployment.bench.database.admin("SELECT count(doi_canonical) FROM statlib_study_record") == [(0,)]
    assert "of them to change" in (Path(answer["path"]) / "report.html").read_text(encoding="utf-8")


def test_without_the_operators_word_on_the_write_path_nothing_is_started(deployment: Deployment) -> None:
    code, _, errors = deployment.run("data_backfill")
    assert code == 4, errors
    assert deployment.bench.lifecycle() == "pending"


def test_paused_by_one_and_taken_to_completion_by_the_other(deployment: Deployment) -> None:
    b = deployment.bench
    control(b.postgres, b.registry, Operator.START, action(Operator.START, b.id))
    code, answer, errors = deployment.run("data_backfill_pause")
    assert (code, b.lifecycle()) == (0, "paused"), errors
    assert [str(finding) for finding in verify(Path(answer["path"])).findings] == []
    cancellation = Cancellation()
    worker = threading.Thread(target=backfills.run, args=(load_settings(), b.registry, cancellation))
    worker.start()
    try:
        code, answer, errors = deployment.run("data_backfill", write_path_rolled_out="true", wait_s="120")
    finally:
        cancellation.cancel(CancelCause.STOPPING)
        worker.join(60)
    assert not worker.is_alive()
    assert (code, b.lifecycle()) == (0, "completed"), errors
    assert answer["verdict"] in {Verdict.PASSED, Verdict.REHEARSAL_PASSED}
    wrong = "SELECT count(*) FROM statlib_study_record WHERE doi_canonical IS DISTINCT FROM statlib_canonical_doi(doi)"
    assert b.database.admin(wrong) == [(0,)]
    report = Path(answer["path"])
    assert [str(finding) for finding in verify(report).findings] == []
    capture = next((report / "evidence" / "captures").iterdir())
    capture.write_bytes(capture.read_bytes().replace(b'"measured":1', b'"measured":0'))
    assert verify(report).findings, "a forged capture is refused"
