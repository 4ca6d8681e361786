"""Edits of a review and operations over its studies: refused typed, or exact for every scope of all nine families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.review import edits
from statlib.review.bulk import DecisionRow, update_studies
from statlib.review.catalogue import REVIEW
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    AnswerKind,
    Search,
    StageKind,
)
from statlib.review.edit_reasons import EditReason
from statlib.review.edits import Edit, Renaming, SetOptions, SetThreshold, edit_project, set_options, set_threshold
from statlib.review.reasons import ReviewReason
from statlib.review.screening import Decision
from statlib.review.searches import import_search, remove_search
from statlib.statistics.bounds import FENCE_CHUNK_DOCS_MAX, FENCE_LEASE_TTL_S
from statlib.statistics.documents import FenceKind, State
from statlib.statistics.fences import Asked, admit, chunk, release_interrupted, standing
from statlib.statistics.reasons import FenceReason, OperateReason, ServeReason
from tests.edited_reviews import AT, COLOUR, assert_right, backfilled, new_studies, populate, populated, renaming
from tests.reviews import ALL_FAMILIES, JOINED, Review, review


@pytest.fixture
def served(emptied: Settings) -> Iterator[Review]:
    """Every scope of every family served."""
    with populated(emptied) as opened:
        populate(opened)
        backfilled(opened)
        yield opened


def stale(of: Review) -> dict[str, set[str] | str]:
    """What is Stale: a family whole, or scopes of it."""
    found: dict[str, set[str] | str] = {}
    for guard in of.mongo.collection("pmProjectStatisticsGuard").find({"_id.ProjectId": of.project}):
        if guard["State"] != State.FRESH.value:
            found[guard["_id"]["Family"]] = "whole"
    rows = of.mongo.collection("pmProjectStatisticsRow").find({"ProjectId": of.project, "State": "Stale"})
    for row in rows:
        scopes = found.setdefault(row["Family"], set())
        if isinstance(scopes, set):
            scopes.add(row["Scope"])
    return found


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> Reason:
    with pytest.raises(Refusal) as refusal:
        call(*arguments, **options)
    return refusal.value.reason


def info(of: Review) -> dict[UUID, dict[str, Any]]:
    return {study["_id"]: study["InclusionInfo"] for study in of.stored_studies()}


CLASSES = {
    "ProjectScreening",
    "MembershipScreening",
    "ReviewerScreening",
    "StageAnnotation",
    "MembershipStageAnnotation",
    "DomainReconciliation",
    "ReviewerAnnotation",
}


# --- edits of one transaction ----------------------------------------------------------------------------------------


def test_a_target_stales_what_is_decided_by_it_on_that_stage(served: Review) -> None:
    first = served.stages[0]
    edit_project(served.host, served.project, edits.SetTarget(stage=first, target=1))
    assert stale(served) == {
        "DomainReconciliation": {f"stage/{first}"},
        "ReviewerAnnotation": {f"stage/{first}/member/{member}" for member in served.members},
    }
    assert_right(served, served=False)
    backfilled(served)


def test_a_stage_that_is_added_needs_its_own_scopes_and_no_other(served: Review) -> None:
    new = edits.AddStage(stage=uuid4(), name="third", stage_kind=StageKind.ANNOTATION, target=1)
    edited = edit_project(served.host, served.project, new)
    assert edited.families == ()
    assert {family for family, _ in edited.scopes} == {
        "StageAnnotation",
        "MembershipStageAnnotation",
        "DomainReconciliation",
        "ReviewerAnnotation",
    }
    assert all(scope.startswith(f"stage/{new.stage}") for _, scope in edited.scopes)
    assert stale(served) == {}
    assert served.read_all().reason is ServeReason.RowMissing
    backfilled(served)
    edit_project(served.host, served.project, edits.RemoveStage(stage=new.stage))
    assert_right(served, served=True)


def test_a_member_who_leaves_takes_their_scopes_along_and_no_sibling(served: Review) -> None:
    gone = served.members[0]
    edit_project(served.host, served.project, edits.Leave(investigator=gone))
    staled = stale(served)
    assert set(staled) == {
        "MembershipScreening",
        "ReviewerScreening",
        "MembershipStageAnnotation",
        "ReviewerAnnotation",
    }
    assert all(str(gone) in scope for scopes in staled.values() for scope in scopes)
    assert_right(served, served=True)


def test_a_member_who_leaves_and_comes_back_across_a_crossing_is_never_served_wrong(served: Review) -> None:
    gone = served.members[0]
    edit_project(served.host, served.project, edits.Leave(investigator=gone))
    study = next(s["_id"] for s in served.stored_studies() if len(s["Screenings"]) == 1)
    for person in (uuid4(), uuid4()):
        served.writer.submit(study, person, Decision.INCLUDE)
        assert_right(served)
    served.writer.submit(study, gone, Decision.EXCLUDE)
    assert_right(served)
    edit_project(served.host, served.project, edits.Join(investigator=gone, name="back"))
    assert_right(served, served=False)
    backfilled(served)
    member = next(m for m in served.stored_project()["Memberships"] if m["InvestigatorId"] == gone)
    assert member["JoinedAtUtc"] > JOINED


def test_names_and_texts_stale_nothing(served: Review) -> None:
    changes: list[Edit] = [
        edits.RenameProject(name="renamed"),
        edits.RenameStage(stage=served.stages[0], name="renamed"),
        edits.RenameSearch(search=served.searches[0], name="renamed"),
        edits.RewordQuestion(question=COLOUR.id, text="Which colour?"),
    ]
    for change in changes:
        edited = edit_project(served.host, served.project, change)
        assert (edited.changed, edited.families, edited.scopes) == (True, (), ())
        assert not edit_project(served.host, served.project, change).changed
    project = served.stored_project()
    assert project["Audit"]["Version"] == len(changes)
    assert project["Name"] == "renamed"
    assert [s["Name"] for s in project["Stages"]] == ["renamed", "second"]
    assert_right(served, served=True)


def test_questions_come_and_go_as_long_as_nobody_answered_them(served: Review) -> None:
    new = edits.AddQuestion(question=uuid4(), stage=served.stages[1], text="How many?", answer=AnswerKind.INTEGER)
    edit_project(served.host, served.project, new)
    assert [q["Text"] for q in served.stored_project()["Questions"]] == ["Colour?", "How many?"]
    edit_project(served.host, served.project, edits.RemoveQuestion(question=new.question))
    assert [q["Text"] for q in served.stored_project()["Questions"]] == ["Colour?"]
    assert_right(served, served=True)


UNKNOWN = uuid4()
REFUSED: dict[str, tuple[Callable[[Review], Edit], Reason]] = {
    "stage there": (
        lambda of: edits.AddStage(stage=of.stages[0], name="x", stage_kind=StageKind.ANNOTATION),
        EditReason.AlreadyThere,
    ),
    "stage unknown": (lambda of: edits.SetTarget(stage=UNKNOWN, target=1), ReviewReason.StageUnknown),
    "stage to rename unknown": (lambda of: edits.RenameStage(stage=UNKNOWN, name="x"), ReviewReason.StageUnknown),
    "stage with sessions": (lambda of: edits.RemoveStage(stage=of.stages[0]), EditReason.StageInUse),
    "member there": (lambda of: edits.Join(investigator=of.members[0]), EditReason.AlreadyThere),
    "no member": (lambda of: edits.Leave(investigator=UNKNOWN), EditReason.NotAMember),
    "question there": (
        lambda of: edits.AddQuestion(question=COLOUR.id, stage=of.stages[0], text="x", answer=AnswerKind.TEXT),
        EditReason.AlreadyThere,
    ),
    "question of no stage": (
        lambda of: edits.AddQuestion(question=UNKNOWN, stage=UNKNOWN, text="x", answer=AnswerKind.TEXT),
        ReviewReason.StageUnknown,
    ),
    "choice without options": (
        lambda of: edits.AddQuestion(question=UNKNOWN, stage=of.stages[0], text="x", answer=AnswerKind.CHOICE),
        EditReason.OptionsInvalid,
    ),
    "options of no choice": (
        lambda of: edits.AddQuestion(
            question=UNKNOWN, stage=of.stages[0], text="x", answer=AnswerKind.TEXT, options=("a",)
        ),
        EditReason.OptionsInvalid,
    ),
    "one option under two spellings": (
        lambda of: edits.AddQuestion(
            question=UNKNOWN,
            stage=of.stages[0],
            text="x",
            answer=AnswerKind.CHOICE,
            options=("caf\u00e9", "cafe\u0301"),
        ),
        EditReason.OptionsInvalid,
    ),
    "question unknown": (lambda of: edits.RewordQuestion(question=UNKNOWN, text="x"), EditReason.QuestionUnknown),
    "question answered": (lambda of: edits.RemoveQuestion(question=COLOUR.id), EditReason.QuestionAnswered),
    "search unknown": (lambda of: edits.RenameSearch(search=UNKNOWN, name="x"), EditReason.SearchUnknown),
}


def test_what_cannot_be_edited_is_refused_and_changes_nothing(served: Review) -> None:
    before, project = served.snapshot_of_statistics(), served.stored_project()
    for name, (change, reason) in REFUSED.items():
        assert refused(edit_project, served.host, served.project, change(served)) is reason, name
    assert served.snapshot_of_statistics() == before
    assert served.stored_project() == project


def test_a_stage_that_only_holds_a_reservation_stays(served: Review) -> None:
    served.mongo.collection(STUDIES).update_many({}, {"$set": {"Sessions": []}})
    removing = edits.RemoveStage(stage=served.stages[1])
    assert refused(edit_project, served.host, served.project, removing) is EditReason.StageInUse
    served.mongo.collection(STUDIES).update_many({}, {"$set": {"SlotReservations": []}})
    assert edit_project(served.host, served.project, removing).changed


def test_a_stage_goes_with_its_questions(served: Review) -> None:
    served.mongo.collection(STUDIES).update_many({}, {"$set": {"Sessions": [], "SlotReservations": []}})
    edit_project(served.host, served.project, edits.RemoveStage(stage=served.stages[0]))
    assert served.stored_project()["Questions"] == []


def test_only_an_annotation_stage_asks_questions(served: Review) -> None:
    screening = edits.AddStage(stage=uuid4(), name="screening", stage_kind=StageKind.SCREENING)
    edit_project(served.host, served.project, screening)
    asking = edits.AddQuestion(question=uuid4(), stage=screening.stage, text="x", answer=AnswerKind.TEXT)
    assert refused(edit_project, served.host, served.project, asking) is ReviewReason.NotAnnotationStage


def test_fields_that_only_another_release_knows_survive_an_edit(served: Review) -> None:
    served.mongo.collection(PROJECTS).update_one(
        {"_id": served.project}, {"$set": {"Stages.0.Colour": "green", "AgreementThreshold.Note": "kept", "Extra": 1}}
    )
    edit_project(served.host, served.project, edits.SetTarget(stage=served.stages[0], target=3))
    set_threshold(served.host, served.project, SetThreshold(min_screenings=1, agreement_ratio=0.6))
    project = served.stored_project()
    assert (project["Stages"][0]["Colour"], project["AgreementThreshold"]["Note"], project["Extra"]) == (
        "green",
        "kept",
        1,
    )


@pytest.mark.parametrize("invalid", [{"min_screenings": 0}, {"agreement_ratio": 0.5}, {"agreement_ratio": 1.01}])
def test_a_threshold_out_of_range_cannot_be_asked_for(invalid: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SetThreshold(**{"min_screenings": 2, "agreement_ratio": 0.66, **invalid})


# --- the threshold ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [(1, 0.51), (2, 1.0), (3, 0.6), (4, 0.75)])
def test_a_threshold_reclassifies_every_study_and_its_copy(served: Review, threshold: tuple[int, float]) -> None:
    asked = SetThreshold(min_screenings=threshold[0], agreement_ratio=threshold[1])
    versions = {study["_id"]: study["Audit"]["Version"] for study in served.stored_studies()}
    before = info(served)
    done = set_threshold(served.host, served.project, asked)
    assert done.edited is not None
    assert set(done.edited.families) == CLASSES
    changed = {id_ for id_, one in info(served).items() if one != before[id_]}
    assert done.changed == len(changed)
    assert {id_ for id_, version in versions.items() if served.study(id_)["Audit"]["Version"] != version} == changed, (
        "what was right already keeps its version"
    )
    assert_right(served, served=False)
    backfilled(served)
    for study in served.stored_studies():
        n, i = len(study["Screenings"]), sum(s["Included"] for s in study["Screenings"])
        assert study["InclusionInfo"] == {"Class": expected_class(n, i, *threshold), "Screened": n, "Included": i}


def expected_class(n: int, i: int, least: int, ratio: float) -> str:
    if n < least or n == 0:
        return "Undecided"
    if i / n >= ratio:
        return "Included"
    return "Excluded" if (n - i) / n >= ratio else "Undecided"


def test_the_threshold_that_holds_recalculates_and_stales_nothing(served: Review) -> None:
    served.mongo.collection(STUDIES).update_one({"_id": served.studies[4]}, {"$set": {"InclusionInfo.Class": "Wrong"}})
    done = set_threshold(served.host, served.project, SetThreshold(min_screenings=2, agreement_ratio=0.66))
    assert (done.visited, done.changed) == (8, 1)
    assert stale(served) == {}
    assert_right(served, served=True)


def test_a_threshold_that_returns_revives_nothing(served: Review) -> None:
    set_threshold(served.host, served.project, SetThreshold(min_screenings=1, agreement_ratio=0.66))
    served.writer.submit(served.studies[0], served.members[0], Decision.INCLUDE)
    set_threshold(served.host, served.project, SetThreshold(min_screenings=2, agreement_ratio=0.66))
    assert_right(served, served=False)
    backfilled(served)


# --- options ---------------------------------------------------------------------------------------------------------


def keys(of: Review) -> dict[str, int]:
    counted: dict[str, int] = {}
    for study in of.stored_studies():
        for session in study["Sessions"]:
            for answer in session["Answers"]:
                assert answer["Value"] == answer["Key"]
                counted[answer["Key"]] = counted.get(answer["Key"], 0) + 1
    return counted


def test_renamed_options_rename_their_answers_in_started_sessions_too(served: Review) -> None:
    before = keys(served)
    asked = SetOptions(question=COLOUR.id, options=("$crimson", "blue", "green"), renamed=renaming(red="$crimson"))
    done = set_options(served.host, served.project, asked)
    assert done.edited is not None
    assert keys(served) == {"$crimson": before["red"], "blue": before["blue"]}
    assert served.stored_project()["Questions"][0]["Options"] == ["$crimson", "blue", "green"]
    assert stale(served) == {"QuestionAnswers": "whole"}
    backfilled(served)
    again = set_options(served.host, served.project, asked)
    assert (again.changed, again.edited and again.edited.changed) == (0, False)


def test_options_may_be_merged_and_unanswered_ones_dropped(served: Review) -> None:
    total = sum(keys(served).values())
    set_options(
        served.host,
        served.project,
        SetOptions(question=COLOUR.id, options=("any",), renamed=renaming(red="any", blue="any")),
    )
    assert keys(served) == {"any": total}
    set_options(served.host, served.project, SetOptions(question=COLOUR.id, options=("any", "none")))
    set_options(served.host, served.project, SetOptions(question=COLOUR.id, options=("any",)))
    assert served.stored_project()["Questions"][0]["Options"] == ["any"]
    backfilled(served)


@pytest.mark.parametrize(
    ("options", "renamed", "reason"),
    [
        (("red",), {}, EditReason.OptionAnswered),
        (("blue", "red"), {"red": "blue", "blue": "red"}, EditReason.NameReused),
        (("crimson", "blue", "red"), {"red": "crimson"}, EditReason.NameReused),
        (("red", "blue"), {"green": "red"}, None),
        (("red", "blue", "teal"), {"green": "teal"}, EditReason.OptionsInvalid),
        (("blue",), {"red": "crimson"}, EditReason.OptionsInvalid),
        ((), {}, EditReason.OptionsInvalid),
        (("red", "red", "blue"), {}, EditReason.OptionsInvalid),
    ],
)
def test_options_that_would_lose_or_confuse_answers_are_refused(
    served: Review, options: tuple[str, ...], renamed: dict[str, str], reason: Reason | None
) -> None:
    asked = SetOptions(question=COLOUR.id, options=options, renamed=renaming(**renamed))
    before = served.snapshot_of_statistics()
    if reason is None:
        assert set_options(served.host, served.project, asked).changed == 0
        return
    assert refused(set_options, served.host, served.project, asked) is reason
    assert served.snapshot_of_statistics() == before
    assert served.read_all().reason is None


def test_an_option_that_is_renamed_twice_is_refused_however_it_is_spelt(served: Review) -> None:
    twice = (
        Renaming(old="re\N{COMBINING ACUTE ACCENT}d", new="a"),
        Renaming(old="r\N{LATIN SMALL LETTER E WITH ACUTE}d", new="b"),
    )
    asked = SetOptions(question=COLOUR.id, options=("a", "b", "red", "blue"), renamed=twice)
    assert refused(set_options, served.host, served.project, asked) is EditReason.OptionsInvalid


# --- bulk updates ----------------------------------------------------------------------------------------------------


def test_a_bulk_update_applies_what_it_can_and_names_what_it_cannot(served: Review) -> None:
    ann, bob = served.members[:2]
    rows = [
        DecisionRow(served.studies[0], ann, Decision.INCLUDE, AT),
        DecisionRow(served.studies[0], bob, Decision.INCLUDE),
        DecisionRow(UNKNOWN, ann, Decision.INCLUDE),
        DecisionRow(served.studies[0], ann, Decision.EXCLUDE),
        DecisionRow(served.studies[5], ann, Decision.RETRACT),
        DecisionRow(served.studies[1], served.members[2], Decision.RETRACT),
    ]
    done = update_studies(served.host, served.project, rows)
    assert (done.rows, done.applied, done.unchanged) == (6, 2, 2)
    assert [(one.row, one.reason) for one in done.refused] == [
        (3, EditReason.StudyUnknown),
        (4, EditReason.RowRepeated),
    ]
    study = served.study(served.studies[0])
    assert study["InclusionInfo"] == {"Class": "Included", "Screened": 2, "Included": 2}
    assert study["Audit"]["Version"] == 1, "one write, however many rows"
    assert study["Screenings"][0]["AtUtc"] == AT
    assert set(stale(served)) == CLASSES
    assert_right(served, served=False)
    backfilled(served)
    again = update_studies(served.host, served.project, rows)
    assert (again.applied, again.unchanged) == (0, 4)
    assert served.study(served.studies[0])["Audit"]["Version"] == 1


def test_an_interrupted_bulk_update_goes_on_after_its_last_committed_row(
    served: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statlib.review.bulk.FENCE_CHUNK_DOCS_MAX", 2)
    rows = [DecisionRow(study, served.members[1], Decision.INCLUDE) for study in served.studies[:5]]
    steps = 0

    def torn(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise KeyboardInterrupt
        return chunk(*arguments)

    monkeypatch.setattr("statlib.review.bulk.chunk", torn)
    with pytest.raises(KeyboardInterrupt):
        update_studies(served.host, served.project, rows)
    (left,) = standing(served.mongo, served.project)
    assert (left.interrupted, left.fence.progress["next"]) == (True, 2)
    served.writer.submit(served.studies[0], served.members[1], Decision.EXCLUDE)
    done = update_studies(served.host, served.project, rows)
    assert (done.resumed, done.rows, done.applied + done.unchanged) == (True, 5, 5)
    assert served.decisions(served.studies[0])[served.members[1]] is False, "a decision made since is not undone"
    assert standing(served.mongo, served.project) == ()
    backfilled(served)


def test_other_rows_take_an_interrupted_update_s_place_and_say_so(served: Review) -> None:
    asked = Asked(FenceKind.BULK_STUDY_UPDATE, frozenset(CLASSES), {"rows": 3, "digest": "x"})
    admit(served.host, REVIEW, served.project, asked)
    rows = [DecisionRow(served.studies[0], served.members[0], Decision.INCLUDE)]
    assert refused(update_studies, served.host, served.project, rows) is FenceReason.FenceHeld
    served.mongo.clock.advance(FENCE_LEASE_TTL_S)
    done = update_studies(served.host, served.project, rows)
    assert done.abandoned == {"rows": 3, "digest": "x"}
    assert not done.resumed
    backfilled(served)


# --- searches --------------------------------------------------------------------------------------------------------


def test_a_search_is_imported_with_its_studies_and_removed_with_them(served: Review) -> None:
    search = Search(id=uuid4(), name="third", source="Somewhere")
    studies = new_studies(3)
    taken = studies[1].model_copy(update={"id": served.studies[0]})
    done = import_search(served.host, served.project, search, [*studies, taken])
    assert (done.inserted, done.present, done.elsewhere, done.complete) == (3, 0, (served.studies[0],), True)
    assert {served.study(s.id)["ProjectId"] for s in studies} == {served.project}
    assert served.study(served.studies[0])["SearchId"] != search.id
    stored = served.stored_project()["Searches"][-1]
    assert (stored["Id"], stored["Name"]) == (search.id, "third")
    assert stored["ImportedAtUtc"] is not None
    assert set(stale(served)) == set(ALL_FAMILIES)
    assert_right(served, served=False)
    backfilled(served)
    again = import_search(served.host, served.project, search, studies)
    assert (again.inserted, again.present) == (0, 3)
    removed = remove_search(served.host, served.project, search.id)
    assert removed.studies == 3
    assert [s["Id"] for s in served.stored_project()["Searches"]] == list(served.searches)
    backfilled(served)
    assert remove_search(served.host, served.project, search.id).studies == 3, "a repetition hears what became of it"
    assert refused(remove_search, served.host, served.project, uuid4()) is EditReason.SearchUnknown


def test_removal_takes_what_reviewers_did_there_along(served: Review) -> None:
    remove_search(served.host, served.project, served.searches[0])
    assert len(served.stored_studies()) == 4
    backfilled(served)


def test_an_import_may_come_in_pieces_and_its_search_appears_with_the_last(served: Review) -> None:
    search, studies = Search(id=uuid4(), name="pieces"), new_studies(5)
    first = import_search(served.host, served.project, search, studies[:2], complete=False)
    assert (first.inserted, first.complete, first.resumed) == (2, False, False)
    assert len(served.stored_project()["Searches"]) == 2
    assert_right(served, served=False)
    assert refused(served.backfill, "SearchPopulation") is ServeReason.FenceActive
    assert refused(remove_search, served.host, served.project, search.id) is EditReason.SearchBusy
    last = import_search(served.host, served.project, search, studies[2:])
    assert (last.inserted, last.complete, last.resumed) == (3, True, True)
    backfilled(served)


def test_an_import_that_was_given_up_is_removed_like_a_search(served: Review) -> None:
    search = Search(id=uuid4(), name="given up")
    import_search(served.host, served.project, search, new_studies(2), complete=False)
    release_interrupted(served.mongo, served.project, FenceKind.SEARCH_IMPORT)
    assert remove_search(served.host, served.project, search.id).studies == 2
    backfilled(served)


def test_another_search_under_a_known_id_is_refused(served: Review) -> None:
    other = Search(id=served.searches[0], name="another")
    assert refused(import_search, served.host, served.project, other, []) is EditReason.AlreadyThere
    assert stale(served) == {}


def test_a_search_is_moved_in_bounded_steps(served: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statlib.review.searches.FENCE_CHUNK_DOCS_MAX", 2)
    search = Search(id=uuid4(), name="wide")
    before = served.control()["SourceInvalidationRevision"]
    import_search(served.host, served.project, search, new_studies(5))
    assert served.control()["SourceInvalidationRevision"] == before + 1 + 3 + 2, "admission, steps, edit and end"
    before = served.control()["SourceInvalidationRevision"]
    remove_search(served.host, served.project, search.id)
    assert served.control()["SourceInvalidationRevision"] == before + 1 + 3 + 2
    assert FENCE_CHUNK_DOCS_MAX > 2


# --- projects that are not there, and not under statistics ---------------------------------------------------------


OPERATIONS: dict[str, Callable[[Review, UUID], object]] = {
    "edit": lambda of, project: edit_project(of.host, project, edits.RenameProject(name="x")),
    "threshold": lambda of, project: set_threshold(
        of.host, project, SetThreshold(min_screenings=1, agreement_ratio=0.6)
    ),
    "bulk": lambda of, project: update_studies(of.host, project, []),
    "import": lambda of, project: import_search(of.host, project, Search(id=UNKNOWN, name="x"), new_studies(1)),
    "removal": lambda of, project: remove_search(of.host, project, UNKNOWN),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_project_that_is_not_there_is_not_found(emptied: Settings, operation: str) -> None:
    with review(emptied, studies=0) as opened:
        assert refused(OPERATIONS[operation], opened, uuid4()) is OperateReason.ProjectNotFound
        assert standing(opened.mongo, opened.project) == ()


def test_without_statistics_every_operation_does_its_work_alone(emptied: Settings) -> None:
    with review(emptied, studies=3, under_statistics=False, members=1) as plain:
        for operation in OPERATIONS.values():
            operation(plain, plain.project)
        update_studies(plain.host, plain.project, [DecisionRow(plain.studies[0], plain.members[0], Decision.INCLUDE)])
        assert plain.study(plain.studies[0])["InclusionInfo"]["Class"] == "Included"
        assert plain.mongo.collection("pmProjectStatisticsGuard").count_documents({}) == 0
        assert standing(plain.mongo, plain.project) == ()
