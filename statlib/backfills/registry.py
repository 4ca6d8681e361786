"""Which definitions this process knows, and their reconciliation with PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

from psycopg.types.json import Jsonb

from statlib.backfills.bounds import CLAIM_MARGIN
from statlib.backfills.definitions import Definition
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.sql import statement
from statlib.kernel.refusals import Fault, Refusal
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import Session, transact

ENTRY_POINTS = "statlib.backfills"


@dataclass(frozen=True, slots=True)
class Registry:
    """Definitions by stable id. Two under one id are refused: nobody chooses between them."""

    definitions: tuple[Definition, ...]

    def __post_init__(self) -> None:
        ids = [definition.id for definition in self.definitions]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise Refusal(BackfillReason.DefinitionInvalid, f"defined twice: {', '.join(twice)}")

    def __iter__(self) -> Iterator[Definition]:
        return iter(self.definitions)

    @property
    def ids(self) -> list[str]:
        return [definition.id for definition in self.definitions]

    @property
    def required(self) -> list[str]:
        """Stable ids that gate this process's readiness in automatic mode."""
        return [definition.id for definition in self.definitions if definition.required]

    def get(self, stable_id: str) -> Definition:
        """Refuses DefinitionUnknown: a process leaves alone what it does not know."""
        for definition in self.definitions:
            if definition.id == stable_id:
                return definition
        raise Refusal(BackfillReason.DefinitionUnknown, stable_id[:80])


def installed(*, also: Iterable[Definition] = ()) -> Registry:
    """What installed packages declare under the entry point group ``statlib.backfills``, and ``also``."""
    found: list[Definition] = list(also)
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        definition = entry.load()
        if not isinstance(definition, Definition):
            raise Fault(
                f"the entry point {entry.name} is no Definition", remedy="Correct the package that declares it."
            )
        found.append(definition)
    return Registry(tuple(found))


def register(postgres: Postgres, registry: Registry) -> None:
    """Reconcile by stable id: a row for each, and nothing else. Repeatable; of metadata the last registration stays.

    Refuses ClaimTooShort before anything is written.
    """
    ttl_s = postgres.settings.backfills.claim_ttl_s
    for definition in registry:
        if ttl_s < CLAIM_MARGIN * definition.bound.transaction_s:
            needs = CLAIM_MARGIN * definition.bound.transaction_s
            raise Refusal(BackfillReason.ClaimTooShort, f"{definition.id} needs {needs:g} s, claims last {ttl_s:g} s")

    def body(session: Session) -> None:
        for definition in sorted(registry, key=lambda one: one.id):  # one order, so that two processes never deadlock
            session.run(statement("register"), stable_id=definition.id, metadata=Jsonb(definition.metadata))

    transact(postgres, body)
