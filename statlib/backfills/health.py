"""Signals that the foreground needs the database more than a backfill does.

A signal reads one number and has a limit. Above it a worker rests, or is courteous: it goes on in short batches with
rests between them, as the signal's ``asks`` says. One that cannot be read is unknown: it is shown as such, and changes
nothing, since it says nothing about the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import psycopg

from statlib.kernel.settings import BackfillSettings
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Limits, Session, transact

_READ_S = 1.0  # a signal that takes longer says by that alone that the server is busy


class Demand(StrEnum):
    """What a signal above its limit asks of a worker."""

    REST = "rest"
    COURTESY = "courtesy"


class Signal(Protocol):
    """A source of load. ``name`` is shown; ``read`` gives its present number, None if it cannot be known."""

    @property
    def name(self) -> str: ...
    @property
    def asks(self) -> Demand: ...
    @property
    def limit(self) -> float: ...
    def read(self, session: Session) -> float | None: ...


@dataclass(frozen=True, slots=True)
class ReplicationLag:
    """Seconds by which the slowest replica is behind; none without replicas."""

    limit: float
    name: str = "replicationLagSeconds"
    asks: Demand = Demand.REST

    def read(self, session: Session) -> float | None:
        row = session.one("SELECT extract(epoch FROM max(replay_lag))::float8 AS value FROM pg_stat_replication")
        return row["value"] if row else None


@dataclass(frozen=True, slots=True)
class ActiveSessions:
    """Sessions of this database that execute something, this one left out."""

    limit: float
    name: str = "activeSessions"
    asks: Demand = Demand.REST

    def read(self, session: Session) -> float | None:
        row = session.required(
            "SELECT count(*) FILTER (WHERE state = 'active') AS value, bool_or(state IS NULL) AS hidden"
            " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return None if row["hidden"] else float(row["value"])


@dataclass(frozen=True, slots=True)
class LockWaits:
    """Sessions of this database that wait for a lock."""

    limit: float
    name: str = "lockWaits"
    asks: Demand = Demand.REST

    def read(self, session: Session) -> float | None:
        row = session.required("SELECT count(DISTINCT pid) AS value FROM pg_locks WHERE NOT granted")
        return float(row["value"])


@dataclass(frozen=True, slots=True)
class ForegroundSessions:
    """Sessions of this database that did something within the last second, statlib's own processes left out.

    A statement of the foreground takes a millisecond, so looking for one that runs just now would miss it. Sessions of
    a role whose activity the worker's role may not see make it unknown: grant pg_read_all_stats to see them.
    """

    limit: float
    name: str = "foregroundSessions"
    asks: Demand = Demand.COURTESY

    def read(self, session: Session) -> float | None:
        row = session.required(
            "SELECT count(*) FILTER (WHERE state <> 'idle' OR state_change > clock_timestamp() - interval '1 second')"
            " AS value, bool_or(state IS NULL) AS hidden FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND application_name NOT LIKE 'statlib%%'"
        )
        return None if row["hidden"] else float(row["value"])


@dataclass(frozen=True, slots=True)
class Health:
    """What the signals said: readings for the read model, and why to rest or to be courteous; empty: no reason."""

    readings: dict[str, Any]
    rest_because: str
    courteous_because: str = ""


def standard_signals(settings: BackfillSettings) -> tuple[Signal, ...]:
    """The signals that every deployment has, with the limits of its settings."""
    return (
        ReplicationLag(settings.replication_lag_max_s),
        ActiveSessions(settings.active_sessions_max),
        LockWaits(settings.lock_waits_max),
        ForegroundSessions(settings.foreground_sessions_max),
    )


def read_health(postgres: Postgres, signals: Sequence[Signal]) -> Health:
    """Every signal, each in a transaction of its own, since a refused one aborts its transaction."""
    readings: dict[str, Any] = {}
    because = dict.fromkeys(Demand, "")
    for signal in signals:
        told = ""
        try:
            value = transact(postgres, signal.read, limits=Limits(statement_s=_READ_S), read_only=True)
        except psycopg.errors.QueryCanceled:
            value, told = None, f"{signal.name} could not be read within {_READ_S:g} s"
        except psycopg.Error:
            value = None
        readings[signal.name] = value
        if value is not None and value > signal.limit:
            told = f"{signal.name} is {value:g}, at most {signal.limit:g}"
        because[signal.asks] = because[signal.asks] or told
    return Health(readings, because[Demand.REST], because[Demand.COURTESY])
