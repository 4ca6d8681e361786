"""A PostgreSQL for the length of a lesson: started, migrated, with one worker and one operator, and gone afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import psycopg
from pydantic import SecretStr

from statlib.backfills import SCHEMA
from statlib.backfills.controls import control
from statlib.backfills.definitions import Definition
from statlib.backfills.lifecycle import Operator
from statlib.backfills.read_model import show_backfill
from statlib.backfills.registry import Registry, register
from statlib.backfills.worker import Worker
from statlib.kernel.identifiers import new_token
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import Settings
from statlib.local.postgres import ADMINISTRATIVE_ROLE, RUNTIME_ROLE, postgres_server
from statlib.passes.actions import Action
from statlib.postgres.connection import connected
from statlib.postgres.migrations import migrate


class Tour:
    """What a lesson needs of a deployment. ``close`` ends the server and removes its folder."""

    def __init__(self, settings: Settings | None = None) -> None:
        base = settings or Settings()
        self._stack = ExitStack()
        server = self._stack.enter_context(postgres_server(settings=base))
        self._admin = server.address(ADMINISTRATIVE_ROLE)
        postgres = base.postgres.model_copy(
            update={"url": SecretStr(server.address(RUNTIME_ROLE)), "admin_url": SecretStr(self._admin)}
        )
        own = base.model_copy(update={"postgres": postgres})
        migrate(own, [SCHEMA])
        self._postgres = self._stack.enter_context(connected(own, app_name="statlib-tour"))
        self._registry = Registry(())

    def admin(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as the owner of the tables; its rows."""
        with psycopg.connect(self._admin, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def register(self, definition: Definition) -> None:
        """Make this process know a definition."""
        others = [one for one in self._registry if one.id != definition.id]
        self._registry = Registry((*others, definition))
        register(self._postgres, self._registry)

    def start(self, stable_id: str) -> Mapping[str, Any]:
        """Start it, as an operator; the state afterwards."""
        action = Action("tour", "notebook", "start", stable_id, new_token(), {})
        return control(self._postgres, self._registry, Operator.START, action)

    def turn(self) -> list[str]:
        """A worker's turn: its steps by name, in order. Fault if there is nothing to claim."""
        turn = Worker(self._postgres, self._registry).turn()
        if turn is None:
            raise Fault("there is nothing to claim", remedy="Start a backfill first.")
        return [step.value for step in turn.steps]

    def show(self, stable_id: str) -> Mapping[str, Any]:
        """The row as operators see it."""
        return show_backfill(self._postgres, self._registry, stable_id)

    def close(self) -> None:
        """End the server."""
        self._stack.close()
