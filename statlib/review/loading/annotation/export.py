"""The loader of an annotation export: a folder of answers, with sessions, questions, records and reconciled answers.

Only the answers must be there. Who included the records is not in such an export: two simulated reviewers include
every record that anybody annotated, which the provenance says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.annotation.filed import (
    ANSWER_COLUMNS,
    ARTICLE,
    QUESTION,
    SESSION,
    SESSION_COLUMNS,
    Filed,
    TimeFormat,
    read_answers,
    read_sessions,
)
from statlib.review.loading.annotation.questions import Asked, asked
from statlib.review.loading.annotation.reconciled import Reconciled, is_reconciled, read_reconciled
from statlib.review.loading.annotation.timeline import RECONCILER, STARTED_BEFORE, Timeline, timeline
from statlib.review.loading.recording import STARTED_AT, THRESHOLD_DEFAULT, Recorder, made_up_time
from statlib.review.loading.review import LoadedReview, Naming
from statlib.review.loading.tables import Table, headers, only, others, read_table
from statlib.review.screening import Decision

FORMAT = "annotation"
STAGE = "Annotation"
INCLUDERS = ("Simulated reviewer 1", "Simulated reviewer 2")
QUESTION_TEXT, FREE_TEXT = "question", ("free_text", "free_text_redacted")


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one export, by what they hold."""

    answers: Table
    sessions: Table | None
    questions: Table | None
    reconciled: Table | None
    records: tuple[Table, ...]

    @property
    def all(self) -> tuple[Table, ...]:
        there = (self.answers, self.sessions, self.questions, self.reconciled, *self.records)
        return tuple(table for table in there if table is not None)


@dataclass(frozen=True, slots=True)
class AnnotationExport:
    """Loader of a folder with one such export. ``name`` defaults to the folder's."""

    name: str | None = None
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "annotation export"

    @property
    def expects(self) -> str:
        return (
            f"a file of answers with columns {', '.join(ANSWER_COLUMNS)} and, if any, files of sessions ({SESSION}), "
            f"of questions ({QUESTION}, {QUESTION_TEXT}), of records ({ARTICLE}, title) and of reconciled answers "
            f"({ARTICLE}, …_agreed)"
        )

    def recognises(self, folder: Path) -> bool:
        return any(_is_answers(header) for header in headers(folder).values())

    def load(self, folder: Path) -> LoadedReview:
        """Every well-formed session with its answers, as acts on sessions, after the simulated inclusions.

        A record that only sessions mention is loaded under a placeholder title. Refuses FormatUnknown and
        FormatAmbiguous unless exactly one file holds answers and at most one each sessions, questions and reconciled
        answers; ExportUnreadable for one that cannot be read.
        """
        files = self._files(folder)
        recorder = Recorder(Naming(FORMAT, self.name or folder.resolve().name))
        for table in files.records:
            _read_records(table, recorder)
        described = recorder.studies
        texts, in_words = _read_questions(files.questions)
        sessions, times = read_sessions(files.sessions or read_table(folder / files.answers.name))
        read_answers(files.answers, sessions, texts or None)
        filed = list(sessions.values())
        texts = texts or {key: key for session in filed for key in session.answers}
        reconciled = _read_reconciled(files.reconciled, filed, texts)
        told = timeline(filed, reconciled)
        for row, remark in told.remarks:
            (files.sessions or files.answers).remark(row, remark)
        _record(recorder, told, _asked(texts, in_words, filed, reconciled))
        return recorder.finish(
            _provenance(files, times),
            self.threshold,
            problems=[problem for table in files.all for problem in table.problems],
            remarks=[remark for table in files.all for remark in table.remarks],
            untitled=recorder.studies - described,
            unread=others(headers(folder), *(table.name for table in files.all)),
        )

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        return (self.load(folder),)

    def _files(self, folder: Path) -> _Files:
        found = headers(folder)

        def at_most_one(what: str, fits: Callable[[Sequence[str]], bool]) -> Table | None:
            paths = [path for path, header in found.items() if fits(header)]
            return read_table(only(folder, what, paths, self.expects)) if paths else None

        answers = only(folder, "file of answers", [p for p, h in found.items() if _is_answers(h)], self.expects)
        return _Files(
            answers=read_table(answers, ANSWER_COLUMNS),
            sessions=at_most_one("file of sessions", _is_sessions),
            questions=at_most_one("file of questions", _is_questions),
            reconciled=at_most_one("file of reconciled answers", is_reconciled),
            records=tuple(read_table(path) for path, header in found.items() if _is_records(header)),
        )


def _is_answers(header: Sequence[str]) -> bool:
    return set(ANSWER_COLUMNS) <= set(header)


def _is_sessions(header: Sequence[str]) -> bool:
    return set(SESSION_COLUMNS) <= set(header) and QUESTION not in header


def _is_questions(header: Sequence[str]) -> bool:
    return {QUESTION, QUESTION_TEXT} <= set(header) and SESSION not in header


def _is_records(header: Sequence[str]) -> bool:
    return {ARTICLE, "title"} <= set(header) and SESSION not in header and not is_reconciled(header)


def _read_records(table: Table, recorder: Recorder) -> None:
    """One study per record; the file is taken for the search that found it."""
    search = Path(table.name.removesuffix(".gz")).stem
    for key, row in table.keyed_rows(ARTICLE):
        if recorder.knows(key):
            table.remark(row.number, f"{ARTICLE} {key} is in an earlier file of records too: it is one study")
        else:
            lower = {column.lower(): value for column, value in row.values.items()}
            journal = lower.get("journal") or lower.get("journal_name") or ""
            title = row["title"] or _placeholder(key)
            recorder.record(key, title, search=search, extra={**lower, "journal": journal})


def _read_questions(table: Table | None) -> tuple[dict[str, str], list[str]]:
    """({question: text}, the questions that are answered in one's own words)"""
    texts: dict[str, str] = {}
    in_words: list[str] = []
    for key, row in table.keyed_rows(QUESTION) if table else ():
        texts[key] = row[QUESTION_TEXT] or key
        if any(row.get(column).lower() in ("1", "true", "yes") for column in FREE_TEXT):
            in_words.append(key)
    return texts, in_words


def _read_reconciled(table: Table | None, filed: Sequence[Filed], texts: Mapping[str, str]) -> list[Reconciled]:
    if table is None:
        return []
    read = read_reconciled(table, filed, texts)
    annotated = {session.article for session in filed}
    for record in read:
        if record.article not in annotated:
            table.remark(record.row, f"{ARTICLE} {record.article} was reconciled, and nobody annotated it")
    return read


def _asked(
    texts: Mapping[str, str], in_words: Sequence[str], filed: Sequence[Filed], reconciled: Sequence[Reconciled]
) -> dict[str, Asked]:
    given: dict[str, list[str]] = {}
    for answers in [*(session.answers for session in filed), *(record.answers for record in reconciled)]:
        for key, answer in answers.items():
            given.setdefault(key, []).append(answer)
    return asked(texts, in_words, given)


def _record(recorder: Recorder, told: Timeline, questions: Mapping[str, Asked]) -> None:
    """Stage, questions, the simulated inclusions of what was annotated, then the acts."""
    recorder.annotation_stage(STAGE)
    for question in questions.values():
        recorder.ask(question.key, STAGE, question.text, question.kind, question.options)
    annotated = list(dict.fromkeys(act.article for act in told.acts))
    seq = 0
    for article in annotated:
        if not recorder.knows(article):
            recorder.record(article, _placeholder(article))
        for reviewer in INCLUDERS:
            seq += 1
            recorder.decide(seq, article, reviewer, Decision.INCLUDE, made_up_time(seq))
    for act in told.acts:
        seq += 1
        answers = act.answers
        recorder.annotate(
            seq,
            act.article,
            act.coder,
            act.act,
            stage=STAGE,
            at=act.at,
            answers=None if answers is None else {key: questions[key].value(text) for key, text in answers.items()},
            reconciliation=act.reconciliation,
        )


def _placeholder(key: str) -> str:
    return f"Article {key} (title not exported)"


def _provenance(files: _Files, times: TimeFormat | None) -> Provenance:
    simulated = [
        f"Inclusions: {' and '.join(INCLUDERS)} include every record that was annotated, before that, counting seconds "
        f"from {STARTED_AT:%Y-%m-%d %H:%M} UTC.",
        f"Starts of sessions: each {STARTED_BEFORE.seconds // 60} minutes before it was handed in.",
        "Deletions of sessions that the export marks as excluded: when their coder begins anew, else at once.",
        "Kinds and options of the questions: what the answers are.",
    ]
    if times is None:
        simulated.append("Times of the sessions: an hour apart, in the order of the file.")
    if files.reconciled is not None:
        simulated.append(f"Who reconciled, and when: {RECONCILER}, in the two minutes after the record's last session.")
    recorded = "Records, coders, sessions, answers" + (", reconciled answers" if files.reconciled else "")
    return Provenance(
        source=f"Annotation export: {', '.join(table.source for table in files.all)}",
        recorded=recorded + (f", times (read as {times.name}, UTC)." if times else "."),
        simulated=" ".join(simulated),
    )
