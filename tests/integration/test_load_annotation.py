"""A real annotation export, stored and replayed through the writers: every counter of all nine families."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from statlib.examples import transparency_export as oracle
from statlib.kernel.refusals import Refusal
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.transactions import back_off
from statlib.review.annotation_writer import SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, Project, Study
from statlib.review.loading.detection import detect
from statlib.review.loading.registration import register
from statlib.review.loading.replay import Event, EventWriter
from statlib.review.loading.review import LoadedReview, annotated
from statlib.review.loading.store import per_study_order, store
from statlib.statistics import modes, storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import Mode
from statlib.statistics.hosts import Host
from statlib.statistics.reader import ALL, Bundle, Source, read_bundle
from statlib.statistics.reasons import SaveReason
from tests.conftest import settings_on
from tests.oracles.real_data import real_review
from tests.reviews import ALL_FAMILIES, ORACLES, action, host_of, settings_for

pytestmark = pytest.mark.timeout(900)  # whichever test comes first waits for the replay

WORKERS = 4
TRIES_MAX = 50
MOVED = (
    "ProjectScreening",
    "MembershipScreening",
    "ReviewerScreening",
    "StageAnnotation",
    "MembershipStageAnnotation",
    "DomainReconciliation",
    "SearchPopulation",
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_review("hardwicke2023_transparency")


@pytest.fixture(scope="module")
def review(folder: Path) -> LoadedReview:
    return detect(folder).load(folder)


@pytest.fixture(scope="module")
def served(mongo_server: ReplicaSet, tmp_path_factory: pytest.TempPathFactory, review: LoadedReview) -> Iterator[Host]:
    """The review under statistics, backfilled before anything happened."""
    settings = settings_on(mongo_server, tmp_path_factory.mktemp("annotation"))
    with host_of(settings_for(settings, review.project.id, families=ALL_FAMILIES)) as host:
        storage.initialise(host.mongo, REVIEW, fleet=Mode.ENABLED)
        store(review, host.mongo, before_studies=lambda project: register(project, host.mongo, host.mongo.settings))
        backfill_all(host, review)
        yield host
        host.mongo.client.drop_database(host.mongo.database)


@pytest.fixture(scope="module")
def sampled(served: Host, review: LoadedReview) -> Host:
    """A sample of the studies replayed under statistics, what is odd among them."""
    replay(served, review, sample(review))
    return served


@pytest.fixture(scope="module")
def replayed(sampled: Host, review: LoadedReview) -> Host:
    """All the others replayed while the project's gate is closed, then backfilled.

    Their sessions are completed without having been started first: that spares a third of the saves, and makes no
    difference in the end.
    """
    mongo, project = sampled.mongo, review.project.id
    modes.set_narrow_gate(mongo, REVIEW, project, enabled=False, action=action())
    replay(sampled, review, set(per_study_order(review.in_order)) - sample(review), starts=False)
    modes.set_narrow_gate(mongo, REVIEW, project, enabled=True, action=action())
    mongo.clock.advance(mongo.settings.statistics.opening_grace_s)
    backfill_all(sampled, review)
    return sampled


def sample(review: LoadedReview) -> set[UUID]:
    """Some dozens of the annotated studies: those with a deletion or an edit, and every twentieth of all."""
    acts = per_study_order(review.annotations)
    odd = {event.study_id for event in review.annotations if event.act is SessionAct.DELETE}
    edits = {event.study_id for event in review.annotations if event.act is SessionAct.SAVE and event.answers}
    assert len(odd) == 3, "withdrawn and recoded"
    assert len(edits) == 1
    return odd | edits | set(list(acts)[::20])


def backfill_all(host: Host, review: LoadedReview) -> None:
    for family in ALL_FAMILIES:
        backfill(host, REVIEW, review.project.id, family)


def replay(host: Host, review: LoadedReview, studies: Collection[UUID], *, starts: bool = True) -> None:
    """Submit everything on these studies, several at once. ``starts``: also the acts that only start a session."""
    writer = EventWriter(host, review.project.id)
    wanted = [event for event in review.in_order if starts or getattr(event, "answers", None) != {}]
    of_studies = [events for study, events in per_study_order(wanted).items() if study in studies]
    with ThreadPoolExecutor(WORKERS) as pool:
        submitted = sum(pool.map(lambda events: submit(writer, events), of_studies))
    assert submitted == sum(map(len, of_studies)) > 0


def submit(writer: EventWriter, events: list[Event]) -> int:
    """One study's events in order, each until it is confirmed; returns how many."""
    for event in events:
        for turn in range(TRIES_MAX):
            try:
                writer.submit(event)
            except Refusal as refusal:
                if refusal.reason is not SaveReason.AttemptsExhausted or turn == TRIES_MAX - 1:
                    raise
                back_off(turn)
            else:
                break
    return len(events)


def named(bundle: Bundle, project: Project, family: str) -> dict[str, dict[str, int]]:
    """{scope: counters without zeros} with the export's names for people, searches, the stage and questions"""
    names = {member.investigator_id: member.name for member in project.memberships}
    names |= {search.id: search.name for search in project.searches}
    names |= {stage.id: stage.name for stage in project.stages}
    names |= {question.id: f"Q{number:02}" for number, question in enumerate(project.questions, 1)}
    by_text = {str(id_): name for id_, name in names.items()}

    def spelt(text: str) -> str:
        return _UUID.sub(lambda found: by_text[found[0]], text)

    return {
        spelt(scope): {spelt(key): count for key, count in without_zeros(found).items()}
        for scope, found in bundle.values[family].items()
    }


def without_zeros(counters: Mapping[str, int]) -> dict[str, int]:
    return {key: count for key, count in counters.items() if count}


def test_under_statistics_moved_families_stay_served_from_rows_and_all_are_exact(
    sampled: Host, review: LoadedReview
) -> None:
    studies = list(sampled.mongo.collection(STUDIES).find({"ProjectId": review.project.id}))
    assert sum(bool(study["Sessions"]) for study in studies) == len(sample(review))
    for family in ALL_FAMILIES:
        bundle = read_bundle(sampled, REVIEW, review.project.id, [(family, ALL)])
        assert bundle.source is (Source.MATERIALISED if family in MOVED else Source.AUTHORITATIVE), family
        truth = ORACLES[family](studies, review.project.to_bson(), True)
        assert {scope: without_zeros(found) for scope, found in bundle.values[family].items()} == truth


def test_every_counter_of_every_family_is_what_pandas_counts_in_the_raw_files(
    replayed: Host, review: LoadedReview, folder: Path
) -> None:
    expected = oracle.families(folder)
    assert set(expected) == set(ALL_FAMILIES)
    for family in ALL_FAMILIES:
        bundle = read_bundle(replayed, REVIEW, review.project.id, [(family, ALL)])
        assert bundle.source is Source.MATERIALISED, family
        assert named(bundle, review.project, family) == expected[family]


def test_every_session_stands_as_the_events_leave_it(replayed: Host, review: LoadedReview) -> None:
    stored = {}
    for found in replayed.mongo.collection(STUDIES).find({"ProjectId": review.project.id}):
        study = Study.from_bson(found)
        for session in study.sessions:
            key = (study.id, session.stage_id, session.investigator_id, session.reconciliation)
            stored[key] = (session.status, {answer.question_id: answer.value for answer in session.answers})
    assert stored == annotated(review.annotations)
