"""What a save leaves in its document: an entry per operation or nothing, and what may not be in one is staled."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from statlib.review.catalogue import REVIEW
from statlib.review.families.search_population import NAME as SEARCH_POPULATION
from statlib.review.namespaces import ANNOTATION_FAMILIES, ANNOTATION_NAMESPACE, SCREENING_NAMESPACE
from statlib.review.transitions import Kind
from statlib.statistics.bounds import PENDING_ENTRY_BYTES_MAX
from statlib.statistics.documents import GlobalControl, ProjectControl
from statlib.statistics.entries import Saver, entries_of
from statlib.statistics.envelopes import Envelope, Opening
from statlib.statistics.outcomes import FurtherOperation, SourceWrite
from statlib.statistics.pending import Entry, encoded_size
from statlib.statistics.sources import Loaded
from tests.annotated import PEOPLE, Act, Step, a_project, a_study, after

AT = datetime(2024, 5, 1, tzinfo=UTC)
PROJECT, STUDY = UUID(int=99), UUID(int=10)
FLEET = GlobalControl(reviewer_tracking_epoch=3)
SCREENING, ANNOTATION = "screening:study:anna:5", "inclusion:study:-:anna:5"
ENVELOPE = Envelope(
    SCREENING_NAMESPACE, SCREENING.rpartition(":")[0], PROJECT, STUDY, PEOPLE[0], None, 5, Opening(1, 1), AT
)
FURTHER = FurtherOperation(ANNOTATION_NAMESPACE, ANNOTATION, ANNOTATION_FAMILIES)


def loaded(*steps: Step) -> Loaded:
    source = after(a_study(STUDY, PROJECT), *steps) | {"Audit": {"Version": 8}}
    return Loaded(source, FLEET, ProjectControl(id=PROJECT), a_project(PROJECT), None, AT, 0.0)


def entries(
    at: Loaded, *steps: Step, further: tuple[FurtherOperation, ...] = (), families: Any = REVIEW.folding
) -> list[Entry]:
    now = after(dict(at.source), *steps)
    fields = {name: value for name, value in now.items() if value != at.source.get(name)}
    saver = Saver.of(REVIEW, frozenset(families), at.context, at.fleet)
    return entries_of(saver, ENVELOPE, "digest", at, SourceWrite(fields, further))


def kinds(entry: Entry) -> list[str]:
    return [transition.kind for transition in entry.transitions]


@pytest.mark.req("ENTRY-18", "ENTRY-19", "ENTRY-20", "ENTRY-22", "ENTRY-27", "ENTRY-28", "SAVE-19", "SAVE-20")
def test_an_entry_says_what_was_saved_upon_what_and_under_which_context() -> None:
    at = loaded()
    (made,) = entries(at, Step(Act.INCLUDE, PEOPLE[0]))
    assert made.key == (SCREENING_NAMESPACE, SCREENING)
    assert (made.expected_source_revision, made.source_revision_before, made.source_revision_after) == (5, 8, 9)
    assert (made.submission_digest, made.created_at_utc, made.trigger_reason) == ("digest", AT, "screening")
    assert (made.catalogue_version, made.assumed_tracking_epoch) == (REVIEW.version, 3)
    context = REVIEW.domain.context(at.context, FLEET.reviewer_tracking_mode)
    assert REVIEW.transitions is not None
    assert made.context == REVIEW.transitions.context_digests(context)
    assert kinds(made) == [Kind.PROJECT_SCREENING_PROFILE, Kind.REVIEWER_SCREENING_POINT]


@pytest.mark.req("SAVE-14")
def test_a_save_that_moves_and_stales_nothing_leaves_nothing() -> None:
    at = loaded(Step(Act.INCLUDE, PEOPLE[0]))
    assert entries(at) == []
    assert entries(at, Step(Act.INCLUDE, PEOPLE[0]), further=(FURTHER,)) == []


@pytest.mark.req("ENTRY-15", "ENTRY-16", "SAVE-17")
def test_each_operation_of_a_save_has_an_entry_of_its_own_families() -> None:
    at = loaded(Step(Act.INCLUDE, PEOPLE[0]))
    screening, annotation = entries(at, Step(Act.INCLUDE, PEOPLE[1]), further=(FURTHER,))
    assert screening.key == (SCREENING_NAMESPACE, SCREENING)
    assert annotation.key == (ANNOTATION_NAMESPACE, ANNOTATION)
    assert kinds(screening) == [Kind.PROJECT_SCREENING_PROFILE, Kind.REVIEWER_SCREENING_POINT]
    assert kinds(annotation) == [Kind.ANNOTATION_MULTI_STAGE]
    (alone,) = entries(at, Step(Act.INCLUDE, PEOPLE[1]))
    assert kinds(alone) == [*kinds(screening), *kinds(annotation)]


@pytest.mark.req("ENTRY-32")
def test_an_operation_without_a_part_in_a_save_that_does_something_has_an_entry_too() -> None:
    at = loaded(Step(Act.RESERVE, PEOPLE[0]))
    screening, annotation = entries(at, Step(Act.RELEASE, PEOPLE[0]), further=(FURTHER,))
    assert (kinds(screening), screening.invalidations) == ([], [])
    assert kinds(annotation) == [Kind.ANNOTATION_STAGE]


@pytest.mark.req("ENTRY-31", "ENTRY-30")
def test_a_family_that_this_host_does_not_keep_is_staled_where_it_is_touched() -> None:
    (made,) = entries(loaded(), Step(Act.INCLUDE, PEOPLE[0]), families={"ProjectScreening"})
    assert kinds(made) == [Kind.PROJECT_SCREENING_PROFILE]
    staled = {(intent.family, intent.scope) for intent in made.invalidations}
    assert staled == {("MembershipScreening", None), ("ReviewerScreening", None)}


@pytest.mark.req("ENTRY-41")
def test_an_entry_that_is_too_large_stales_what_it_would_have_moved() -> None:
    crowd = [Step(Act.INCLUDE, UUID(int=1_000 + n)) for n in range(250)]
    (made,) = entries(loaded(*crowd), Step(Act.INCLUDE, PEOPLE[0]))
    assert made.transitions == []
    families = {(intent.family, intent.scope) for intent in made.invalidations}
    assert families == {(f, None) for f in ("ProjectScreening", "MembershipScreening", "ReviewerScreening")}
    assert encoded_size(made.to_bson()) <= PENDING_ENTRY_BYTES_MAX


def test_a_save_may_not_move_a_family_that_does_not_fold() -> None:
    search = UUID(int=7)
    at = loaded()
    at = replace(at, context={**at.context, "Searches": [{"Id": search, "Name": "s"}]})
    saver = Saver.of(REVIEW, REVIEW.folding, at.context, at.fleet)
    with pytest.raises(AssertionError, match=SEARCH_POPULATION):
        entries_of(saver, ENVELOPE, "digest", at, SourceWrite({"SearchId": search}))


def test_only_a_domain_with_transitions_folds() -> None:
    with pytest.raises(AssertionError, match="transitions"):
        Saver.of(replace(REVIEW, transitions=None), REVIEW.folding, a_project(PROJECT), FLEET)
