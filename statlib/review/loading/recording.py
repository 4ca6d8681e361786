"""Builds a LoadedReview from named records and decisions; the part that all loaders share.

Invariant: studies come out in the order of their first mention, each with the key that its source knows it by
(``SourceKey``), so that a stored document can be traced to its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from statlib.review.documents import AgreementThreshold, Membership, Project, Provenance, Search, Study
from statlib.review.loading.review import DecisionEvent, LoadedReview, Naming, RowProblem, RowRemark
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
