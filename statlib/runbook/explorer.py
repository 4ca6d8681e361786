"""A review in figures, for the notebook ``statistics_explorer``: read as its pages are, one coherent bundle a figure.

Every figure says where its numbers come from. Names in them are those of the project's document.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES, Project, StageKind
from statlib.review.pages import Origin, ProjectPage, ReviewerPage, project_page, reviewer_page, stage_page
from statlib.review.summaries import AnswerSummary
from statlib.review.timeline import screening_timeline
from statlib.runbook.fragments import Column, Fragment, KeyValues, StatusLine, Table, stylesheet_fragment
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.figures import ScreeningPoint, screening_progress
from statlib.runbook.look.plots.shares import Row, parts, shares
from statlib.runbook.raw_files import Comparison, Counted, by_name
from statlib.runbook.refusing import show_refusals_briefly
from statlib.runbook.shell import show
from statlib.statistics.catalogue import Pipeline
from statlib.statistics.hosts import Host, Role, registered
from statlib.statistics.reader import ALL, read_bundle
from statlib.statistics.reasons import OperateReason

ANSWERS_SHOWN = 6  # lines of one question
FROM_STUDIES = "decision times in the studies themselves"


class Explorer:
    """One project, as a registered host sees it. ``close`` takes the host off the list again."""

    def __init__(self, host: Host, project: UUID, opened: ExitStack) -> None:
        self.host = host
        self.project = project
        self._opened = opened

    @classmethod
    def of(cls, project: str = "", *, settings: Settings | None = None) -> Self:
        """``project`` is an id or a name; empty: the project with the most studies.

        In a kernel it also shows the stylesheet that every later figure relies on. Refuses ProjectNotFound, and as
        ``connected``, ``probe`` and ``registered`` do.
        """
        show_refusals_briefly()
        with ExitStack() as opened:
            mongo = opened.enter_context(connected(settings or load_settings(), app_name="statlib-explorer"))
            probe(mongo)
            host = opened.enter_context(registered(mongo, Role.API))
            found = cls(host, _found(host, project), opened.pop_all())
        show(stylesheet_fragment())
        return found

    def close(self) -> None:
        self._opened.close()

    def overview(self) -> Fragment:
        """What is being looked at, what of it is simulated, and where its numbers come from."""
        page = self._page()
        return KeyValues(
            (
                ("Review", page.name),
                ("Source", page.provenance.source or "not said"),
                ("Recorded", page.provenance.recorded or "not said"),
                ("Simulated", page.provenance.simulated or "nothing"),
                ("Studies", q.number(page.screening.studies)),
                ("Members", q.number(page.members)),
                ("Stages", ", ".join(stage.name for stage in page.stages) or "none"),
                ("Numbers", _source(page.origin)),
            )
        )

    def progress(self) -> Fragment:
        """Screening classes over time."""
        points = [
            ScreeningPoint(moment.at, {class_.value: studies for class_, studies in moment.classes.items()})
            for moment in screening_timeline(self.host.mongo, self.project)
        ]
        return screening_progress(points, source=FROM_STUDIES) if points else _nothing("no decision was made yet")

    def agreement(self) -> Fragment:
        """Of each member's decisions, what became of them."""
        pages = self._reviewers()
        rows = [
            Row(
                _named(page),
                {
                    "agreed": page.screening.agreed,
                    "overruled": page.screening.overruled,
                    "not settled yet": page.screening.open,
                },
            )
            for page in pages
        ]
        settled = sum(page.screening.agreed + page.screening.overruled for page in pages)
        agreed = sum(page.screening.agreed for page in pages)
        finding = f"{q.number(agreed)} of {q.number(settled)} decisions on settled studies prevailed"
        return self._shares(
            "agreement",
            "Agreement with the outcome",
            rows,
            ("agreed", "overruled", "not settled yet"),
            finding,
            "decisions",
            pages,
        )

    def workload(self) -> Fragment:
        """Per member: what they screened, and what waits for them."""
        pages = self._reviewers()
        rows = [
            Row(
                _named(page),
                {
                    "screened": page.screening.screened,
                    "waiting": page.screening.available,
                    "settled without them": page.screening.unavailable,
                },
            )
            for page in pages
        ]
        waiting = sum(page.screening.available for page in pages)
        finding = f"{q.plural(waiting, 'decision')} may still be made" if waiting else "nothing waits for anybody"
        return self._shares(
            "workload",
            "Screening per member",
            rows,
            ("screened", "waiting", "settled without them"),
            finding,
            "studies",
            pages,
        )

    def annotation_workload(self) -> Fragment:
        """Per member and annotation stage: included studies that are done, under way, or to be had."""
        pages = self._reviewers()
        annotating = {stage.stage for stage in self._page().stages if stage.kind is StageKind.ANNOTATION}
        rows = [
            Row(
                f"{_named(page)}, {line.name}",
                {
                    "completed": line.workload.completed,
                    "under way": line.workload.in_progress,
                    "to be had": line.workload.available,
                    "covered by others": line.workload.unavailable,
                },
            )
            for page in pages
            for line in page.stages
            if line.stage in annotating
        ]
        done = sum(row.amounts["completed"] for row in rows)
        finding = f"{q.plural(done, 'annotation')} completed"
        names = ("completed", "under way", "to be had", "covered by others")
        return self._shares("annotation", "Annotation per member", rows, names, finding, "included studies", pages)

    def funnel(self) -> Fragment:
        """Per stage: eligible studies, as far as they came."""
        page = self._page()
        rows = [
            Row(
                stage.name,
                {
                    "at target": round((stage.completion or 0) * stage.eligible),
                    "completed": stage.completed - round((stage.completion or 0) * stage.eligible),
                    "started": stage.started - stage.completed,
                    "untouched": stage.eligible - stage.started,
                },
            )
            for stage in page.stages
        ]
        waiting = sum(stage.sessions_missing for stage in page.stages)
        finding = (
            f"{q.plural(waiting, 'session')} missing to every stage's target" if waiting else "every target is met"
        )
        names = ("at target", "completed", "started", "untouched")
        return self._shares("funnel", "Stages", rows, names, finding, "eligible studies", [page])

    def backlog(self) -> Fragment:
        """Per stage: where reconciliation stands."""
        page = self._page()
        rows = [
            Row(
                stage.name,
                {
                    "reconciled": stage.reconciliation.reconciled,
                    "being reconciled": stage.reconciliation.in_progress,
                    "awaiting it": stage.reconciliation.awaiting,
                    "not ready": stage.reconciliation.not_ready,
                    "untouched": stage.reconciliation.untouched,
                },
            )
            for stage in page.stages
        ]
        awaiting = sum(stage.reconciliation.awaiting for stage in page.stages)
        finding = f"{q.plural(awaiting, 'study', 'studies')} {'awaits' if awaiting == 1 else 'await'} reconciliation"
        names = ("reconciled", "being reconciled", "awaiting it", "not ready", "untouched")
        return self._shares("backlog", "Reconciliation", rows, names, finding, "eligible studies", [page])

    def answers(self, stage: int = 0) -> Fragment:
        """Answers to the questions of the ``stage``-th annotation stage (from 0), most frequent first.

        Of many answers to one question the rarest are told together, with how many they are.
        """
        annotating = [found for found in self._page().stages if found.kind is StageKind.ANNOTATION]
        if stage >= len(annotating):
            return _nothing(f"the project has {q.plural(len(annotating), 'annotation stage')}")
        page = stage_page(self.host, self.project, annotating[stage].stage, answers=True)
        rows = tuple(
            (question.text, answer, count, f"{count / question.answered:.0%}")
            for question in page.answers
            for answer, count in _told(question)
        )
        if not rows:
            return _nothing(f"no session of {page.stage.name} is completed yet")
        columns = (
            Column("Question"),
            Column("Answer"),
            Column("Sessions", numeric=True),
            Column("Share", numeric=True),
        )
        return Table(f"Answers in completed sessions of {page.stage.name}; {_source(page.origin)}", columns, rows)

    def beside(self, counted: Counted) -> Fragment:
        """Every counter of every family as it is served, held against ``raw_files.counted``, of all members and
        stages. Of one moment, unless somebody edits the project's names meanwhile."""
        if not counted:
            return _nothing("no folder of raw files is named; parity compares with the stored studies instead")
        bundle = read_bundle(self.host, REVIEW, self.project, [(family, ALL) for family in REVIEW.families])
        marks = bundle.watermarks
        origin = Origin(bundle.source, bundle.reason, marks, marks.checkpoint_identity)
        stored = Project.from_bson(self.host.mongo.collection(PROJECTS).find_one({"_id": self.project}) or {})
        return Comparison(by_name(bundle.values, stored), counted, _source(origin))

    def _page(self) -> ProjectPage:
        return project_page(self.host, self.project)

    def _reviewers(self) -> list[ReviewerPage]:
        found = self.host.mongo.collection(PROJECTS).find_one({"_id": self.project}, {"Memberships.InvestigatorId": 1})
        members = (found or {}).get("Memberships", [])
        return [reviewer_page(self.host, self.project, member["InvestigatorId"]) for member in members]

    def _shares(  # noqa: PLR0917
        self,
        key: str,
        title: str,
        rows: list[Row],
        names: tuple[str, ...],
        finding: str,
        unit: str,
        pages: list[ProjectPage] | list[ReviewerPage],
    ) -> Fragment:
        if not rows or not any(row.whole for row in rows):
            return _nothing(f"{title.lower()}: no numbers yet")
        sources = sorted({_source(page.origin) for page in pages})
        return shares(key, title, rows, parts(*names), finding=finding, source="; ".join(sources), unit=unit)


def _found(host: Host, project: str) -> UUID:
    projects = host.mongo.collection(PROJECTS)
    if project:
        named = {"$or": [{"Name": project}, {"_id": _as_id(project)}]}
        ids = [UUID(str(stored["_id"])) for stored in projects.find(named, {"_id": 1}).limit(2)]
        if len(ids) != 1:
            several = f"several projects are called {project}: give one's id, such as {ids[0]}" if ids else ""
            raise Refusal(OperateReason.ProjectNotFound, several or f"project {project}")
        return ids[0]
    largest: Pipeline = [
        {"$group": {"_id": "$ProjectId", "Studies": {"$sum": 1}}},
        {"$sort": {"Studies": -1, "_id": 1}},
        {"$limit": 1},
    ]
    for one in host.mongo.collection(STUDIES).aggregate(largest):
        return UUID(str(one["_id"]))
    raise Refusal(OperateReason.ProjectNotFound, "no study is stored yet: `statlib load --simulated` makes a review")


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _named(page: ReviewerPage) -> str:
    return page.name or str(page.member)[:8]


def _source(origin: Origin) -> str:
    if origin.reason is None:
        return f"stored counters, checkpoint {origin.checkpoint_identity}"
    return f"calculated from the studies ({origin.reason.name}), checkpoint {origin.checkpoint_identity}"


def _told(question: AnswerSummary) -> list[tuple[str, int]]:
    """(answer, sessions) of one question, in as many lines as a table of all questions has room for."""
    values = list(question.values.items())
    shown = values if len(values) <= ANSWERS_SHOWN else values[: ANSWERS_SHOWN - 1]
    rest = values[len(shown) :]
    together = [(f"({q.number(len(rest))} other answers)", sum(count for _, count in rest))] if rest else []
    return [*shown, *together, *([("(free text)", question.free_text)] if question.free_text else [])]


def _nothing(why: str) -> Fragment:
    return StatusLine(shapes.PENDING, "Nothing to show", why)
