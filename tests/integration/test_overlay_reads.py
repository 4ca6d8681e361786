"""A read sees what is pending, in one command and exactly; or it counts the source and names what is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from statlib.kernel import telemetry
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.edits import Join, SetTarget, SetThreshold, edit_project, set_threshold
from statlib.review.families.reviewer_annotation import NAME as REVIEWER_ANNOTATION
from statlib.review.families.stage_annotation import NAME as STAGES
from statlib.statistics import queries
from statlib.statistics.bounds import OVERLAY_AGE_MAX_S, OVERLAY_STUDIES_MAX
from statlib.statistics.documents import GLOBAL_CONTROL, ROW
from statlib.statistics.fold.turn import fold_project
from statlib.statistics.overlay import NOTHING_PENDING, OverlayRefusal
from statlib.statistics.parity import compare
from statlib.statistics.pending import PENDING, PendingSet, appended
from statlib.statistics.reader import ALL, Source, read_bundle
from statlib.statistics.reasons import ServeReason
from statlib.statistics.why import why
from tests.folding import fold_off, fold_on
from tests.pending_studies import screen, work
from tests.reviews import ALL_FAMILIES, FAMILY, Review, host_of, review, settings_for, stage


@pytest.fixture
def served(emptied: Settings) -> Iterator[Review]:
    """A folding review whose every family is Fresh."""
    with review(
        emptied, studies=4, families=ALL_FAMILIES, members=3, stages=[stage()], searches=1, fold=True
    ) as opened:
        opened.backfill_all()
        fold_on(opened.mongo, opened.project)
        yield opened


@pytest.mark.req("OVERLAY-03", "OVERLAY-20", "INV-02")
def test_what_is_pending_is_served_with_what_is_stored(served: Review) -> None:
    before = served.read_all()
    assert (before.source, before.pending) == (Source.MATERIALISED, NOTHING_PENDING)
    for study in served.studies[:3]:
        screen(served, study, served.members[0])
    for mode in (fold_on, fold_off):
        mode(served.mongo, served.project)
        found = served.read_all()
        assert (found.source, found.reason) == (Source.MATERIALISED, None)
        assert found.values == served.whole_truth() != before.values
        assert found.pending.entries == 3


@pytest.mark.req("OVERLAY-01", "OVERLAY-04", "OVERLAY-06")
def test_a_read_is_one_command_but_the_first_that_a_process_makes_of_a_folding_project(
    served: Review, emptied: Settings
) -> None:
    screen(served, served.studies[0], served.members[0])
    with host_of(settings_for(emptied, served.project, families=ALL_FAMILIES)) as host:
        of = Review(host.mongo, host, served.project, served.studies)
        for commands in (2, 1, 1):
            with counting(host.mongo.client) as sent:
                found = of.read_all()
            assert (found.source, found.pending.entries) == (Source.MATERIALISED, 1)
            assert sent.names == ("aggregate",) * commands


@pytest.mark.req("OVERLAY-24", "OVERLAY-25")
def test_the_checkpoint_identity_names_what_is_stored_and_the_fingerprint_what_was_added(served: Review) -> None:
    before = served.read_all()
    screen(served, served.studies[0], served.members[0])
    pending = served.read_all()
    assert pending.watermarks == before.watermarks
    assert pending.pending != before.pending
    assert fold_project(served.host, REVIEW, served.project, min_age_s=0).entries == 1
    folded = served.read_all()
    assert folded.values == pending.values
    assert (folded.source, folded.pending) == (Source.MATERIALISED, before.pending)
    assert folded.watermarks.checkpoint_identity != pending.watermarks.checkpoint_identity


@pytest.mark.req("OVERLAY-06", "OVERLAY-07")
def test_pending_sets_are_found_by_their_own_index_and_one_more_than_is_overlaid(served: Review) -> None:
    pipeline = queries.pending_sets(served.project, OVERLAY_STUDIES_MAX + 1)
    database = served.mongo.database
    command = {"aggregate": STUDIES, "pipeline": pipeline, "cursor": {}}
    explained = database.command("explain", command, verbosity="queryPlanner", codec_options=database.codec_options)
    assert "IX_Study_PendingStatistics" in str(explained)
    assert "COLLSCAN" not in str(explained)
    assert {"$limit": 129} in pipeline


def _membership(of: Review) -> None:
    edit_project(of.host, of.project, Join(investigator=uuid4()))


def _threshold(of: Review) -> None:
    set_threshold(of.host, of.project, SetThreshold(min_screenings=3, agreement_ratio=1.0))


def _target(of: Review) -> None:
    edit_project(of.host, of.project, SetTarget(stage=of.stages[0], target=7))


def _tracking(of: Review) -> None:
    of.mongo.collection(GLOBAL_CONTROL).update_one({}, {"$inc": {"ReviewerTrackingEpoch": 1}})
    of.mongo.collection(ROW).update_many({}, {"$inc": {"WriteEpochs.Tracking": 1}})


@pytest.mark.req("OVERLAY-14", "OVERLAY-16", "OVERLAY-31")
@pytest.mark.parametrize(
    ("edit", "groups", "detail"),
    [
        (_membership, {"Membership"}, OverlayRefusal.CONTEXT_CHANGED),
        (_threshold, {"Screening", "Membership", "Annotation"}, OverlayRefusal.CONTEXT_CHANGED),
        (_target, {"Annotation"}, OverlayRefusal.CONTEXT_CHANGED),
        (_tracking, {"Screening", "Membership", "Annotation"}, OverlayRefusal.TRACKING_MODE_CHANGED),
    ],
    ids=["membership", "threshold", "target", "tracking"],
)
def test_what_is_edited_between_a_save_and_its_fold_refuses_the_groups_that_depend_on_it(
    served: Review, edit: Callable[[Review], object], groups: set[str], detail: OverlayRefusal
) -> None:
    """The entry is put back only once a backfill has repaired what the edit itself staled: so the overlay alone is left
    to refuse."""
    entry = screen(served, served.studies[0], served.members[0])
    served.mongo.collection(STUDIES).update_one({"_id": served.studies[0]}, {"$unset": {PENDING: ""}})
    edit(served)
    served.backfill_all()
    sets = appended(PendingSet(), [entry], entry.created_at_utc)
    served.mongo.collection(STUDIES).update_one({"_id": served.studies[0]}, {"$set": {PENDING: sets}})
    assert REVIEW.transitions is not None
    for family in ALL_FAMILIES:
        found = read_bundle(served.host, REVIEW, served.project, [(family, ALL)])
        refused = REVIEW.transitions.groups.get(family) in groups
        assert found.detail is (detail if refused else None), family
        assert found.reason is (ServeReason.PendingOverlayUnavailable if refused else None), family
    whole = served.read_all()
    assert (whole.source, whole.detail) == (Source.AUTHORITATIVE, detail)
    assert whole.values == served.whole_truth()


@pytest.mark.req("OVERLAY-15", "OVERLAY-21")
def test_an_intent_sends_the_bundle_to_the_source_and_only_bundles_that_ask_for_its_scopes(served: Review) -> None:
    screen(served, served.studies[0], *served.members[:2])
    served.backfill_all()
    work(served, served.studies[0], served.members[0])
    whole = served.read_all()
    assert (whole.source, whole.detail) == (Source.AUTHORITATIVE, OverlayRefusal.INTENT)
    assert whole.values == served.whole_truth()
    own, other = (f"stage/{served.stages[0]}/member/{member}" for member in served.members[:2])
    for scope, detail in ((own, OverlayRefusal.INTENT), (other, None)):
        found = read_bundle(served.host, REVIEW, served.project, [(REVIEWER_ANNOTATION, scope), (STAGES, ALL)])
        assert found.detail is detail
        assert found.values[STAGES] == served.truth_of(STAGES)


@pytest.mark.req("OVERLAY-08", "OVERLAY-11", "OVERLAY-23")
def test_a_set_grows_too_old_by_the_servers_clock(served: Review) -> None:
    screen(served, served.studies[0], served.members[0])
    served.mongo.clock.advance(OVERLAY_AGE_MAX_S - 60)
    assert served.read().detail is None
    served.mongo.clock.advance(61)
    found = served.read()
    assert (found.reason, found.detail) == (ServeReason.PendingOverlayUnavailable, OverlayRefusal.TOO_OLD)
    assert found.counters(FAMILY) == served.truth()
    (compared,) = compare(served.host, REVIEW, served.project, [FAMILY])
    assert (compared.compared, compared.detail) == (False, OverlayRefusal.TOO_OLD)
    gates = {gate.reason: gate for gate in why(served.host, REVIEW, served.project, [FAMILY]).gates if not gate.passed}
    assert {reason: gate.detail for reason, gate in gates.items()} == {
        ServeReason.PendingOverlayUnavailable: OverlayRefusal.TOO_OLD
    }


@pytest.mark.req("OVERLAY-09")
def test_as_many_studies_as_the_cap_are_overlaid_and_one_more_sends_the_read_to_the_source(emptied: Settings) -> None:
    with review(emptied, studies=OVERLAY_STUDIES_MAX + 1, members=1, fold=True) as many:
        many.backfill()
        fold_on(many.mongo, many.project)
        for study in many.studies[1:]:
            screen(many, study, many.members[0])
        full = many.read()
        assert (full.source, full.counters(FAMILY)) == (Source.MATERIALISED, many.truth())
        screen(many, many.studies[0], many.members[0])
        over = many.read()
        assert (over.detail, over.counters(FAMILY)) == (OverlayRefusal.TOO_MANY, many.truth())


@pytest.mark.req("OVERLAY-19")
def test_a_sum_below_zero_is_counted_from_the_source_and_reported(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, object]] = []
    monkeypatch.setattr(telemetry, "count", lambda name, **labels: counted.append((name, labels.get("reason"))))
    screen(served, served.studies[0], served.members[0])
    served.mongo.collection(ROW).update_one({"Family": FAMILY}, {"$set": {"Counters": []}})
    found = served.read()
    assert (found.detail, found.counters(FAMILY)) == (OverlayRefusal.NEGATIVE_COUNTER, served.truth())
    assert ("overlay.invariant_violation", OverlayRefusal.NEGATIVE_COUNTER) in counted


@pytest.mark.req("REBUILD-15")
def test_parity_and_a_backfills_proof_compare_what_is_served(served: Review) -> None:
    screen(served, served.studies[0], served.members[0])
    for found in compare(served.host, REVIEW, served.project, ALL_FAMILIES):
        assert (found.exact, found.pending.entries) == (True, 1), found
    served.mongo.collection(ROW).update_one({"Family": FAMILY}, {"$set": {"Counters": [{"k": "x", "v": 1}]}})
    (drifted,) = compare(served.host, REVIEW, served.project, [FAMILY])
    assert not drifted.exact
