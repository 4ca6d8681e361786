"""What operators type, from loading records to the proof; the lesson; the benchmark in miniature; a folder's server."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from statlib.backfills import SCHEMA
from statlib.backfills.registry import installed
from statlib.bench import backfill as benchmark
from statlib.cli.main import main
from statlib.kernel.cancellation import CancelCause, Cancellation
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import Settings, load_settings
from statlib.local import postgres_folder
from statlib.local.config_file import write_embedded, write_postgres
from statlib.local.postgres import server_of
from statlib.local.replica_set import ReplicaSet
from statlib.workers import backfills
from statlib.workers.tour import Tour
from tests.backfilling import FOLD_NOTES, NOTES, until
from tests.postgres import Database

DOIS, DECISIONS = "canonical-dois", "reviewer-decisions"


def typed(*words: str, exit_code: int = 0) -> str:
    ran = CliRunner().invoke(main, [*words])
    assert ran.exit_code == exit_code, ran.output
    return ran.output


@pytest.fixture
def configured_shell(
    mongo_server: ReplicaSet, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Database:
    config = tmp_path / "settings" / "statlib.toml"
    config.parent.mkdir(mode=0o700)
    monkeypatch.setenv("STATLIB_CONFIG", str(config))
    write_embedded(config.parent, uri=mongo_server.uri, database=f"t{new_token()}", families=())
    urls = database.settings.postgres
    write_postgres(config.parent, url=urls.url.get_secret_value(), admin_url=urls.admin_url.get_secret_value())
    return database


@pytest.mark.req("BF-MAP-07", "BF-ADMIN-04", "BF-ADMIN-10")
def test_an_operator_loads_starts_pauses_resumes_and_proves(configured_shell: Database) -> None:
    database = configured_shell
    assert "no migration was outstanding" in typed("init", "--postgres")
    loading = ("load", "--simulated", "--studies", "30", "--reviewers", "3", "--events", "40", "--postgres")
    assert "30 records and 40 decisions added" in typed(*loading)
    assert "0 records and 0 decisions added" in typed(*loading), "loading again adds nothing"
    database.admin("UPDATE statlib_study_record SET doi = ' https://DOI.org/10.1/AB. '")
    assert "pending" in typed("data-backfill", "list")
    assert "unknown" in typed("data-backfill", "show", DOIS)
    assert "statlib_study_record_pkey" in typed("data-backfill", "preview", DOIS)
    typed("data-backfill", "pause", DOIS, exit_code=4)
    typed("data-backfill", "show", "never-heard-of", exit_code=4)
    for stable_id in (DOIS, DECISIONS):
        assert "running, generation 1" in typed("data-backfill", "start", stable_id)
    assert "paused, generation 2" in typed("data-backfill", "pause", DOIS, "--generation", "1")
    assert "running, generation 3" in typed("data-backfill", "resume", DOIS)
    cancellation = Cancellation()
    worker = threading.Thread(target=backfills.run, args=(load_settings(), installed(), cancellation))
    worker.start()
    try:
        until(lambda: database.admin("SELECT count(*) FROM statlib_backfill WHERE lifecycle = 'completed'") == [(2,)])
    finally:
        cancellation.cancel(CancelCause.STOPPING)
        worker.join(60)
    shown: dict[str, Any] = json.loads(typed("data-backfill", "show", DOIS, "--json"))
    assert (shown["lifecycle"], shown["rows_total"]) == ("completed", None)
    assert "success" in typed("data-backfill", "validate", DECISIONS)
    assert database.admin("SELECT DISTINCT doi_canonical FROM statlib_study_record") == [("10.1/ab",)]
    naive = "SELECT count(*), count(*) FILTER (WHERE decision = 'Include') FROM statlib_decision"
    assert database.admin("SELECT sum(decisions), sum(included) FROM statlib_reviewer_summary") == [
        tuple(database.admin(naive)[0])
    ]
    database.admin("UPDATE statlib_study_record SET doi_canonical = 'wrong'")
    assert "failure (completed)" in typed("data-backfill", "validate", DOIS, exit_code=3)


def test_the_lesson_s_parts_do_what_the_lesson_says() -> None:
    tour = Tour(Settings())
    try:
        tour.admin(NOTES)
        tour.admin("INSERT INTO note SELECT 1, p, 'Note' FROM generate_series(1, 6) p")
        tour.register(FOLD_NOTES)
        assert tour.start(FOLD_NOTES.id)["bound"] == [1, 6]
        assert tour.turn() == ["committed", "mutated", "validated", "completed"]
        assert tour.show(FOLD_NOTES.id)["lifecycle"] == "completed"
    finally:
        tour.close()


def test_the_benchmark_gives_its_figures() -> None:
    told = list[str]()
    report = benchmark.run(benchmark.MINIATURE, short_form=True, settings=Settings(), progress=told.append)
    assert set(report.figures) == {"throughput_ratio", "foreground_p99_ratio", "foreground_p99_added_ms"}
    assert len(report.cells) == len(told) == 4
    assert all(value > 0 for name, value in report.figures.items() if name.endswith("ratio"))


def test_a_folder_s_server_is_started_migrated_found_again_and_stopped(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    settings.data_dir.mkdir(mode=0o700)
    try:
        first = postgres_folder.up(settings, [SCHEMA])
        assert (first.outcome, len(first.migrated.applied)) == ("started", len(list(SCHEMA.glob("*.sql"))))
        again = postgres_folder.up(settings, [SCHEMA])
        assert (again.outcome, again.pid, again.migrated.applied) == ("reused", first.pid, ())
        assert "postgresql://statlib_runtime:" in first.config.read_text(encoding="utf-8")
        assert first.config.stat().st_mode & 0o077 == 0, "it holds passwords"
        assert "PostgreSQL" in str(first)
    finally:
        assert postgres_folder.down(settings)
        shutil.rmtree(server_of(settings).home)
    assert not postgres_folder.down(settings)
