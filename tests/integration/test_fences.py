"""Fences: what readers, saves, rebuilds and rivals see while many source documents are rewritten, and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.reasons import MongoReason
from statlib.statistics.bounds import FENCE_CHUNK_DOCS_MAX, FENCE_LEASE_TTL_S
from statlib.statistics.documents import FENCE, GUARD, OUTBOX, FenceKind
from statlib.statistics.fences import (
    Asked,
    Held,
    Progress,
    admit,
    chunk,
    finish,
    release_interrupted,
    standing,
    underway,
)
from statlib.statistics.reasons import FenceReason, SaveReason, ServeReason
from statlib.statistics.rewrites import complete, rewrite
from tests.domain import (
    BOOKS,
    FAMILIES,
    LIBRARY,
    LOANS,
    SHELVES,
    VISITS,
    Library,
    library,
    library_settings,
    served_library,
)
from tests.editing import HIDING, LABELLING, STAGED, Set, assert_right, begin, edit_library, label, lend_all
from tests.reviews import host_of


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


def counts(of: Library) -> dict[str, int]:
    return {family: of.guard(family)["ActiveFenceCount"] for family in FAMILIES}


def refused(call: Any, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(Refusal) as refusal:
        call(*arguments, **options)
    return refusal.value.reason


# --- staged operations -----------------------------------------------------------------------------------------------


def test_whoever_takes_anothers_place_disturbs_its_own_families_too(served: Library) -> None:
    begin(served, families=(SHELVES,))
    served.mongo.clock.advance(FENCE_LEASE_TTL_S)
    held = begin(served, "two", families=(LOANS,))
    assert held.abandoned == {"what": "one"}
    assert counts(served) == {SHELVES: 1, LOANS: 1, VISITS: 0}
    assert served.guard(LOANS)["State"] == "Stale"
    finish(held)
    assert counts(served) == dict.fromkeys(FAMILIES, 0)


def test_a_staged_operation_stales_its_families_and_counts_itself_in_one_transaction(served: Library) -> None:
    before, guards = served.control(), {family: served.guard(family) for family in FAMILIES}
    held = begin(served, families=(SHELVES, LOANS))
    after = served.control()
    assert after["SourceInvalidationRevision"] == before["SourceInvalidationRevision"] + 1
    assert after["ClientInvalidationRevision"] == before["ClientInvalidationRevision"] + 1
    for family in (SHELVES, LOANS):
        guard = served.guard(family)
        assert (guard["State"], guard["ActiveFenceCount"], guard["Candidate"]) == ("Stale", 1, None)
        assert guard["FamilyWriteEpoch"] == guards[family]["FamilyWriteEpoch"] + 1
        assert guard["Version"] == guards[family]["Version"] + 1
    assert served.guard(VISITS) == guards[VISITS]
    assert (held.resumed, held.abandoned, held.foreign) == (False, None, False)
    assert served.read((VISITS, "visitor/ann")).reason is None
    assert_right(served, served=False)


def test_readers_count_saves_save_and_rebuilds_wait_until_a_staged_operation_has_ended(served: Library) -> None:
    held = begin(served)
    lend_all(held, served, 0, 3)
    assert_right(served, served=False)
    served.lend(served.books[4], "bob")
    assert_right(served, served=False)
    assert {served.guard(family)["State"] for family in FAMILIES} == {"Stale"}
    assert refused(served.rebuild) is ServeReason.FenceActive
    assert refused(served.backfill) is ServeReason.FenceActive
    lend_all(held, served, 3, 6, "bob")
    finish(held)
    assert counts(served) == dict.fromkeys(FAMILIES, 0)
    assert {served.guard(family)["State"] for family in FAMILIES} == {"Stale"}, "left to a rebuild"
    assert_right(served, served=False)
    served.backfill_all()
    assert_right(served, served=True)


def test_a_family_that_never_had_a_guard_is_fenced_too(emptied: Settings) -> None:
    with library(emptied) as new:
        held = begin(new)
        assert counts(new) == dict.fromkeys(FAMILIES, 1)
        assert refused(new.rebuild) is ServeReason.FenceActive
        finish(held)
        new.backfill_all()
        assert_right(new, served=True)


def test_no_checkpoint_identity_names_two_states_of_the_source(served: Library) -> None:
    identities = [served.read().watermarks.checkpoint_identity]
    held = begin(served)
    identities.append(served.read().watermarks.checkpoint_identity)
    for book in range(2):
        lend_all(held, served, book, book + 1)
        identities.append(served.read().watermarks.checkpoint_identity)
    finish(held)
    identities.append(served.read().watermarks.checkpoint_identity)
    assert len(set(identities)) == len(identities)


def test_a_second_owner_is_refused_while_the_first_lives(served: Library) -> None:
    held = begin(served)
    before = served.statistics()
    assert refused(begin, served, "two") is FenceReason.FenceHeld
    assert refused(release_interrupted, served.mongo, served.project, STAGED) is FenceReason.FenceHeld
    assert served.statistics() == before
    served.mongo.clock.advance(FENCE_LEASE_TTL_S - 5)
    lend_all(held, served, 0, 1)  # prolongs it
    served.mongo.clock.advance(FENCE_LEASE_TTL_S - 5)
    assert refused(begin, served, "two") is FenceReason.FenceHeld
    finish(held)
    begin(served, "two")


@pytest.mark.parametrize("intent", ["one", "two"])
def test_an_interrupted_operation_is_taken_over_and_still_counted_once(served: Library, intent: str) -> None:
    dead = begin(served, "one")
    lend_all(dead, served, 0, 2)
    served.mongo.clock.advance(FENCE_LEASE_TTL_S)
    epochs = {family: served.guard(family)["FamilyWriteEpoch"] for family in FAMILIES}
    held = begin(served, intent)
    assert counts(served) == dict.fromkeys(FAMILIES, 1)
    assert {family: served.guard(family)["FamilyWriteEpoch"] for family in FAMILIES} == epochs
    assert held.resumed == (intent == "one")
    assert held.abandoned == (None if intent == "one" else {"what": "one"})
    assert held.fence.progress == ({"lent": 2} if intent == "one" else {})
    before = served.statistics()
    assert refused(lend_all, dead, served, 2, 4) is MongoReason.LeaseLost
    assert refused(finish, dead) is MongoReason.LeaseLost
    assert served.statistics() == before, "the one who woke late changed nothing"
    lend_all(held, served, 2, 6)
    finish(held)
    assert counts(served) == dict.fromkeys(FAMILIES, 0)
    served.backfill_all()
    assert_right(served, served=True)


def test_an_interrupted_staged_operation_is_released_by_whoever_settles_it(served: Library) -> None:
    dead = begin(served)
    lend_all(dead, served, 0, 2)
    served.mongo.clock.advance(FENCE_LEASE_TTL_S)
    assert [(one.fence.id.kind, one.interrupted) for one in standing(served.mongo, served.project)] == [(STAGED, True)]
    release_interrupted(served.mongo, served.project, STAGED)
    assert standing(served.mongo, served.project) == ()
    assert counts(served) == dict.fromkeys(FAMILIES, 0)
    assert refused(lend_all, dead, served, 2, 4) is MongoReason.LeaseLost
    assert refused(finish, dead) is MongoReason.LeaseLost
    assert refused(release_interrupted, served.mongo, served.project, STAGED) is FenceReason.FenceUnknown
    served.backfill_all()
    assert_right(served, served=True)


def test_whoever_leaves_early_lets_the_next_one_in_at_once(served: Library) -> None:
    with pytest.raises(RuntimeError), underway(begin(served)):
        raise RuntimeError
    assert counts(served) == dict.fromkeys(FAMILIES, 1)
    assert begin(served).resumed


def test_a_project_that_comes_under_statistics_meanwhile_is_fenced_from_then_on(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as plain:
        held = begin(plain)
        lend_all(held, plain, 0, 1)
        assert plain.mongo.collection(GUARD).count_documents({}) == 0
        plain.gate(enabled=True)
        plain.pass_grace()
        lend_all(begin(plain), plain, 1, 2)  # its lease ran out with the grace; the same operation goes on
        assert counts(plain) == dict.fromkeys(FAMILIES, 1)
        assert refused(plain.rebuild) is ServeReason.FenceActive
        again = begin_after_expiry(plain)
        lend_all(again, plain, 2, 3)
        assert counts(plain) == dict.fromkeys(FAMILIES, 1)
        finish(again)
        assert counts(plain) == dict.fromkeys(FAMILIES, 0)
        plain.backfill_all()
        assert_right(plain, served=True)


def begin_after_expiry(of: Library) -> Held:
    of.mongo.clock.advance(FENCE_LEASE_TTL_S)
    return begin(of)


def test_two_kinds_at_once_are_counted_twice_and_the_last_one_out_leaves_none(served: Library) -> None:
    one = begin(served)
    other = admit(served.host, LIBRARY, served.project, Asked(FenceKind.SEARCH_IMPORT, frozenset({SHELVES}), {}))
    assert counts(served) == {SHELVES: 2, LOANS: 1, VISITS: 1}
    finish(one)
    assert counts(served) == {SHELVES: 1, LOANS: 0, VISITS: 0}
    assert refused(served.rebuild) is ServeReason.FenceActive
    finish(other)
    served.backfill_all()
    assert_right(served, served=True)


def test_an_opening_meanwhile_does_not_forget_the_fence(served: Library) -> None:
    held = begin(served)
    served.gate(enabled=False)
    served.gate(enabled=True)
    served.mongo.clock.advance(30)
    assert counts(served) == dict.fromkeys(FAMILIES, 1)
    finish(held)
    assert counts(served) == dict.fromkeys(FAMILIES, 0)


def test_a_host_that_excludes_the_project_begins_nothing(served: Library) -> None:
    with host_of(library_settings(served.mongo.settings)) as other:
        asked = Asked(STAGED, frozenset(FAMILIES), {})
        assert refused(admit, other, LIBRARY, served.project, asked) is SaveReason.GateSkew
    assert served.mongo.collection(FENCE).count_documents({}) == 0


def test_an_edit_that_ends_an_operation_commits_with_its_end(served: Library) -> None:
    held = begin(served)
    edited = finish(held, Set({"Visitors": ["ann", "bob", "cy"]}))
    assert edited is not None
    assert edited.scopes == ((VISITS, "visitor/cy"),)
    assert counts(served) == dict.fromkeys(FAMILIES, 0)
    served.backfill_all()
    assert_right(served, served=True)


# --- operations that hide the source ---------------------------------------------------------------------------------


def test_a_rewrite_edits_hides_rewrites_and_shows_again(served: Library) -> None:
    done = label(served, 11)
    assert (done.visited, done.changed, done.resumed) == (6, 6, False)
    assert done.edited is not None
    assert done.edited.families == tuple(sorted(FAMILIES))
    books = list(served.mongo.collection(BOOKS).find())
    assert {(book["Label"], book["Audit"]["Version"]) for book in books} == {("entitled to 11", 1)}
    assert all("__Rewritten" not in book for book in books)
    assert standing(served.mongo, served.project) == ()
    assert served.control().get("InclusionRecalculationToken") is None
    served.backfill_all()
    assert_right(served, served=True)
    again = label(served, 11)
    assert (again.visited, again.changed) == (6, 0)
    assert list(served.mongo.collection(BOOKS).find()) == books, "what is right already keeps its version"
    assert_right(served, served=True)


def half_done(of: Library, entitled: int = 11) -> Held:
    """A rewrite whose owner has died right after its admission."""
    intent = {"entitled": entitled}
    held = admit(of.host, LABELLING, of.project, Asked(HIDING, frozenset(), intent, Set({"Entitled": entitled})))
    of.mongo.clock.advance(FENCE_LEASE_TTL_S)
    return held


def test_while_the_source_is_hidden_readers_are_refused_saves_stale_and_rebuilds_refuse(served: Library) -> None:
    admit(served.host, LABELLING, served.project, Asked(HIDING, frozenset(), {}, None))
    assert refused(served.read) is ServeReason.SourceVisibilityFenced
    assert ServeReason.SourceVisibilityFenced.http_status == 503
    assert served.guard(LOANS)["State"] == "Fresh"
    served.lend(served.books[0])
    assert {served.guard(family)["State"] for family in FAMILIES} == {"Stale"}
    assert refused(served.rebuild) is ServeReason.SourceVisibilityFenced
    served.mongo.clock.advance(FENCE_LEASE_TTL_S)
    assert refused(release_interrupted, served.mongo, served.project, HIDING) is FenceReason.FenceMustComplete
    assert refused(served.read) is ServeReason.SourceVisibilityFenced
    complete(served.host, LABELLING, served.project, HIDING)
    assert_right(served, served=False)
    served.backfill_all()
    assert_right(served, served=True)


def test_a_step_behind_a_hidden_source_is_in_no_save_s_way(served: Library) -> None:
    """All saves of a project write its clocks; a step that wrote them too would make each of them lose."""
    held = admit(served.host, LABELLING, served.project, Asked(HIDING, frozenset(), {}, None))

    def save_meanwhile(session: ClientSession) -> Progress:
        served.mongo.collection(BOOKS).update_many({"_id": served.books[1]}, {"$set": {"Label": "x"}}, session=session)
        served.lend(served.books[0])
        return {"visited": 1}

    assert chunk(held, save_meanwhile) == {"visited": 1}


def test_an_interrupted_rewrite_is_completed_by_its_repetition(served: Library) -> None:
    dead = half_done(served)
    done = label(served, 11)
    assert (done.resumed, done.edited, done.changed) == (True, None, 6)
    assert_right(served, served=False)
    assert refused(finish, dead) is MongoReason.LeaseLost


def test_an_interrupted_rewrite_is_completed_before_another_begins(served: Library) -> None:
    half_done(served, 11)
    done = label(served, 12)
    assert (done.resumed, done.changed) == (False, 6)
    books = list(served.mongo.collection(BOOKS).find())
    assert {(book["Label"], book["Audit"]["Version"]) for book in books} == {("entitled to 12", 2)}


def test_a_token_is_cleared_by_the_operation_that_set_it_and_no_other(served: Library) -> None:
    half_done(served)
    served.set_control(InclusionRecalculationToken="of somebody else")
    with pytest.raises(Exception, match="not the one that this operation set"):
        complete(served.host, LABELLING, served.project, HIDING)
    assert served.control()["InclusionRecalculationToken"] == "of somebody else"


def test_a_token_that_nobody_here_knows_lets_no_rewrite_begin(served: Library) -> None:
    served.set_control(InclusionRecalculationToken="of somebody else")
    before = served.statistics()
    assert refused(label, served, 11) is ServeReason.SourceVisibilityFenced
    assert served.statistics() == before


def test_a_rewrite_visits_a_chunk_at_a_time_and_goes_on_where_it_was(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = FENCE_CHUNK_DOCS_MAX + 1
    with served_library(emptied, books=books) as wide:
        steps: list[Any] = []
        real = chunk

        def counted(*arguments: Any) -> Any:
            steps.append(real(*arguments))
            return steps[-1]

        monkeypatch.setattr("statlib.statistics.rewrites.chunk", counted)
        label(wide, 11)
        assert [step["visited"] for step in steps] == [FENCE_CHUNK_DOCS_MAX, books]
        assert [step["changed"] for step in steps] == [FENCE_CHUNK_DOCS_MAX, books]


def test_clients_are_told_when_a_hidden_source_is_shown_again(served: Library) -> None:
    label(served, 11)
    revision = served.control()["ClientInvalidationRevision"]
    slots = served.mongo.collection(OUTBOX).find({"_id.ProjectId": served.project})
    assert {slot["_id"]["Family"]: slot["ClientInvalidationRevision"] for slot in slots} == dict.fromkeys(
        FAMILIES, revision
    )


def test_a_project_without_statistics_is_rewritten_without_a_token(emptied: Settings) -> None:
    with library(emptied, under_statistics=False) as plain:
        done = label(plain, 11)
        assert done.changed == 6
        assert plain.read().values[SHELVES] == plain.truth(SHELVES)


def test_edits_go_on_while_the_source_is_hidden(served: Library) -> None:
    half_done(served)
    edit_library(served, Visitors=["ann"])
    rewrite(served.host, LABELLING, served.project, HIDING, intent={"entitled": 11})
    assert_right(served)
