"""What the engine costs over a bare loop of SQL, and what the foreground feels of it.

Throughput: canonical DOIs of generated records, in batches of one size, by a loop that selects, updates and commits,
and by a worker; each run on a fresh copy of the same database, the two taking turns. Foreground: reads and updates of
single records by several threads, with and without a worker beside them whose health signals are on.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import psycopg
from pydantic import SecretStr

from statlib.backfills import SCHEMA
from statlib.backfills.controls import control
from statlib.backfills.definitions import Definition
from statlib.backfills.health import standard_signals
from statlib.backfills.lifecycle import Operator
from statlib.backfills.registry import Registry, register
from statlib.backfills.shipped.canonical_dois import CANONICAL_DOIS
from statlib.backfills.worker import Worker
from statlib.bench.language import Cell, Report, environment, quantiles
from statlib.kernel.cancellation import CancelCause
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import BackfillSettings, PostgresSettings, Settings
from statlib.local.postgres import (
    ADMINISTRATIVE_ROLE,
    RUNTIME_ROLE,
    SUPERUSER,
    PostgresServer,
    create_database,
    postgres_server,
)
from statlib.passes.actions import Action
from statlib.postgres.connection import Postgres, connected
from statlib.postgres.migrations import migrate

TEMPLATE = "bench_template"
_GENERATE = """
INSERT INTO statlib_study_record (project_id, study_id, title, year, doi)
SELECT ('00000000-0000-4000-8000-' || lpad((n %% 20)::text, 12, '0'))::uuid, md5(n::text)::uuid, 'Record ' || n,
  1990 + n %% 35, CASE WHEN n %% 10 = 0 THEN NULL ELSE 'https://doi.org/10.1000/' || upper(md5(n::text)) || '.' END
FROM generate_series(1, %s) n
"""
_LAST = (
    "SELECT project_id, study_id FROM statlib_study_record WHERE (project_id, study_id) > (%s, %s)"
    " ORDER BY project_id, study_id LIMIT 1 OFFSET %s"
)
_REPAIR = (
    "UPDATE statlib_study_record SET doi_canonical = statlib_canonical_doi(doi) WHERE (project_id, study_id) > (%s, %s)"
    " AND (project_id, study_id) <= (%s, %s) AND doi_canonical IS DISTINCT FROM statlib_canonical_doi(doi)"
)
_FIRST = (UUID(int=0), UUID(int=0))
_END = (UUID(int=2**128 - 1), UUID(int=2**128 - 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rows: int = 1_000_000
    batch_rows: int = 5_000
    repeats: int = 5
    foreground_threads: int = 4
    foreground_s: float = 20.0


QUICK = Plan(rows=30_000, batch_rows=2_000, repeats=1, foreground_s=2.0)
MINIATURE = Plan(rows=2_000, batch_rows=500, repeats=1, foreground_threads=2, foreground_s=0.3)


def run(plan: Plan, *, short_form: bool, settings: Settings, progress: Callable[[str], None]) -> Report:
    """Measure on a server of its own. Fault if an arm left a record unrepaired."""
    cells: list[Cell] = []
    with postgres_server(settings=settings, for_tests=False) as server, TemporaryDirectory() as folder:
        arena = _Arena(server, settings.model_copy(update={"data_dir": Path(folder)}), plan)
        arena.prepare()
        for repeat in range(plan.repeats):
            for arm, repair in (("bare loop", _bare), ("engine", _engine)):
                seconds = arena.timed(repair)
                progress(f"repeat {repeat + 1}, {arm}: {plan.rows / seconds:,.0f} rows/s")
                cells.append({"measured": arm, "repeat": repeat, "rows_per_s": plan.rows / seconds, "p99_ms": 0.0})
            for arm, beside in (("quiet", False), ("beside a backfill", True)):
                latencies = arena.foreground(beside=beside)
                p99 = quantiles(latencies).p99
                progress(f"repeat {repeat + 1}, foreground {arm}: p99 {p99:.2f} ms of {len(latencies):,}")
                cells.append({"measured": arm, "repeat": repeat, "rows_per_s": 0.0, "p99_ms": p99})
        version = f"PostgreSQL {server.binaries.major}"
    return Report("backfill", short_form, environment(version), cells, _figures(cells))


def _figures(cells: Sequence[Cell]) -> dict[str, float]:
    def paired(of: str, over: str, field: str) -> list[tuple[float, float]]:
        first = [float(cell[field]) for cell in cells if cell["measured"] == of]
        second = [float(cell[field]) for cell in cells if cell["measured"] == over]
        return list(zip(first, second, strict=True))

    throughput = paired("engine", "bare loop", "rows_per_s")
    felt = paired("beside a backfill", "quiet", "p99_ms")
    return {
        "throughput_ratio": statistics.median(engine / bare for engine, bare in throughput),
        "foreground_p99_ratio": statistics.median(beside / quiet for beside, quiet in felt),
        "foreground_p99_added_ms": statistics.median(beside - quiet for beside, quiet in felt),
    }


@dataclass(frozen=True)
class _Arena:
    server: PostgresServer
    settings: Settings
    plan: Plan

    def prepare(self) -> None:
        self._create(TEMPLATE, "template1")
        migrate(self._settings(TEMPLATE), [SCHEMA])
        with psycopg.connect(self.server.address(ADMINISTRATIVE_ROLE, TEMPLATE), autocommit=True) as connection:
            connection.execute(_GENERATE.encode(), (self.plan.rows,))
            connection.execute("VACUUM ANALYZE statlib_study_record")

    def timed(self, repair: Callable[[Postgres, Plan], None]) -> float:
        with self._database() as postgres:
            started = time.monotonic()
            repair(postgres, self.plan)
            seconds = _mutation_s(postgres) or time.monotonic() - started
            _require_repaired(postgres)
            return seconds

    def foreground(self, *, beside: bool) -> list[float]:
        """Latencies in ms of reads and updates of single records."""
        with self._database() as postgres:
            stop, latencies = threading.Event(), list[float]()
            address = self.server.address(RUNTIME_ROLE, _name_of(postgres))
            threads = [
                threading.Thread(target=_foreground, args=(address, seed, self.plan, stop, latencies))
                for seed in range(self.plan.foreground_threads)
            ]
            worker = _started(postgres, CANONICAL_DOIS, signals=True) if beside else None
            repairing = threading.Thread(target=_keep_working, args=(worker, stop)) if worker else None
            for thread in (*threads, *([repairing] if repairing else [])):
                thread.start()
            stop.wait(self.plan.foreground_s)
            stop.set()
            for thread in (*threads, *([repairing] if repairing else [])):
                thread.join()
        return latencies

    @contextmanager
    def _database(self) -> Iterator[Postgres]:
        name = f"b{new_token()}"
        self._create(name, TEMPLATE)
        try:
            with connected(self._settings(name), app_name="statlib-bench") as postgres:
                yield postgres
        finally:
            with psycopg.connect(self.server.address(SUPERUSER, "postgres"), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _create(self, name: str, template: str) -> None:
        with psycopg.connect(self.server.address(SUPERUSER, "postgres"), autocommit=True) as connection:
            create_database(connection, name, template=template)

    def _settings(self, name: str) -> Settings:
        return self.settings.model_copy(
            update={
                "postgres": PostgresSettings(
                    url=SecretStr(self.server.address(RUNTIME_ROLE, name)),
                    admin_url=SecretStr(self.server.address(ADMINISTRATIVE_ROLE, name)),
                ),
                "backfills": BackfillSettings(turn_s=600, claim_ttl_s=60),
            }
        )


def _bare(postgres: Postgres, plan: Plan) -> None:
    """What an engineer would write first: no claim, no checkpoint, no bound but the batch's size."""
    after = _FIRST
    with psycopg.connect(postgres.settings.postgres.url.get_secret_value()) as connection:
        while True:
            last = connection.execute(_LAST.encode(), (*after, plan.batch_rows - 1)).fetchone()
            upto = _END if last is None else (last[0], last[1])
            connection.execute(_REPAIR.encode(), (*after, *upto))
            connection.commit()
            if last is None:
                return
            after = upto


def _engine(postgres: Postgres, plan: Plan) -> None:
    """Batches of the same size. Its validation is not measured: the bare loop proves nothing."""
    bound = replace(CANONICAL_DOIS.bound, rows_max=plan.batch_rows, target_s=10.0, transaction_s=10.0)
    worker = _started(postgres, replace(CANONICAL_DOIS, bound=bound, validate=_NOTHING), signals=False)
    while worker.turn() is not None:
        continue


_NOTHING = "SELECT project_id, study_id FROM statlib_study_record WHERE {window} AND false"


def _started(postgres: Postgres, definition: Definition, *, signals: bool) -> Worker:
    registry = Registry((definition,))
    register(postgres, registry)
    action = Action("bench", "bench", "start", definition.id, "bench-start", {})
    control(postgres, registry, Operator.START, action)
    return Worker(postgres, registry, standard_signals(postgres.settings.backfills) if signals else ())


def _keep_working(worker: Worker, stop: threading.Event) -> None:
    watching = threading.Thread(target=_cancel_when, args=(stop, worker))
    watching.start()
    while not stop.is_set() and worker.turn() is not None:
        continue
    watching.join()


def _cancel_when(stop: threading.Event, worker: Worker) -> None:
    stop.wait()
    worker.cancellation.cancel(CancelCause.STOPPING)


def _foreground(address: str, seed: int, plan: Plan, stop: threading.Event, latencies: list[float]) -> None:
    number = seed
    with psycopg.connect(address, autocommit=True) as connection:
        while not stop.is_set():
            number = (number * 7919 + 104_729) % plan.rows + 1
            started = time.monotonic()
            connection.execute(
                "UPDATE statlib_study_record SET title = title WHERE project_id ="
                " ('00000000-0000-4000-8000-' || lpad((%(n)s::integer %% 20)::text, 12, '0'))::uuid"
                " AND study_id = md5(%(n)s::integer::text)::uuid",
                {"n": number},
            )
            latencies.append((time.monotonic() - started) * 1000)
            stop.wait(0.005)


def _mutation_s(postgres: Postgres) -> float:
    """Seconds from the start of the one backfill to its last batch, by the server's clock; 0 where there is none."""
    with psycopg.connect(postgres.settings.postgres.url.get_secret_value()) as connection:
        spent = connection.execute(
            "SELECT extract(epoch FROM max(advanced_at) - min(started_at))::float8 FROM statlib_backfill"
        ).fetchone()
    return float(spent[0] or 0.0) if spent else 0.0


def _require_repaired(postgres: Postgres) -> None:
    with psycopg.connect(postgres.settings.postgres.url.get_secret_value()) as connection:
        wrong = connection.execute(
            "SELECT count(*) FROM statlib_study_record WHERE doi_canonical IS DISTINCT FROM statlib_canonical_doi(doi)"
        ).fetchone()
    if wrong is None or wrong[0]:
        raise Fault("an arm left records unrepaired", remedy="Do not believe its figures.")


def _name_of(postgres: Postgres) -> str:
    return postgres.settings.postgres.url.get_secret_value().rsplit("/", 1)[1]
