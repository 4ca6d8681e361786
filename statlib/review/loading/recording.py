"""Builds a LoadedReview from named records and decisions; the part that all loaders share.

Invariant: studies come out in the order of their first mention, each with the key that its source knows it by
(``SourceKey``), so that a stored document can be traced to its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import (
    AgreementThreshold,
    AnswerKind,
    Membership,
    Project,
    Provenance,
    Question,
    Search,
    Stage,
    StageKind,
    Study,
)
from statlib.review.loading.review import AnnotationEvent, DecisionEvent, LoadedReview, Naming, RowProblem, RowRemark
from statlib.review.screening import Decision

THRESHOLD_DEFAULT = AgreementThreshold()

STARTED_AT = datetime(2000, 1, 1, tzinfo=UTC)
"""Made-up times count seconds from here: too early to be taken for real ones."""

BIBLIOGRAPHIC_COLUMNS = (
    "abstract", "authors", "doi", "issn", "issue", "journal", "keywords", "language", "location", "month",
    "openalex_id", "pages", "pmc_id", "pmid", "publisher", "pubmed_id", "url", "volume", "wos_id", "year",
)  # fmt: skip
"""Columns that a study keeps beside its title, in PascalCase; what else an export holds is not about the record."""


class Recorder:
    """Collects one review; ``finish`` freezes it. Not for use by several threads."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._studies: dict[str, Study] = {}
        self._searches: dict[str, Search] = {}
        self._joined: dict[str, datetime] = {}
        self._names: dict[str, str] = {}
        self._events: dict[int, DecisionEvent] = {}
        self._stages: dict[str, Stage] = {}
        self._questions: dict[str, Question] = {}
        self._annotations: list[AnnotationEvent] = []

    def knows(self, key: str) -> bool:
        return key in self._studies

    def recorded(self, seq: int) -> bool:
        return seq in self._events

    def join(self, reviewer: str, at: datetime, *, name: str = "") -> None:
        """Make ``reviewer`` a member from ``at``; whoever decides joins by it. ``name``: if it is not what they are
        known by in the source."""
        self._joined[reviewer] = min(at, self._joined.get(reviewer, at))
        if name:
            self._names.setdefault(reviewer, name)

    def record(
        self,
        key: str,
        title: str,
        *,
        search: str = "",
        extra: Mapping[str, str] | None = None,
        label: bool | None = None,
    ) -> None:
        """Add a study. ``extra`` holds columns as exported; bibliographic ones are kept, empty ones are not.
        ``label``: the final decision, where the source records it and not who made it."""
        kept = {_field(column): value for column, value in (extra or {}).items() if _bibliographic(column) and value}
        self._studies[key] = Study.from_bson(
            {
                **kept,
                "_id": self._naming.study_id(key),
                "ProjectId": self._naming.project_id(),
                "SearchId": self._search(search) if search else None,
                "Title": title,
                "SourceKey": key,
                **({} if label is None else {"SourceLabel": label}),
            }
        )

    def decide(self, seq: int, key: str, reviewer: str, decision: Decision, at: datetime) -> None:
        """Add an event on a study that ``record`` knows; ``seq`` must be new."""
        self.join(reviewer, at)
        study = self._studies[key].id
        self._events[seq] = DecisionEvent(seq, study, self._naming.reviewer_id(reviewer), decision, at)

    def annotation_stage(self, name: str) -> None:
        """Add a stage on which two candidate sessions of each study are wanted."""
        self._stages[name] = Stage(id=self._naming.stage_id(name), name=name, kind=StageKind.ANNOTATION)

    def ask(self, key: str, stage: str, text: str, answer: AnswerKind, options: Sequence[str] = ()) -> None:
        """Add a question to a stage that ``annotation_stage`` knows."""
        self._questions[key] = Question(
            id=self._naming.question_id(key),
            stage_id=self._stages[stage].id,
            text=text,
            answer=answer,
            options=tuple(options),
        )

    def annotate(
        self,
        seq: int,
        key: str,
        reviewer: str,
        act: SessionAct,
        *,
        stage: str,
        at: datetime,
        answers: Mapping[str, bool | int | str] | None = None,
        reconciliation: bool = False,
    ) -> None:
        """Add an act on the reviewer's session on a study that ``record`` knows. ``answers`` by the key that ``ask``
        gave; ``seq`` must be new, among decisions too."""
        self.join(reviewer, at)
        given = None if answers is None else {self._questions[asked].id: value for asked, value in answers.items()}
        self._annotations.append(
            AnnotationEvent(
                seq=seq,
                study_id=self._studies[key].id,
                investigator_id=self._naming.reviewer_id(reviewer),
                stage_id=self._stages[stage].id,
                act=act,
                at=at,
                answers=given,
                reconciliation=reconciliation,
            )
        )

    def finish(
        self,
        provenance: Provenance,
        threshold: AgreementThreshold,
        *,
        problems: Sequence[RowProblem] = (),
        ignored: int = 0,
        untitled: int = 0,
        remarks: Sequence[RowRemark] = (),
        unread: Sequence[str] = (),
    ) -> LoadedReview:
        project = Project(
            id=self._naming.project_id(),
            name=self._naming.project,
            provenance=provenance,
            agreement_threshold=threshold,
            stages=tuple(self._stages.values()),
            questions=tuple(self._questions.values()),
            memberships=tuple(
                Membership(
                    investigator_id=self._naming.reviewer_id(reviewer),
                    joined_at_utc=joined,
                    name=self._names.get(reviewer, reviewer),
                )
                for reviewer, joined in sorted(
                    self._joined.items(), key=lambda of: (self._names.get(of[0], of[0]), of[0])
                )
            ),
            searches=tuple(self._searches.values()),
        )
        events = tuple(self._events[seq] for seq in sorted(self._events))
        studies = tuple(self._studies.values())
        return LoadedReview(
            project,
            studies,
            events,
            problems=tuple(sorted(problems)),
            ignored=ignored,
            untitled=untitled,
            remarks=tuple(sorted(remarks)),
            unread=tuple(unread),
            annotations=tuple(sorted(self._annotations, key=lambda event: event.seq)),
        )

    @property
    def studies(self) -> int:
        """How many are recorded so far."""
        return len(self._studies)

    def _search(self, name: str) -> UUID:
        if name not in self._searches:
            self._searches[name] = Search(id=self._naming.search_id(name), name=name, source=name)
        return self._searches[name].id


def made_up_time(number: int) -> datetime:
    """The time given to the ``number``-th event of a source that records none: so many seconds after STARTED_AT."""
    return STARTED_AT + timedelta(seconds=number)


def recorded_time(text: str) -> datetime | None:
    """An ISO 8601 time as UTC in whole milliseconds; without an offset it is taken as UTC. None if it is no time."""
    try:
        at = datetime.fromisoformat(text.removesuffix(" UTC"))
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _bibliographic(column: str) -> bool:
    return column.lower() in BIBLIOGRAPHIC_COLUMNS


def _field(column: str) -> str:
    return "".join(part.capitalize() for part in column.lower().split("_"))
