"""An annotation export: sessions by coder, answers of every sort, withdrawals, reconciliations, made-up inclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from statlib.examples import transparency_export as oracle
from statlib.kernel.refusals import Refusal
from statlib.review.annotation import answer_key
from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import AgreementThreshold, AnswerKind, SessionStatus
from statlib.review.loading.annotation.export import AnnotationExport
from statlib.review.loading.annotation.filed import time_format
from statlib.review.loading.annotation.questions import OPTIONS_MAX, asked
from statlib.review.loading.annotation.timeline import RECONCILER
from statlib.review.loading.review import LoadedReview, LoadReason, annotated, annotation_counts, replayed
from statlib.review.screening import ScreeningClass, screening_class, tally
from tests.oracles.real_data import real_review
from tests.unit.review.loading.conftest import ANSWERS_HEADER, WriteExport, told

WriteFolder = Callable[..., Path]

SESSIONS = ("s1,10/13/2023 10:00:00,Ann,a", "s2,10/14/2023 10:00:00,Ben,a", "s3,10/15/2023 10:00:00,Ann,b")
ANSWERS = (
    "s1,10/13/2023 10:00:00,Ann,a,Q1,Yes — openly",
    "s1,10/13/2023 10:00:00,Ann,a,Q2,Yes",
    "s1,10/13/2023 10:00:00,Ann,a,Q3,12",
    "s1,10/13/2023 10:00:00,Ann,a,Q4,some words",
    "s2,10/14/2023 10:00:00,Ben,a,Q1,No — not at all",
    "s2,10/14/2023 10:00:00,Ben,a,Q2,no",
    "s2,10/14/2023 10:00:00,Ben,a,Q3,-3",
    "s3,10/15/2023 10:00:00,Ann,b,Q1,Yes — openly",
)
QUESTIONS = ("Q1,Is it open?,0", "Q2,Is it empirical?,0", "Q3,How many?,0", "Q4,What else?,1")
RECORDS = ("a,First", "b,Second", "c,Third")
RECONCILED_HEADER = "article_id,coder_id_primary,coder_id_secondary,open_primary,open_secondary,open_match,open_agreed"


@pytest.fixture
def write_annotation(write_csv: WriteExport) -> WriteFolder:
    """write_annotation(sessions=…, answers=…, questions=…, records=…, reconciled=…) → folder"""

    def write(
        sessions: tuple[str, ...] = SESSIONS,
        answers: tuple[str, ...] = ANSWERS,
        questions: tuple[str, ...] = QUESTIONS,
        records: tuple[str, ...] = RECORDS,
        reconciled: tuple[str, ...] = (),
    ) -> Path:
        folder = write_csv("answers.csv", ANSWERS_HEADER, *answers)
        if sessions:
            write_csv("sessions.csv", "session_id,submitted_at,coder,article_id", *sessions)
        if questions:
            write_csv("questions.csv", "question_id,question,free_text", *questions)
        if records:
            write_csv("records.csv", "article_id,title", *records)
        if reconciled:
            write_csv("reconciled.csv", RECONCILED_HEADER, *reconciled)
        return folder

    return write


def acts(review: LoadedReview) -> list[tuple[str, str, str]]:
    """(record, coder, act) in order; a reconciliation's in capitals"""
    names = {member.investigator_id: member.name for member in review.project.memberships}
    keys = {study.id: study.to_bson()["SourceKey"] for study in review.studies}
    return [
        (keys[event.study_id], names[event.investigator_id], act.upper() if event.reconciliation else act)
        for event in review.annotations
        for act in [event.act.value.removeprefix("session-")]
    ]


def standing(review: LoadedReview) -> dict[tuple[str, str, bool], tuple[SessionStatus, dict[str, object]]]:
    """{(record, coder, reconciliation): (status, answers by the question's text)} in the end"""
    names = {member.investigator_id: member.name for member in review.project.memberships}
    keys = {study.id: study.to_bson()["SourceKey"] for study in review.studies}
    texts = {question.id: question.text for question in review.project.questions}
    return {
        (keys[study], names[coder], reconciliation): (status, {texts[asked]: value for asked, value in answers.items()})
        for (study, _, coder, reconciliation), (status, answers) in annotated(review.annotations).items()
    }


def test_every_session_is_started_and_completed_by_its_coder_with_its_answers(write_annotation: WriteFolder) -> None:
    review = AnnotationExport().load(write_annotation())
    assert acts(review) == [
        ("a", "Ann", "save"),
        ("a", "Ann", "complete"),
        ("a", "Ben", "save"),
        ("a", "Ben", "complete"),
        ("b", "Ann", "save"),
        ("b", "Ann", "complete"),
    ]
    assert standing(review)["a", "Ann", False] == (
        SessionStatus.COMPLETED,
        {"Is it open?": "Yes — openly", "Is it empirical?": True, "How many?": 12, "What else?": "some words"},
    )
    submitted = review.annotations[1]
    assert submitted.at == datetime(2023, 10, 13, 10, tzinfo=UTC)
    assert submitted.at - review.annotations[0].at == timedelta(minutes=10)
    assert (review.problems, review.remarks, review.untitled) == ((), (), 0)


def test_what_a_question_asks_for_is_told_by_its_answers(write_annotation: WriteFolder) -> None:
    project = AnnotationExport().load(write_annotation()).project
    assert [(question.text, question.answer, question.options) for question in project.questions] == [
        ("Is it open?", AnswerKind.CHOICE, ("Yes — openly", "No — not at all")),
        ("Is it empirical?", AnswerKind.BOOLEAN, ()),
        ("How many?", AnswerKind.INTEGER, ()),
        ("What else?", AnswerKind.TEXT, ()),
    ]
    [stage] = project.stages
    assert {question.stage_id for question in project.questions} == {stage.id}
    assert "Kinds and options of the questions" in project.provenance.simulated


@pytest.mark.parametrize(
    ("given", "kind", "options"),
    [
        (["yes", "No", "YES"], AnswerKind.BOOLEAN, 0),
        (["yes", "no", "unclear", "no"], AnswerKind.CHOICE, 3),
        (["0", "-12"], AnswerKind.INTEGER, 0),
        (["1", "007"], AnswerKind.CHOICE, 2),
        (["1", "9" * 19], AnswerKind.CHOICE, 2),
        ([f"answer {n}" for n in range(OPTIONS_MAX)], AnswerKind.CHOICE, OPTIONS_MAX),
        ([f"answer {n}" for n in range(OPTIONS_MAX + 1)], AnswerKind.TEXT, 0),
        ([], AnswerKind.TEXT, 0),
        (["caf\u00e9", "cafe\u0301"], AnswerKind.CHOICE, 1),
    ],
)
def test_kinds_of_answers(given: list[str], kind: AnswerKind, options: int) -> None:
    question = asked({"q": "?"}, [], {"q": given})["q"]
    assert (question.kind, len(question.options)) == (kind, options)


def test_every_annotated_record_is_included_by_simulation_before_and_the_provenance_says_so(
    write_annotation: WriteFolder,
) -> None:
    review = AnnotationExport().load(write_annotation())
    assert told(review) == [(record, f"Simulated reviewer {n}", "Include") for record in ("a", "b") for n in (1, 2)]
    assert "Inclusions: Simulated reviewer 1 and Simulated reviewer 2 include" in review.project.provenance.simulated
    assert [event.seq for event in review.in_order] == list(range(1, 11))
    assert review.in_order == (*review.events, *review.annotations)


def test_an_excluded_session_is_deleted_when_its_coder_begins_anew(write_annotation: WriteFolder) -> None:
    folder = write_annotation(
        sessions=("s1,10/13/2023 10:00:00,Ann exclude (recoded),a", "s2,10/13/2023 10:05:00,Ann,a"),
        answers=("s1,10/13/2023 10:00:00,Ann exclude (recoded),a,Q2,yes", "s2,10/13/2023 10:05:00,Ann,a,Q2,no"),
    )
    review = AnnotationExport().load(folder)
    assert acts(review) == [("a", "Ann", act) for act in ("save", "complete", "delete", "save", "complete")]
    assert standing(review) == {("a", "Ann", False): (SessionStatus.COMPLETED, {"Is it empirical?": False})}
    assert [event.at for event in review.annotations] == sorted(event.at for event in review.annotations)
    [remark] = review.remarks
    assert str(remark) == "sessions.csv, row 2: is read as a session of Ann that was deleted later"


def test_an_excluded_session_that_nobody_recoded_is_deleted_at_once(write_annotation: WriteFolder) -> None:
    folder = write_annotation(
        sessions=("s1,10/13/2023 10:00:00,Ann excluded,a", *SESSIONS[1:]),
        answers=("s1,10/13/2023 10:00:00,Ann excluded,a,Q2,yes",),
    )
    review = AnnotationExport().load(folder)
    assert acts(review)[:3] == [("a", "Ann", act) for act in ("save", "complete", "delete")]
    assert ("a", "Ann", False) not in standing(review)


def test_a_second_session_of_one_coder_is_an_edit_of_the_first(write_annotation: WriteFolder) -> None:
    folder = write_annotation(
        sessions=("s1,10/13/2023 10:00:00,Ann,a", "s2,10/13/2023 11:00:00,Ann,a"),
        answers=("s1,10/13/2023 10:00:00,Ann,a,Q2,yes", "s2,10/13/2023 11:00:00,Ann,a,Q3,5"),
    )
    review = AnnotationExport().load(folder)
    assert acts(review) == [("a", "Ann", act) for act in ("save", "complete", "save")]
    assert standing(review) == {("a", "Ann", False): (SessionStatus.COMPLETED, {"How many?": 5})}
    assert [str(remark) for remark in review.remarks] == ["sessions.csv, row 3: is read as an edit of Ann's session s1"]


def test_what_was_agreed_on_becomes_a_reconciliation_spelt_as_the_coders_spelt_it(
    write_annotation: WriteFolder,
) -> None:
    folder = write_annotation(
        reconciled=(
            "a,Ann,Ben,Yes openly,No not at all,FALSE,No not at all",
            "b,Ann,Ben,Yes openly,NA,NA,Both",
            "c,Ann,Ben,NA,NA,NA,NA",
        )
    )
    review = AnnotationExport().load(folder)
    assert acts(review)[-2:] == [("b", RECONCILER, "SAVE"), ("b", RECONCILER, "COMPLETE")]
    ended = standing(review)
    assert ended["a", RECONCILER, True] == (SessionStatus.COMPLETED, {"Is it open?": "No — not at all"})
    assert ended["b", RECONCILER, True] == (SessionStatus.COMPLETED, {"Is it open?": "Both"})
    assert ended["c", RECONCILER, True] == (SessionStatus.COMPLETED, {})
    assert review.project.questions[0].options == ("Yes — openly", "No — not at all", "Both")
    assert [str(remark) for remark in review.remarks] == [
        "reconciled.csv, row 4: article_id c was reconciled, and nobody annotated it"
    ]
    assert "Who reconciled, and when" in review.project.provenance.simulated
    assert annotation_counts(review.annotations).reconciliations == 3
    last = max(event.at for event in review.annotations if not event.reconciliation and event.study_id)
    assert review.annotations[-1].at - last == timedelta(minutes=2)


def test_a_reconciled_column_of_no_question_is_left_out_and_named(write_annotation: WriteFolder) -> None:
    folder = write_annotation(reconciled=("a,Ann,Ben,perhaps,never,FALSE,perhaps",))
    review = AnnotationExport().load(folder)
    assert standing(review)["a", RECONCILER, True] == (SessionStatus.COMPLETED, {})
    assert [str(remark) for remark in review.remarks] == [
        "reconciled.csv, row 1: open_agreed is left out: its coders' columns repeat the answers to no question"
    ]


def test_the_file_of_answers_alone_is_enough(write_annotation: WriteFolder) -> None:
    review = AnnotationExport().load(write_annotation(sessions=(), questions=(), records=()))
    assert annotation_counts(review.annotations).candidates == 3
    assert [question.text for question in review.project.questions] == ["Q1", "Q2", "Q3", "Q4"]
    assert (review.untitled, review.problems) == (2, ())
    assert [study.title for study in review.studies] == [f"Article {key} (title not exported)" for key in ("a", "b")]


def test_without_times_sessions_keep_the_order_of_the_file(write_csv: WriteExport) -> None:
    header = "session_id,coder,article_id,question_id,answer"
    review = AnnotationExport().load(write_csv("answers.csv", header, "s2,Ann,a,Q,1", "s1,Ben,a,Q,2"))
    assert [coder for _, coder, _ in acts(review)] == ["Ann", "Ann", "Ben", "Ben"]
    assert "Times of the sessions" in review.project.provenance.simulated


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("s9,10/13/2023 10:00:00,,a", "coder is empty"),
        ("s9,10/13/2023 10:00:00,Ann,", "article_id is empty"),
        ("s1,10/13/2023 10:00:00,Ann,a", "session_id s1 occurs already in row 2"),
        ("s9,31/13/2023 10:00:00,Ann,a", "submitted_at '31/13/2023 10:00:00' is not a time written as month/day/year"),
        ("s9,10/13/2023 10:00:00", "has 2 columns where the header has 4"),
    ],
)
def test_a_session_that_cannot_be_read_is_reported(write_annotation: WriteFolder, row: str, reason: str) -> None:
    review = AnnotationExport().load(write_annotation(sessions=(SESSIONS[0], row, *SESSIONS[1:])))
    assert [str(problem) for problem in review.problems] == [f"sessions.csv, row 3: {reason}"]
    assert annotation_counts(review.annotations).candidates == 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("s1,,Ann,a,Q1,", "answer is empty"),
        ("s1,,Ann,a,Q1,again", "question_id Q1 of session s1 is answered already in row 2"),
        ("s7,,Ann,a,Q1,Yes", "session_id s7 is of no session that could be read"),
        ("s3,,Ann,a,Q2,Yes", "article_id is a, while session s3 is on b"),
        ("s3,,Ben,b,Q2,Yes", "coder is Ben, while session s3 is Ann's"),
        ("s3,,Ann,b,Q9,Yes", "question_id Q9 is no question of the export"),
        ("s3,,Ann", "has 3 columns where the header has 6"),
    ],
)
def test_an_answer_that_cannot_be_read_is_reported(write_annotation: WriteFolder, row: str, reason: str) -> None:
    review = AnnotationExport().load(write_annotation(answers=(*ANSWERS, row)))
    assert [str(problem) for problem in review.problems] == [f"answers.csv, row 10: {reason}"]
    assert annotation_counts(review.annotations).answers == 8


def test_a_record_in_two_files_is_one_study_and_remarked_on(
    write_annotation: WriteFolder, write_csv: WriteExport
) -> None:
    write_csv(
        "search_more.csv", "article_id,title,DOI,journal_name", "a,First again,10.1/x,J", "d,Fourth,10.1/d,Annals"
    )
    review = AnnotationExport().load(write_annotation())
    assert [study.title for study in review.studies] == ["First", "Second", "Third", "Fourth"]
    assert [search.name for search in review.project.searches] == ["records", "search_more"]
    stored = review.studies[-1].to_bson()
    assert (stored["Doi"], stored["Journal"]) == ("10.1/d", "Annals")
    [remark] = review.remarks
    assert (remark.file, remark.row) == ("search_more.csv", 2)


def test_two_files_of_one_sort_are_refused_by_name(write_annotation: WriteFolder, write_csv: WriteExport) -> None:
    write_csv("sessions_2.csv", "session_id,submitted_at,coder,article_id")
    with pytest.raises(Refusal, match=r"more than one file of sessions: sessions\.csv, sessions_2\.csv") as raised:
        AnnotationExport().load(write_annotation())
    assert raised.value.reason is LoadReason.FormatAmbiguous


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2023-10-03 10:50:39", "2023-10-13T10:50:39Z"], "ISO 8601"),
        (["10/3/2023 10:50:39", "10/13/2023 9:00:00"], "month/day/year"),
        (["3/10/2023 10:50:39", "13/10/2023 9:00:00"], "day/month/year"),
        (["3/10/2023 10:50:39"], "month/day/year"),
    ],
)
def test_how_times_are_written_is_told_by_all_of_them(texts: list[str], expected: str) -> None:
    found = time_format(texts)
    assert found.name == expected
    assert all(found.read(text) for text in texts)


@pytest.fixture(scope="module")
def real_folder() -> Path:
    return real_review("hardwicke2023_transparency")


@pytest.fixture(scope="module")
def real(real_folder: Path) -> LoadedReview:
    return AnnotationExport().load(real_folder)


def test_everything_is_read_and_what_is_odd_is_named(real_folder: Path, real: LoadedReview) -> None:
    assert real.problems == ()
    assert {study.to_bson()["SourceKey"] for study in real.studies} == oracle.articles(real_folder)
    assert (len(real.studies), real.untitled) == (800, 1)
    assert [(remark.file, remark.row) for remark in real.remarks] == [
        ("search_prominent.csv", 111),
        *(("sessions.csv", row) for row in (579, 603, 665, 843)),
    ]
    assert "month/day/year" in real.project.provenance.recorded


def test_every_session_as_filed_is_submitted_at_its_time(real_folder: Path, real: LoadedReview) -> None:
    filed = oracle.filed(real_folder)
    assert len(filed) == 983
    submitted = Counter(
        (record, coder, event.at)
        for (record, coder, _), event in zip(acts(real), real.annotations, strict=True)
        if not event.reconciliation and event.answers  # its start answers nothing, its deletion nothing anew
    )
    coders = filed["coder"].str.split(" ").str[0]
    assert submitted == Counter(zip(filed["article_id"], coders, filed["at"].dt.to_pydatetime(), strict=True))


def test_the_sessions_and_reconciliations_that_stand_are_those_that_pandas_counts(
    real_folder: Path, real: LoadedReview
) -> None:
    candidates = oracle.standing(real_folder)
    expected = {(row.article_id, row.coder, False) for row in candidates.itertuples()}
    expected |= {(article, RECONCILER, True) for article in oracle.reconciled_articles(real_folder)}
    ended = standing(real)
    assert set(ended) == expected
    assert {status for status, _ in ended.values()} == {SessionStatus.COMPLETED}
    counts = annotation_counts(real.annotations)
    assert (counts.candidates, counts.reconciliations) == (979, 456)
    assert counts.answers == len(oracle.candidate_answers(real_folder)) + len(oracle.reconciled_answers(real_folder))


def test_answers_per_question_and_value_are_those_that_pandas_counts(real_folder: Path, real: LoadedReview) -> None:
    questions = {question.id: question for question in real.project.questions}
    names = {question: f"Q{number:02}" for number, question in enumerate(questions, 1)}
    counters: Counter[str] = Counter()
    for _, answers in annotated(real.annotations).values():
        for question, value in answers.items():
            key = answer_key(questions[question], value)
            counters[f"{names[question]}/Answered"] += 1
            counters[f"{names[question]}/" + ("Text" if key is None else f"Value/{key}")] += 1
    assert counters == oracle.question_answers(real_folder)


def test_every_annotated_article_ends_included(real: LoadedReview) -> None:
    after = replayed(real.events)
    assert set(after) == {event.study_id for event in real.annotations}
    classes = {screening_class(*tally(screenings), AgreementThreshold()) for screenings in after.values()}
    assert classes == {ScreeningClass.INCLUDED}


def test_no_act_comes_before_what_it_builds_on(real: LoadedReview) -> None:
    there: set[tuple[object, ...]] = set()
    included = {event.study_id: event.seq for event in real.events}
    for event in real.annotations:
        session = (event.study_id, event.investigator_id, event.reconciliation)
        assert included[event.study_id] < event.seq
        assert event.act is SessionAct.SAVE or session in there
        there.discard(session) if event.act is SessionAct.DELETE else there.add(session)
