"""Loading more into a project that is already served: no reader ever gets a count without the new studies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pymongo.errors import OperationFailure

from statlib.kernel.settings import Settings
from statlib.mongo.connection import Mongo
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.loading.registration import register
from statlib.review.loading.review import LoadedReview
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import store
from statlib.statistics import storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import GUARD, Mode
from statlib.statistics.hosts import Host
from statlib.statistics.reader import Source, read_bundle
from statlib.statistics.rebuild import rebuild
from tests.reviews import FAMILY, host_of, settings_for
from tests.servers import fail_command


@pytest.fixture
def whole() -> LoadedReview:
    return SimulatedReview(studies=40, events=60).load()


@pytest.fixture
def half_loaded(settings: Settings, whole: LoadedReview) -> Iterator[Host]:
    """A load that was cut off after half of the studies, and a backfill that made the project served all the same."""
    with host_of(settings_for(settings, whole.project.id)) as host:
        storage.initialise(host.mongo, REVIEW, fleet=Mode.ENABLED)
        load(replace(whole, studies=whole.studies[:20]), host.mongo)
        backfill(host, REVIEW, whole.project.id, FAMILY)
        yield host


def load(review: LoadedReview, mongo: Mongo) -> None:
    store(review, mongo, before_studies=lambda project: register(project, mongo, mongo.settings))


def studies(host: Host, review: LoadedReview) -> tuple[Source, int]:
    bundle = read_bundle(host, REVIEW, review.project.id, [(FAMILY, "project")])
    return bundle.source, bundle.counters(FAMILY)["Studies"]


def test_a_completed_load_sends_readers_to_the_source_until_the_next_backfill(
    half_loaded: Host, whole: LoadedReview
) -> None:
    assert studies(half_loaded, whole) == (Source.MATERIALISED, 20)
    load(whole, half_loaded.mongo)
    assert studies(half_loaded, whole) == (Source.AUTHORITATIVE, 40)
    backfill(half_loaded, REVIEW, whole.project.id, FAMILY)
    assert studies(half_loaded, whole) == (Source.MATERIALISED, 40)


def test_studies_that_outdate_nothing_are_not_stored(half_loaded: Host, whole: LoadedReview) -> None:
    guards = f"{half_loaded.mongo.database.name}.{GUARD}"
    with (
        fail_command(half_loaded.mongo.client, ["update"], error_code=8000, namespace=guards),
        pytest.raises(OperationFailure),
    ):
        load(whole, half_loaded.mongo)
    assert studies(half_loaded, whole) == (Source.MATERIALISED, 20)
    assert half_loaded.mongo.collection(STUDIES).count_documents({"ProjectId": whole.project.id}) == 20


def test_a_load_that_adds_nothing_leaves_what_is_served_alone(half_loaded: Host, whole: LoadedReview) -> None:
    load(replace(whole, studies=whole.studies[:20]), half_loaded.mongo)
    assert studies(half_loaded, whole) == (Source.MATERIALISED, 20)
    assert rebuild(half_loaded, REVIEW, whole.project.id, FAMILY).current == ("project",)
