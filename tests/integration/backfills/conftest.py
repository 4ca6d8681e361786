"""A boundary with data backfills behind it, on real databases of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from statlib.backfills.definitions import Definition
from statlib.backfills.registry import Registry
from statlib.backfills.service import opened
from statlib.kernel.settings import Settings
from tests.backfilling import Bench, fill_notes
from tests.boundaries import Boundary, boundary_of
from tests.postgres import Database, Databases


@dataclass(frozen=True)
class Steered:
    """A bench, and the boundary that operators steer it by."""

    bench: Bench
    boundary: Boundary


@pytest.fixture
def steered(database: Database, emptied: Settings) -> Iterator[Callable[..., Steered]]:
    """Make a boundary over the notes and the definitions given."""
    with ExitStack() as stack:

        def make(*definitions: Definition) -> Steered:
            fill_notes(database)
            registry = Registry(definitions)
            backfills = stack.enter_context(opened(database.settings, registry, app_name="statlib-tests"))
            base = emptied.model_copy(
                update={"postgres": database.settings.postgres, "backfills": database.settings.backfills}
            )
            boundary = stack.enter_context(boundary_of(base, backfills=backfills))
            return Steered(Bench(database, backfills.postgres, registry), boundary)

        yield make


@pytest.fixture
def bare_database(postgres_databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """A database that no migration has met."""
    made = postgres_databases.new(tmp_path, migrated=False)
    yield made
    postgres_databases.drop(made.name)


@pytest.fixture
def configured(database: Database, emptied: Settings) -> Callable[..., AbstractContextManager[Steered]]:
    """A service started under one of the four configurations, the way that ``statlib admin serve`` starts it."""

    @contextmanager
    def start(
        *definitions: Definition, automatic: bool, migrates: bool, on: Database | None = None
    ) -> Iterator[Steered]:
        there = on or database
        settings = there.settings.model_copy(
            update={
                "backfills": there.settings.backfills.model_copy(update={"automatic": automatic}),
                "postgres": there.settings.postgres.model_copy(update={"auto_migrate": migrates}),
            }
        )
        registry = Registry(definitions)
        with (
            opened(settings, registry, app_name="statlib-tests") as backfills,
            boundary_of(emptied, backfills=backfills) as boundary,
        ):
            yield Steered(Bench(there, backfills.postgres, registry), boundary)

    return start
