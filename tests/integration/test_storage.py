"""Storage is made once, by whoever comes first, and its hot queries use its indexes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo, connected
from statlib.statistics import queries, storage
from statlib.statistics.documents import CONTROL, DELTA, GLOBAL_CONTROL, MEMBER, RECEIPT, ROW
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import live_filter
from statlib.statistics.receipts import receipts_between
from statlib.statistics.sources import load
from tests.domain import (
    BOOKS,
    FAMILIES,
    LIBRARIES,
    LIBRARY,
    SHELVES,
    VISITS,
    Library,
    library_catalogue,
    served_library,
)


def shape(mongo: Mongo) -> dict[str, Any]:
    """Collections with their indexes and documents."""
    return {
        name: (mongo.collection(name).index_information(), list(mongo.collection(name).find()))
        for name in sorted(mongo.database.list_collection_names())
    }


def test_initialising_makes_every_collection_and_a_closed_fleet(mongo: Mongo) -> None:
    storage.initialise(mongo, LIBRARY)
    assert set(shape(mongo)) == {*storage.COLLECTIONS, BOOKS, LIBRARIES}
    (fleet,) = mongo.collection(GLOBAL_CONTROL).find()
    assert (fleet["Mode"], fleet["ModeEpoch"], fleet["CatalogueVersion"]) == ("Disabled", 0, LIBRARY.version)
    for name, indexes in storage.INDEXES.items():
        made = mongo.collection(name).index_information()
        assert len(made) == len(indexes) + 1


def test_initialising_again_changes_nothing(mongo: Mongo) -> None:
    storage.initialise(mongo, LIBRARY)
    mongo.collection(GLOBAL_CONTROL).update_one({}, {"$set": {"Mode": "Enabled", "ModeEpoch": 7, "Unknown": 1}})
    before = shape(mongo)
    storage.initialise(mongo, library_catalogue(version=2))
    assert shape(mongo) == before


def test_initialising_at_once_is_initialising_once(settings: Settings) -> None:
    for attempt in range(3):
        of_its_own = settings.mongo.model_copy(update={"database": f"{settings.mongo.database}_{attempt}"})
        with connected(settings.model_copy(update={"mongo": of_its_own})) as mongo:
            failures: list[BaseException] = []
            ready = threading.Barrier(4)

            def initialise(
                mongo: Mongo = mongo, ready: threading.Barrier = ready, failures: list[BaseException] = failures
            ) -> None:
                try:
                    ready.wait(timeout=20)
                    storage.initialise(mongo, LIBRARY)
                except BaseException as error:
                    failures.append(error)

            rivals = [threading.Thread(target=initialise) for _ in range(4)]
            for rival in rivals:
                rival.start()
            for rival in rivals:
                rival.join(timeout=60)
            try:
                assert not any(rival.is_alive() for rival in rivals)
                assert failures == []
                assert set(shape(mongo)) == {*storage.COLLECTIONS, BOOKS, LIBRARIES}
                assert mongo.collection(GLOBAL_CONTROL).count_documents({}) == 1
            finally:
                mongo.client.drop_database(mongo.database)


def test_a_row_a_receipt_and_a_ledger_entry_exist_once(mongo: Mongo) -> None:
    storage.initialise(mongo, LIBRARY)
    unique = {
        name: [tuple(key for key, _ in index["key"]) for index in information.values() if index.get("unique")]
        for name in (ROW, RECEIPT, DELTA)
        for information in [mongo.collection(name).index_information()]
    }
    assert unique == {
        ROW: [("ProjectId", "Family", "Scope", "Generation", "Token")],
        RECEIPT: [("ProjectId", "OperationNamespace", "OperationId")],
        DELTA: [("ProjectId", "Revision", "Record")],
    }


@pytest.mark.req("MEMBER-07")
def test_the_server_collects_a_member_that_was_not_renewed_for_ten_minutes(mongo: Mongo) -> None:
    storage.initialise(mongo, LIBRARY)
    information = mongo.collection(MEMBER).index_information()
    assert {index["expireAfterSeconds"] for index in information.values() if "expireAfterSeconds" in index} == {600}
    now = datetime.now(UTC)
    mongo.collection(MEMBER).insert_many(
        [
            {"_id": "old", "RenewedAtUtc": now - timedelta(seconds=601)},
            {"_id": "recent", "RenewedAtUtc": now - timedelta(seconds=500)},
        ]
    )
    with mongo.collection(MEMBER).watch(
        [{"$match": {"operationType": "delete"}}], max_await_time_ms=20000
    ) as deletions:
        # The change stream is the signal: the server's own sweep runs once a second in tests.
        if mongo.collection(MEMBER).count_documents({"_id": "old"}):
            assert next(deletions)["documentKey"] == {"_id": "old"}
    assert [found["_id"] for found in mongo.collection(MEMBER).find()] == ["recent"]


# --- plans -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    """Enough of everything that a collection scan would be chosen if no index served."""
    with served_library(emptied, shelves=40, books=60) as opened:
        for book in opened.books[:5]:
            opened.lend(book)
        yield opened


def stages(plan: Any) -> set[str]:
    """Every stage name of a plan, of its unions and look-ups too."""
    if isinstance(plan, Mapping):
        own = {plan["stage"]} if isinstance(plan.get("stage"), str) else set()
        return own.union(*(stages(value) for key, value in plan.items() if key != "rejectedPlans"))
    if isinstance(plan, list):
        return set().union(*(stages(value) for value in plan))
    return set()


def explained(mongo: Mongo, collection: str, pipeline: list[dict[str, Any]]) -> Any:
    command = {"aggregate": collection, "pipeline": pipeline, "cursor": {}}
    return mongo.database.command(
        {"explain": command, "verbosity": "queryPlanner"}, codec_options=mongo.database.codec_options
    )


def envelope_of(served: Library) -> Envelope:
    loaded = load(served.mongo, LIBRARY, served.project, served.books[0])
    return Envelope(
        namespace="test.lending",
        stream=f"lending:{served.books[0]}:{served.actor}",
        project=served.project,
        aggregate=served.books[0],
        actor=served.actor,
        stage=None,
        expected=0,
        opening=loaded.opening,
        created_at=loaded.now,
    )


def bundle(s: Library, scopes: Mapping[str, Sequence[str] | None]) -> list[dict[str, Any]]:
    live_since, now = live_filter(s.mongo), s.mongo.clock.mongo_now()
    return queries.bundle(LIBRARY, s.project, scopes, live_since=live_since, now=now, pending_max=None)


HOT: dict[str, tuple[str, Callable[[Library], list[dict[str, Any]]]]] = {
    "a bundle of all scopes": (
        GLOBAL_CONTROL,
        lambda s: bundle(s, dict.fromkeys(FAMILIES)),
    ),
    "a bundle of one scope": (
        GLOBAL_CONTROL,
        lambda s: bundle(s, {SHELVES: ["shelf/1"]}),
    ),
    "a bundle of scopes of two families": (
        GLOBAL_CONTROL,
        lambda s: bundle(s, {SHELVES: ["shelf/1", "shelf/2"], VISITS: None}),
    ),
    "visible rows": (ROW, lambda s: [{"$match": queries.visible_rows(s.project, {SHELVES: ["shelf/1"]})}]),
    "a project's state": (
        CONTROL,
        lambda s: queries.project_state(LIBRARY, s.project, FAMILIES, s.mongo.clock.mongo_now()),
    ),
    "a source document": (
        BOOKS,
        lambda s: queries.load_source(LIBRARY, s.project, s.books[0], s.mongo.clock.mongo_now()),
    ),
    "a source document with its trail": (
        BOOKS,
        lambda s: [
            *queries.load_source(LIBRARY, s.project, s.books[0], s.mongo.clock.mongo_now()),
            *queries.with_trail(
                s.project, s.books[0], queries.Streams(envelope_of(s).namespace, (envelope_of(s).stream,))
            ),
        ],
    ),
    "a row by compare-and-set": (
        ROW,
        lambda s: [
            {
                "$match": {
                    "ProjectId": s.project,
                    "Family": SHELVES,
                    "Scope": "shelf/1",
                    "Generation": 1,
                    "Token": "t",
                    "State": "Fresh",
                    "LastChangedRevision": 1,
                }
            }
        ],
    ),
    "the sources of a project": (BOOKS, lambda s: [{"$match": {"ProjectId": s.project}}, {"$count": "n"}]),
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_scans_no_collection(served: Library, name: str) -> None:
    collection, pipeline = HOT[name]
    plan = explained(served.mongo, collection, pipeline(served))
    assert "COLLSCAN" not in str(plan)
    assert stages(plan) & {"IXSCAN", "IDHACK", "COUNT_SCAN", "EXPRESS_IXSCAN"}


def test_a_plan_without_its_index_is_recognised(served: Library) -> None:
    """The test above can fail: the same look at a query that no index serves."""
    plan = explained(served.mongo, ROW, [{"$match": {"Counters.k": "Lent"}}])
    assert "COLLSCAN" in stages(plan)


# --- receipts of a window, and sizes ---------------------------------------------------------------------------------


def test_receipts_of_a_window_are_paged_in_order_without_gap_or_repeat(served: Library) -> None:
    for book in served.books[5:9]:
        served.lend(book)
    everything = sorted(
        served.mongo.collection(RECEIPT).find(), key=lambda receipt: (receipt["ObservedAtUtc"], receipt["OperationId"])
    )
    same_time = everything[2]["ObservedAtUtc"]
    served.mongo.collection(RECEIPT).update_many(
        {"OperationId": {"$in": [receipt["OperationId"] for receipt in everything[2:6]]}},
        {"$set": {"ObservedAtUtc": same_time}},
    )
    since, until = everything[0]["ObservedAtUtc"], everything[-1]["ObservedAtUtc"] + timedelta(milliseconds=1)
    seen: list[tuple[datetime, str]] = []
    pages = 0
    while page := [
        (receipt.observed_at_utc, receipt.operation_id)
        for receipt in receipts_between(
            served.mongo, served.project, since, until, after=seen[-1] if seen else None, limit=2
        )
    ]:
        assert len(page) <= 2
        seen += page
        pages += 1
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen)) == 9
    assert pages == 5


def test_the_window_of_receipts_is_half_open_and_of_one_project(served: Library) -> None:
    observed = sorted(receipt["ObservedAtUtc"] for receipt in served.mongo.collection(RECEIPT).find())

    def count(since: datetime, until: datetime, project: Any = served.project) -> int:
        return len(list(receipts_between(served.mongo, project, since, until, after=None, limit=100)))

    step = timedelta(milliseconds=1)
    assert count(observed[0], observed[-1] + step) == len(observed)
    assert count(observed[0], observed[-1]) == sum(at < observed[-1] for at in observed)
    assert count(observed[0] + step, observed[-1] + step) == sum(at > observed[0] for at in observed)
    assert count(observed[0], observed[-1] + step, served.books[0]) == 0


def test_sizes_count_documents_and_bytes_and_take_a_missing_collection_for_empty(served: Library) -> None:
    by_name = {size.collection: size for size in storage.sizes(served.mongo, [ROW, "pmNothing", BOOKS])}
    assert by_name[ROW].documents == served.mongo.collection(ROW).count_documents({})
    assert by_name[BOOKS].documents == 60
    assert by_name[BOOKS].size_bytes > 60 * 50
    assert by_name[BOOKS].storage_bytes > 0
    assert by_name["pmNothing"] == storage.CollectionSize("pmNothing", 0, 0, 0)
