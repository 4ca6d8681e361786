"""Pages: one coherent bundle each, with derived summaries that equal a naive walk over the stored studies."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.mongo.reasons import MongoReason
from statlib.review import pages
from statlib.review.annotation import answer_key, tallies_after
from statlib.review.documents import (
    PROJECTS,
    STUDIES,
    Answer,
    AnswerKind,
    Question,
    Screening,
    Session,
    SessionStatus,
    SlotReservation,
    Stage,
    StageKind,
    Study,
)
from statlib.review.screening import Decision
from statlib.statistics.reader import Source, read_bundle
from statlib.statistics.reasons import OperateReason, ServeReason
from tests.children import _as_environment
from tests.oracles.project_screening import class_of
from tests.reviews import ALL_FAMILIES, Review, review, stage

AT = datetime(2024, 1, 1, tzinfo=UTC)
FULL_TEXT = stage("full text", target=2)
PILOT = stage("pilot", kind=StageKind.SCREENING, target=1)
QUESTION = Question(
    id=uuid4(),
    stage_id=FULL_TEXT.id,
    text="Was it blinded?",
    answer=AnswerKind.CHOICE,
    options=("yes", "no", "unclear"),
)
STUDIES_HERE = 24


@pytest.fixture
def annotated(emptied: Settings) -> Iterator[Review]:
    """Studies that members and others screened and annotated at random; every family Fresh."""
    with review(
        emptied,
        studies=STUDIES_HERE,
        families=ALL_FAMILIES,
        members=4,
        stages=(FULL_TEXT, PILOT),
        questions=(QUESTION,),
        searches=2,
    ) as found:
        chance = random.Random(11)
        people = [*found.members, uuid4()]
        for study in found.studies:
            found.mongo.collection(STUDIES).replace_one({"_id": study}, _worked_on(found, study, chance, people))
        found.backfill_all()
        yield found


def _worked_on(of: Review, id_: UUID, chance: random.Random, people: list[UUID]) -> dict[str, Any]:
    study = Study.from_bson(of.study(id_))
    screenings = tuple(
        Screening(investigator_id=person, included=chance.random() < 0.7, at_utc=AT)
        for person in chance.sample(people, chance.randrange(4))
    )
    sessions = tuple(
        _session(chance, on, person, reconciliation=n == 2)
        for on in (FULL_TEXT, PILOT)
        for n, person in enumerate(chance.sample(people, chance.randrange(4)))
    )
    reservations = tuple(
        SlotReservation(stage_id=FULL_TEXT.id, investigator_id=person, at_utc=AT)
        for person in chance.sample(people, chance.randrange(2))
    )
    changed = {
        "screenings": screenings,
        "sessions": sessions,
        "slot_reservations": reservations,
        "tallies": tallies_after(study, sessions, reservations),
    }
    return study.model_copy(update=changed).to_bson()


def _session(chance: random.Random, on: Stage, person: UUID, *, reconciliation: bool) -> Session:
    value = chance.choice(QUESTION.options)
    return Session(
        id=uuid4(),
        stage_id=on.id,
        investigator_id=person,
        status=chance.choice(list(SessionStatus)),
        reconciliation=reconciliation,
        answers=(Answer(question_id=QUESTION.id, value=value, key=answer_key(QUESTION, value)),)
        if on is FULL_TEXT
        else (),
        at_utc=AT,
    )


# --- a naive walk over the stored studies ------------------------------------------------------------------------


def decisions(study: dict[str, Any]) -> list[bool]:
    return [screening["Included"] for screening in study["Screenings"]]


def outcome(study: dict[str, Any]) -> str:
    mine = decisions(study)
    return class_of(len(mine), sum(mine), 2, 0.66)


def sessions(study: dict[str, Any], on: UUID, *, of: UUID | None = None) -> list[dict[str, Any]]:
    return [s for s in study["Sessions"] if s["StageId"] == on and of in {None, s["InvestigatorId"]}]


def completed_candidates(study: dict[str, Any], on: UUID) -> int:
    return sum(1 for s in sessions(study, on) if s["Status"] == "Completed" and not s["Reconciliation"])


def included(of: Review) -> list[dict[str, Any]]:
    return [study for study in of.stored_studies() if outcome(study) == "Included"]


# --- pages -------------------------------------------------------------------------------------------------------


def test_stored_and_calculated_counters_of_every_family_are_the_naive_counts(annotated: Review) -> None:
    truth = {family: annotated.truth_of(family) for family in ALL_FAMILIES}
    stored = annotated.read_all()
    annotated.gate(enabled=False)
    calculated = annotated.read_all()
    assert (stored.source, calculated.source) == (Source.MATERIALISED, Source.AUTHORITATIVE)
    assert stored.values == calculated.values == truth


def test_the_project_page_says_how_far_a_review_has_come(annotated: Review) -> None:
    page = pages.project_page(annotated.host, annotated.project)
    assert (page.origin.source, page.origin.reason) == (Source.MATERIALISED, None)
    assert page.origin.checkpoint_identity == annotated.read_all().watermarks.checkpoint_identity
    studies = annotated.stored_studies()
    several = [mine for mine in map(decisions, studies) if len(mine) >= 2]
    settled = [study for study in studies if outcome(study) in {"Included", "Excluded"}]
    assert (page.screening.studies, page.members) == (STUDIES_HERE, 4)
    assert page.screening.progress == len(settled) / STUDIES_HERE
    assert page.screening.agreement == sum(len(set(mine)) == 1 for mine in several) / len(several)
    assert page.screening.decisions_missing == sum(max(0, 2 - len(decisions(study))) for study in studies)
    assert [(line.name, line.studies) for line in page.searches] == [("search 0", 12), ("search 1", 12)]
    assert [of.name for of in page.stages] == ["full text", "pilot"]


def test_the_stage_page_says_what_is_complete_and_what_is_left(annotated: Review) -> None:
    for on, eligible in ((FULL_TEXT, included(annotated)), (PILOT, annotated.stored_studies())):
        page = pages.stage_page(annotated.host, annotated.project, on.id)
        assert page.origin.source is Source.MATERIALISED
        complete = [completed_candidates(study, on.id) for study in eligible]
        target = on.session_count_target
        assert page.stage.eligible == len(eligible)
        assert page.stage.completion == sum(done >= target for done in complete) / len(eligible)
        assert page.stage.sessions_missing == sum(max(0, target - done) for done in complete)
        stands = page.stage.reconciliation
        assert len(eligible) == sum(
            (stands.reconciled, stands.in_progress, stands.awaiting, stands.not_ready, stands.untouched)
        )
        for line in page.members:
            own = [sessions(study, on.id, of=line.member) for study in annotated.stored_studies()]
            candidates = [s for found in own for s in found if not s["Reconciliation"]]
            assert line.annotation.started == len(candidates)
            assert line.annotation.completed == sum(s["Status"] == "Completed" for s in candidates)


def test_the_stage_page_counts_answers_where_it_is_asked_to(annotated: Review) -> None:
    assert pages.stage_page(annotated.host, annotated.project, FULL_TEXT.id).answers == ()
    (found,) = pages.stage_page(annotated.host, annotated.project, FULL_TEXT.id, answers=True).answers
    keys = [
        answer["Key"]
        for study in annotated.stored_studies()
        for session in sessions(study, FULL_TEXT.id)
        if session["Status"] == "Completed"
        for answer in session["Answers"]
    ]
    assert (found.answered, dict(found.values)) == (len(keys), {key: keys.count(key) for key in set(keys)})
    assert pages.stage_page(annotated.host, annotated.project, PILOT.id, answers=True).answers == ()


def test_the_reviewer_page_says_what_somebody_did_and_what_waits_for_them(annotated: Review) -> None:
    for member in annotated.members:
        page = pages.reviewer_page(annotated.host, annotated.project, member)
        assert page.origin.source is Source.MATERIALISED
        mine, waiting, agreed, settled = 0, 0, 0, 0
        for study in annotated.stored_studies():
            own = [s["Included"] for s in study["Screenings"] if s["InvestigatorId"] == member]
            came_to = outcome(study)
            mine += len(own)
            waiting += not own and came_to not in {"Included", "Excluded"}
            settled += bool(own) and came_to in {"Included", "Excluded"}
            agreed += bool(own) and came_to == ("Included" if own[0] else "Excluded")
        assert (page.screening.screened, page.screening.available) == (mine, waiting)
        assert page.screening.progress == mine / (mine + waiting)
        assert page.screening.agreement == (agreed / settled if settled else None)
        for line in page.stages:
            work = line.workload
            assert work.completed + work.in_progress + work.available + work.unavailable == len(included(annotated))
            own_sessions = [
                s for study in included(annotated) for s in sessions(study, line.stage, of=member)
                if not s["Reconciliation"]
            ]  # fmt: skip
            assert work.completed == sum(s["Status"] == "Completed" for s in own_sessions)
            assert work.in_progress == sum(s["Status"] == "Started" for s in own_sessions)


def test_a_page_from_the_source_has_the_same_numbers_and_says_why(annotated: Review) -> None:
    member = annotated.members[0]

    def read() -> list[Any]:
        return [
            pages.project_page(annotated.host, annotated.project),
            pages.stage_page(annotated.host, annotated.project, FULL_TEXT.id, answers=True),
            pages.reviewer_page(annotated.host, annotated.project, member),
        ]

    stored = read()
    annotated.gate(enabled=False)
    for one, other in zip(stored, read(), strict=True):
        assert (other.origin.source, other.origin.reason) == (Source.AUTHORITATIVE, ServeReason.ProjectDisabled)
        assert {**vars_of(one), "origin": None} == {**vars_of(other), "origin": None}


def vars_of(page: Any) -> dict[str, Any]:
    return {name: getattr(page, name) for name in page.__dataclass_fields__}


def test_a_save_leaves_pages_served_and_right(annotated: Review) -> None:
    study = next(study["_id"] for study in annotated.stored_studies() if not study["Screenings"])
    for decision in (Decision.INCLUDE, Decision.EXCLUDE):
        annotated.writer.submit(study, annotated.members[0], decision)
    page = pages.project_page(annotated.host, annotated.project)
    assert page.origin.source is Source.MATERIALISED
    assert page.screening.decisions == sum(len(decisions(study)) for study in annotated.stored_studies())
    reviewer = pages.reviewer_page(annotated.host, annotated.project, annotated.members[0])
    assert reviewer.screening.excluded == sum(
        screening["InvestigatorId"] == annotated.members[0] and not screening["Included"]
        for study in annotated.stored_studies()
        for screening in study["Screenings"]
    )


@pytest.mark.parametrize("page", ["project", "stage", "reviewer"])
def test_a_page_is_one_bundle_between_two_looks_at_the_project(annotated: Review, page: str) -> None:
    host, project = annotated.host, annotated.project
    with counting(annotated.mongo.client) as count:
        if page == "project":
            pages.project_page(host, project)
        elif page == "stage":
            pages.stage_page(host, project, FULL_TEXT.id, answers=True)
        else:
            pages.reviewer_page(host, project, annotated.members[0])
    assert count.names == ("find", "aggregate", "find")


# --- a project that is edited meanwhile ----------------------------------------------------------------------------


def edit_before_each_bundle(of: Review, monkeypatch: pytest.MonkeyPatch, edits: int) -> list[int]:
    """The project's document changes after a page has looked at it, so many times: targets go up by one each time."""
    made: list[int] = []

    def edited(*arguments: Any) -> Any:
        if len(made) < edits:
            made.append(len(made))
            of.mongo.collection(PROJECTS).update_one(
                {"_id": of.project}, {"$inc": {"Stages.$[].SessionCountTarget": 1, "Audit.Version": 1}}
            )
        return read_bundle(*arguments)

    monkeypatch.setattr("statlib.review.pages.read_bundle", edited)
    return made


def test_a_page_of_a_project_that_was_edited_meanwhile_is_read_anew(
    annotated: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = edit_before_each_bundle(annotated, monkeypatch, 2)
    page = pages.stage_page(annotated.host, annotated.project, FULL_TEXT.id)
    assert len(made) == 2
    assert page.stage.target == FULL_TEXT.session_count_target + 2
    assert page.stage.sessions_missing == sum(
        max(0, page.stage.target - completed_candidates(study, FULL_TEXT.id)) for study in included(annotated)
    )


def test_a_page_of_a_project_that_never_rests_is_refused(annotated: Review, monkeypatch: pytest.MonkeyPatch) -> None:
    made = edit_before_each_bundle(annotated, monkeypatch, 100)
    with pytest.raises(Refusal) as refused:
        pages.project_page(annotated.host, annotated.project)
    assert refused.value.reason is MongoReason.Contended
    assert len(made) == pages.PAGE_ROUNDS_MAX


def test_a_stage_that_is_removed_meanwhile_is_unknown_and_not_a_fault(
    annotated: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(*arguments: Any) -> Any:
        annotated.mongo.collection(PROJECTS).update_one({"_id": annotated.project}, {"$set": {"Stages": []}})
        return read_bundle(*arguments)

    monkeypatch.setattr("statlib.review.pages.read_bundle", removed)
    with pytest.raises(Refusal) as refused:
        pages.stage_page(annotated.host, annotated.project, FULL_TEXT.id)
    assert refused.value.reason is OperateReason.ScopeUnknown
    assert pages.project_page(annotated.host, annotated.project).stages == ()


def test_what_the_project_does_not_have_is_refused_by_name(annotated: Review) -> None:
    nobody = uuid4()
    for read in (
        lambda: pages.stage_page(annotated.host, annotated.project, nobody),
        lambda: pages.reviewer_page(annotated.host, annotated.project, nobody),
    ):
        with pytest.raises(Refusal, match=str(nobody)) as refused:
            read()
        assert refused.value.reason is OperateReason.ScopeUnknown
    with pytest.raises(Refusal) as unknown:
        pages.project_page(annotated.host, nobody)
    assert unknown.value.reason is OperateReason.ProjectNotFound


# --- the command -----------------------------------------------------------------------------------------------------


def show(*words: object) -> Result:
    return CliRunner().invoke(main, ["show", *map(str, words)])


@pytest.fixture
def shown(annotated: Review, monkeypatch: pytest.MonkeyPatch) -> Review:
    for name, value in _as_environment(annotated.mongo.settings).items():
        monkeypatch.setenv(name, value)
    annotated.mongo.collection(PROJECTS).update_one(
        {"_id": annotated.project}, {"$set": {"Provenance": {"Simulated": "two reviewers, seed 7"}}}
    )
    return annotated


def test_pages_are_shown_as_tables_with_what_is_simulated_and_where_they_come_from_first(shown: Review) -> None:
    member = shown.members[1]
    for words, title, said in (
        (("project", shown.project), "test", ["full text", "pilot", "search 1", "missing decisions"]),
        (("stage", shown.project, FULL_TEXT.id, "--answers"), "test: full text", ["reviewer 3", "Was it blinded?"]),
        (("reviewer", shown.project, member), "test: reviewer 1", ["settled by others", "pilot"]),
    ):
        result = show(*words)
        assert result.exit_code == 0, result.output
        first, _, simulated, origin, *rest = result.stdout.splitlines()
        assert (first, simulated) == (title, "SIMULATED: two reviewers, seed 7")
        assert origin.startswith("served from storage; checkpoint ")
        assert all(any(text in line for line in rest) for text in said)
        assert max(map(len, result.stdout.splitlines())) <= 120


def test_numbers_stand_below_one_another(shown: Review) -> None:
    lines = show("project", shown.project).stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("Stages"))
    header, *rows = lines[start + 1 : start + 4]
    assert {len(line) for line in (header, *rows)} == {len(header)}
    column = header.index("eligible") + len("eligible")
    page = pages.project_page(shown.host, shown.project)
    assert [row[:column].split()[-1] for row in rows] == [str(of.eligible) for of in page.stages]


def test_json_holds_the_page(shown: Review) -> None:
    value = json.loads(show("stage", shown.project, FULL_TEXT.id, "--json").stdout)
    page = pages.stage_page(shown.host, shown.project, FULL_TEXT.id)
    assert value["stage"]["sessions_missing"] == page.stage.sessions_missing
    assert value["members"][2]["annotation"]["started"] == page.members[2].annotation.started
    assert value["provenance"]["simulated"] == "two reviewers, seed 7"
    assert value["origin"]["checkpoint_identity"] == page.origin.checkpoint_identity
    shown.gate(enabled=False)
    project = json.loads(show("project", shown.project, "--json").stdout)
    assert project["origin"]["reason"] == "ProjectDisabled"
    assert project["threshold"]["min_screenings"] == 2
    assert project["screening"]["classes"]["Included"] == len(included(shown))


def test_an_unknown_stage_is_refused_in_one_line(shown: Review) -> None:
    result = show("stage", shown.project, uuid4())
    assert result.exit_code == 2
    assert "has no stage" in result.stderr
