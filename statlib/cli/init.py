"""``statlib init``: what a deployment's database needs before the first process uses it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from statlib.cli.output import answer, json_option
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import ServerFacts, probe
from statlib.passes.operations import initialise_records
from statlib.review.catalogue import REVIEW
from statlib.schedule.storage import initialise as initialise_schedule
from statlib.statistics import storage
from statlib.statistics.documents import GLOBAL_CONTROL, GLOBAL_ID


@dataclass(frozen=True, slots=True)
class Stored:
    """What a database has: collections, indexes as ``collection.index``, and the fleet's mode (None: no control)."""

    collections: frozenset[str]
    indexes: frozenset[str]
    fleet_mode: str | None


@dataclass(frozen=True, slots=True)
class Initialised:
    """What was missing and is there now. ``fleet_control``: the fleet's control was among it."""

    database: str
    server: str
    collections: tuple[str, ...]
    indexes: tuple[str, ...]
    fleet_control: bool
    fleet_mode: str


@click.command()
@click.option("--postgres", is_flag=True, help="Apply outstanding migrations to PostgreSQL instead.")
@json_option
def init(*, postgres: bool) -> None:
    """Create what the database lacks: collections, indexes, the fleet's control. Safe to repeat.

    Nothing that exists is changed. A fleet starts closed: no statistics are kept or served until it is opened.
    """
    if postgres:
        _migrate()
        return
    with connected(load_settings(), app_name="statlib-init") as mongo:
        facts = probe(mongo)
        done = initialise(mongo, facts)
    answer(done, [*_lines(done), *(f"warning: {warning}" for warning in facts.warnings)])


def _migrate() -> None:
    from statlib.backfills import SCHEMA  # noqa: PLC0415 - the extra `postgres`
    from statlib.postgres.migrations import migrate  # noqa: PLC0415

    done = migrate(load_settings(), [SCHEMA])
    answer(done, [f"applied {name}" for name in done.applied] or ["no migration was outstanding"])


def initialise(mongo: Mongo, facts: ServerFacts) -> Initialised:
    """Create what is missing, and say what that was. A crash leaves less missing than before."""
    before = stored(mongo)
    storage.initialise(mongo, REVIEW)
    initialise_records(mongo)
    initialise_schedule(mongo)
    after = stored(mongo)
    return Initialised(
        database=mongo.database.name,
        server=f"MongoDB {facts.version}, replica set {facts.set_name}",
        collections=tuple(sorted(after.collections - before.collections)),
        indexes=tuple(sorted(after.indexes - before.indexes)),
        fleet_control=before.fleet_mode is None,
        fleet_mode=str(after.fleet_mode),
    )


def stored(mongo: Mongo) -> Stored:
    """What the database has now."""
    collections = frozenset(mongo.database.list_collection_names())
    indexes = frozenset(
        f"{name}.{index}" for name in collections for index in mongo.collection(name).index_information()
    )
    control = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}, {"Mode": 1})
    return Stored(collections, indexes, control["Mode"] if control else None)


def _lines(done: Initialised) -> list[str]:
    lines = [f"{done.server}, database {done.database}"]
    own = [index for index in done.indexes if not index.endswith("._id_")]
    lines += [f"created collection {name}" for name in done.collections]
    lines += [f"created index {name}" for name in own]
    if done.fleet_control:
        lines.append("created the fleet's control")
    if len(lines) == 1:
        lines.append("nothing was missing")
    lines.append(f"the fleet is {done.fleet_mode}; `statlib fleet --help` opens and closes it")
    return lines
