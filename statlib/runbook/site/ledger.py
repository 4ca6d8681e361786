"""What is known of the archive's runs, in one SQLite file beside the pages.

Runs never change once they are sealed, so each is read once, and its row rendered once. Invariant: the ledger holds
nothing that the folders do not; deleted or damaged, it is made again from them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statlib.runbook.site.records import Outcome, RunRecord, month_of

LEDGER_NAME = ".site-ledger.sqlite"
LAYOUT = 3  # raise it when records change: a ledger of another layout is made anew
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_BETWEEN_NAMES = "/"  # what no folder's name holds

_LINE = "SELECT runbook, month, outcome, line FROM run"
_SCHEMA = (
    # Rows lie in the order in which runs were found, which is nearly that of their starts: a page is read in one go.
    """CREATE TABLE run (
       runbook TEXT NOT NULL, folder TEXT NOT NULL, started TEXT NOT NULL, month TEXT NOT NULL, outcome TEXT NOT NULL,
       line TEXT NOT NULL, record TEXT NOT NULL, UNIQUE (runbook, folder))""",
    "CREATE INDEX run_by_start ON run (started, runbook, folder)",
    "CREATE INDEX run_by_month ON run (month, started, runbook, folder)",
    "CREATE INDEX run_by_runbook ON run (runbook, started, folder)",
    "CREATE INDEX run_failed ON run (started) WHERE outcome IN ('failed', 'stopped')",
    """CREATE TABLE month (
       name TEXT PRIMARY KEY, runs INTEGER NOT NULL, failed INTEGER NOT NULL, item TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TRIGGER run_added AFTER INSERT ON run BEGIN
       INSERT INTO month VALUES (new.month, 1, new.outcome IN ('failed', 'stopped'), '')
       ON CONFLICT (name) DO UPDATE SET runs = runs + 1, failed = failed + excluded.failed; END""",
    """CREATE TRIGGER run_dropped AFTER DELETE ON run BEGIN
       UPDATE month SET runs = runs - 1, failed = failed - (old.outcome IN ('failed', 'stopped'))
       WHERE name = old.month;
       DELETE FROM month WHERE name = old.month AND runs = 0; END""",
    "CREATE TABLE trend (runbook TEXT PRIMARY KEY, item TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE seen (runbook TEXT PRIMARY KEY, changed_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE rendered (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A run's row as it was rendered when the run was read; what else a page must know of it."""

    runbook: str
    month: str
    outcome: Outcome
    html: str


@dataclass(frozen=True, slots=True)
class Month:
    """How many runs began in it (UTC), and how many of them neither passed nor were dry or refused."""

    name: str
    runs: int
    failed: int


class Ledger:
    """An open ledger; every method is one indexed query, whose cost is that of what it returns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows = connection

    def folders(self, runbook: str) -> frozenset[str]:
        query = "SELECT group_concat(folder, ?) FROM run WHERE runbook = ?"
        (names,) = self._rows.execute(query, (_BETWEEN_NAMES, runbook)).fetchone()
        return frozenset(names.split(_BETWEEN_NAMES)) if names else frozenset()

    def runbooks(self) -> tuple[str, ...]:
        """From each to the next, as there are few and each has many runs."""
        query = """WITH RECURSIVE found (name) AS (
                   SELECT min(runbook) FROM run
                   UNION ALL SELECT (SELECT min(runbook) FROM run WHERE runbook > name) FROM found
                   WHERE name IS NOT NULL)
                   SELECT name FROM found WHERE name IS NOT NULL"""
        return tuple(row[0] for row in self._rows.execute(query))

    def add(self, records: Iterable[RunRecord], render: Callable[[RunRecord], str]) -> None:
        """Records of runs that are not known yet."""
        self._rows.executemany(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    record.runbook,
                    record.folder,
                    record.started.isoformat(),
                    month_of(record.started),
                    record.outcome.value,
                    render(record),
                    record.model_dump_json(),
                )
                for record in records
            ),
        )

    def render_again(self, render: Callable[[RunRecord], str]) -> None:
        """Every row anew, because rows look otherwise now."""
        self._rows.executemany(
            "UPDATE run SET line = ? WHERE (runbook, folder) = (?, ?)",
            (
                (render(record), record.runbook, record.folder)
                for record in self._records("SELECT record FROM run ORDER BY started")
            ),
        )

    def drop(self, runbook: str, folders: Iterable[str]) -> frozenset[str]:
        """Forget runs whose folders are gone; returns the months that had them."""
        months = set()
        for folder in folders:
            key = (runbook, folder)
            months |= {
                row[0] for row in self._rows.execute("SELECT month FROM run WHERE (runbook, folder) = (?, ?)", key)
            }
            self._rows.execute("DELETE FROM run WHERE (runbook, folder) = (?, ?)", key)
        return frozenset(months)

    def newest(self, count: int) -> tuple[Line, ...]:
        return self._lines(f"{_LINE} ORDER BY started DESC, runbook, folder LIMIT ?", count)

    def last_failures(self, count: int) -> tuple[RunRecord, ...]:
        query = "SELECT record FROM run WHERE outcome IN ('failed', 'stopped') ORDER BY started DESC LIMIT ?"
        return self._records(query, count)

    def of_runbook(self, runbook: str, count: int) -> tuple[RunRecord, ...]:
        """The newest, oldest of them first."""
        query = "SELECT record FROM run WHERE runbook = ? ORDER BY started DESC, folder DESC LIMIT ?"
        return tuple(reversed(self._records(query, runbook, count)))

    def part_of_month(self, month: str, part: int, size: int) -> tuple[Line, ...]:
        """Part ``part`` (from 1), newest first. Parts fill up from the month's oldest run: a full one never changes."""
        query = f"{_LINE} WHERE month = ? ORDER BY started, runbook, folder LIMIT ? OFFSET ?"
        return tuple(reversed(self._lines(query, month, size, (part - 1) * size)))

    def months(self) -> tuple[Month, ...]:
        """Newest first."""
        return tuple(
            Month(*row) for row in self._rows.execute("SELECT name, runs, failed FROM month ORDER BY name DESC")
        )

    def keep_month(self, month: str, item: str) -> None:
        """The item of a month that has runs, as it is rendered now."""
        self._rows.execute("UPDATE month SET item = ? WHERE name = ?", (item, month))

    def month_items(self) -> tuple[str, ...]:
        """Newest first."""
        return tuple(row[0] for row in self._rows.execute("SELECT item FROM month ORDER BY name DESC"))

    def keep_trend(self, runbook: str, item: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO trend VALUES (?, ?)", (runbook, item))

    def drop_trend(self, runbook: str) -> None:
        self._rows.execute("DELETE FROM trend WHERE runbook = ?", (runbook,))

    def trends(self) -> tuple[str, ...]:
        """As they were rendered, by runbook."""
        return tuple(row[0] for row in self._rows.execute("SELECT item FROM trend ORDER BY runbook"))

    def count_before(self, record: RunRecord) -> int:
        """How many runs of the same month come before it."""
        query = "SELECT count(*) FROM run WHERE month = ? AND (started, runbook, folder) < (?, ?, ?)"
        key = (month_of(record.started), record.started.isoformat(), record.runbook, record.folder)
        return int(self._rows.execute(query, key).fetchone()[0])

    def seen_ns(self, runbook: str) -> int | None:
        """When the runbook's folder had last changed when it was last listed."""
        row = self._rows.execute("SELECT changed_ns FROM seen WHERE runbook = ?", (runbook,)).fetchone()
        return int(row[0]) if row else None

    def see(self, runbook: str, changed_ns: int) -> None:
        self._rows.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (runbook, changed_ns))

    def look(self) -> str:
        """By what the pages were rendered last."""
        row = self._rows.execute("SELECT value FROM rendered WHERE name = 'look'").fetchone()
        return str(row[0]) if row else ""

    def keep_look(self, look: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO rendered VALUES ('look', ?)", (look,))

    def _lines(self, query: str, *values: str | int) -> tuple[Line, ...]:
        found = self._rows.execute(query, values)
        return tuple(Line(runbook, month, _OUTCOMES[outcome], html) for runbook, month, outcome, html in found)

    def _records(self, query: str, *values: str | int) -> tuple[RunRecord, ...]:
        return tuple(RunRecord.model_validate_json(row[0]) for row in self._rows.execute(query, values))


def touch(archive: Path) -> int:
    """Now, in ns, as the archive's own file system stamps it: whatever changes there later has this stamp or a later
    one, however coarse its clock and whatever ours says."""
    path = archive / LEDGER_NAME
    path.touch()
    return path.stat().st_mtime_ns


@contextmanager
def opened(archive: Path) -> Iterator[Ledger]:
    """The archive's ledger for one update, committed if the block ends well. One writer at a time: others wait."""
    path = archive / LEDGER_NAME
    connection = _connected(path)
    try:
        with connection:
            yield Ledger(connection)
    finally:
        connection.close()


def _connected(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(sqlite3.DatabaseError):
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            return _begun(connection)
        except BaseException:
            connection.close()
            raise
    path.unlink(missing_ok=True)  # damaged: it holds nothing that cannot be read again
    return _begun(sqlite3.connect(path, timeout=60, isolation_level=None))


def _begun(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("BEGIN IMMEDIATE")
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    if layout != LAYOUT:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            connection.execute(f"DROP TABLE {name}")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
    return connection
