"""Backfills in a process that serves or works: migrations, registration and automatic starts, in this order.

Whether the process migrates and whether it starts required backfills are two settings that know nothing of each other.
What could not be prepared as the process started, because the schema is outstanding, is tried again at the next use.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import psycopg

from statlib.backfills import SCHEMA
from statlib.backfills.controls import start_required
from statlib.backfills.readiness import readiness
from statlib.backfills.registry import Registry, register
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.postgres.connection import Postgres, connected
from statlib.postgres.migrations import migrate, require_schema
from statlib.postgres.reasons import PostgresReason


class Check(StrEnum):
    """How one input of readiness stands; also all that an unauthenticated caller learns."""

    OK = "ok"
    GATED = "gated"
    INCOMPATIBLE = "incompatible"
    UNAVAILABLE = "unavailable"


@dataclass
class Backfills:
    """What a process needs to show, steer and advance backfills."""

    postgres: Postgres
    registry: Registry
    _prepared: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def prepare(self) -> None:
        """Hold the schema against this release, register every definition, and in automatic mode start what must be.

        Done once; repeated until it succeeds. Refuses SchemaIncompatible, MigrationEdited, ClaimTooShort.
        """
        with self._lock:
            if self._prepared:
                return
            require_schema(self.postgres, [SCHEMA])
            register(self.postgres, self.registry)
            self.start_required()
            self._prepared = True

    def start_required(self) -> None:
        """In automatic mode, start required rows that are pending; else nothing."""
        if self.postgres.settings.backfills.automatic:
            start_required(self.postgres, self.registry)

    def checks(self) -> Mapping[str, Check]:
        """Each input of readiness that PostgreSQL gives. Never raises: what cannot be read is not ready."""
        try:
            self.prepare()
            ready = readiness(self.postgres, self.registry).ready
        except Refusal as refusal:
            schema = refusal.reason in {PostgresReason.SchemaIncompatible, PostgresReason.MigrationEdited}
            found = {"schema": Check.INCOMPATIBLE} if schema else {"database": Check.UNAVAILABLE}
            return {"database": Check.OK, "schema": Check.UNAVAILABLE, "backfills": Check.UNAVAILABLE} | found
        except psycopg.Error:
            return {"database": Check.UNAVAILABLE, "schema": Check.UNAVAILABLE, "backfills": Check.UNAVAILABLE}
        return {"database": Check.OK, "schema": Check.OK, "backfills": Check.OK if ready else Check.GATED}


@contextmanager
def opened(settings: Settings, registry: Registry, *, app_name: str) -> Iterator[Backfills]:
    """Backfills for the length of a block; with ``postgres.auto_migrate`` outstanding migrations are applied first.

    An outstanding schema does not keep the block from beginning: the process can then say so. Refuses as ``connected``
    and ``migrate`` do.
    """
    if settings.postgres.auto_migrate:
        migrate(settings, [SCHEMA])
    with connected(settings, app_name=app_name) as postgres:
        backfills = Backfills(postgres, registry)
        try:
            backfills.prepare()
        except Refusal as refusal:
            if refusal.reason is not PostgresReason.SchemaIncompatible:
                raise
        yield backfills
