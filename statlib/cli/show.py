"""``statlib show``: a project, a stage or a reviewer in numbers, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from statlib.cli.output import answer, counted, json_option, plain

if TYPE_CHECKING:
    from statlib.review.documents import Provenance
    from statlib.review.pages import Origin, ProjectPage, ReviewerPage, StagePage
    from statlib.review.summaries import AnswerSummary, StageSummary
    from statlib.statistics.hosts import Host

_Page = TypeVar("_Page", "ProjectPage", "StagePage", "ReviewerPage")


@click.group()
def show() -> None:
    """Show a project, one of its stages or one of its reviewers in numbers of one moment."""


@show.command("project")
@click.argument("project", type=click.UUID)
@json_option
def show_project(project: UUID) -> None:
    """Show PROJECT: its screening, its stages and its searches."""
    from statlib.review.pages import project_page  # noqa: PLC0415

    page = _read(lambda host: project_page(host, project))
    answer(_value(page), list(project_lines(page)))


@show.command("stage")
@click.argument("project", type=click.UUID)
@click.argument("stage", type=click.UUID)
@click.option("--answers", is_flag=True, help="Count the answers to the stage's questions as well.")
@json_option
def show_stage(project: UUID, stage: UUID, answers: bool) -> None:
    """Show a STAGE of PROJECT, and what each member did on it."""
    from statlib.review.pages import stage_page  # noqa: PLC0415

    page = _read(lambda host: stage_page(host, project, stage, answers=answers))
    answer(_value(page), list(stage_lines(page)))


@show.command("reviewer")
@click.argument("project", type=click.UUID)
@click.argument("member", type=click.UUID)
@json_option
def show_reviewer(project: UUID, member: UUID) -> None:
    """Show what MEMBER did in PROJECT, and what waits for them."""
    from statlib.review.pages import reviewer_page  # noqa: PLC0415

    page = _read(lambda host: reviewer_page(host, project, member))
    answer(_value(page), list(reviewer_lines(page)))


def project_lines(page: ProjectPage) -> Iterator[str]:
    screening, threshold = page.screening, page.threshold
    yield from _head(page.name, f"project {page.project}, {counted(page.members, 'member')}", page)
    agree = f"{threshold.agreement_ratio:.0%} of {threshold.min_screenings} or more decisions alike settle a study"
    yield from _section(f"Screening ({agree})")
    rows: list[tuple[Any, ...]] = [
        ("studies", screening.studies, ""),
        *(
            (f"  {class_.value}", studies, _part(studies, screening.studies))
            for class_, studies in screening.classes.items()
        ),
        ("decisions", screening.decisions, ""),
        ("  inclusions", screening.inclusions, _part(screening.inclusions, screening.decisions)),
        ("  exclusions", screening.exclusions, _part(screening.exclusions, screening.decisions)),
        ("missing decisions", screening.decisions_missing, ""),
        ("settled", "", _percent(screening.progress)),
        ("unanimous", "", _percent(screening.agreement)),
    ]
    yield from _table(("", "count", "share"), rows)
    if page.stages:
        yield from _section("Stages")
        yield from _table(
            ("stage", "kind", "target", "eligible", "started", "complete", "reconciled", "missing sessions"),
            [
                (
                    of.name, of.kind.value, of.target, of.eligible, of.started,
                    _percent(of.completion), _percent(of.reconciled), of.sessions_missing,
                )
                for of in page.stages
            ],
        )  # fmt: skip
    if page.searches:
        yield from _section("Searches")
        yield from _table(("search", "studies"), [(line.name, line.studies) for line in page.searches])


def stage_lines(page: StagePage) -> Iterator[str]:
    yield from _head(f"{page.project_name}: {page.stage.name}", f"stage {page.stage.stage}", page)
    yield from _section(f"{page.stage.kind.value} ({counted(page.stage.target, 'session')} per study)")
    yield from _table(("", "studies", "share"), list(_stage_rows(page.stage)))
    yield ""
    yield f"missing sessions: {page.stage.sessions_missing:,}; places reserved: {page.stage.reservations:,}"
    if page.members:
        yield from _section("Members")
        yield from _table(
            ("member", "started", "completed", "reconciling", "reconciled", "reserved"),
            [
                (
                    line.name or str(line.member), line.annotation.started, line.annotation.completed,
                    line.annotation.reconciliations_started, line.annotation.reconciliations_completed,
                    line.annotation.reserved,
                )
                for line in page.members
            ],
        )  # fmt: skip
    for question in page.answers:
        yield from _section(f"{question.text} ({counted(question.answered, 'answer')})")
        yield from _table(("answer", "count", "share"), list(_answer_rows(question)))


def _stage_rows(stage: StageSummary) -> Iterator[tuple[Any, ...]]:
    whole, stands = stage.eligible, stage.reconciliation
    for name, studies in (
        ("eligible", whole),
        ("  started", stage.started),
        ("  with a completed session", stage.completed),
        ("reconciled", stands.reconciled),
        ("being reconciled", stands.in_progress),
        ("awaiting reconciliation", stands.awaiting),
        ("not ready", stands.not_ready),
        ("untouched", stands.untouched),
    ):
        yield name, studies, _part(studies, whole)
    yield "all sessions completed", "", _percent(stage.completion)


def _answer_rows(question: AnswerSummary) -> Iterator[tuple[Any, ...]]:
    for key, count in question.values.items():
        yield key, count, _part(count, question.answered)
    if question.free_text:
        yield "(free text)", question.free_text, _part(question.free_text, question.answered)


def reviewer_lines(page: ReviewerPage) -> Iterator[str]:
    screening = page.screening
    yield from _head(f"{page.project_name}: {page.name or page.member}", f"member {page.member}", page)
    yield from _section("Screening")
    settled = screening.agreed + screening.overruled
    rows: list[tuple[Any, ...]] = [
        ("screened", screening.screened, _percent(screening.progress)),
        ("  included", screening.included, _part(screening.included, screening.screened)),
        ("  excluded", screening.excluded, _part(screening.excluded, screening.screened)),
        ("available", screening.available, ""),
        ("settled by others", screening.unavailable, ""),
        ("agreed", screening.agreed, _part(screening.agreed, settled)),
        ("overruled", screening.overruled, _part(screening.overruled, settled)),
        ("open", screening.open, ""),
    ]
    yield from _table(("", "studies", "share"), rows)
    if page.stages:
        yield from _section("Annotation (of included studies: done, under way, available, covered by others)")
        yield from _table(
            ("stage", "done", "under way", "available", "covered", "progress", "reconciled", "reserved"),
            [
                (
                    line.name, line.workload.completed, line.workload.in_progress, line.workload.available,
                    line.workload.unavailable, _percent(line.workload.progress),
                    line.annotation.reconciliations_completed, line.annotation.reserved,
                )
                for line in page.stages
            ],
        )  # fmt: skip


def _read(read: Callable[[Host], _Page]) -> _Page:
    """As a host that leaves at once. Imported when called, so that help answers at once."""
    from statlib.application import host  # noqa: PLC0415

    with host() as here:
        return read(here)


def _head(title: str, what: str, page: ProjectPage | StagePage | ReviewerPage) -> Iterator[str]:
    yield title
    yield what
    yield from _provenance(page.provenance)
    yield _origin(page.origin)


def _provenance(provenance: Provenance) -> Iterator[str]:
    """What is made up is said before any number is shown."""
    if provenance.recorded:
        yield f"recorded: {provenance.recorded}"
    if provenance.simulated:
        yield f"SIMULATED: {provenance.simulated}"


def _origin(origin: Origin) -> str:
    where = "storage" if origin.reason is None else f"the source: {origin.reason.name}"
    return f"served from {where}; checkpoint {origin.checkpoint_identity}"


def _section(title: str) -> Iterator[str]:
    yield ""
    yield title


def _part(part: int, whole: int) -> str:
    return _percent(part / whole if whole else None)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Columns as wide as they must be: text to the left, numbers and shares to the right."""
    shown = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    left = [index == 0 or any(_is_text(row[index]) for row in rows) for index in range(len(header))]
    widths = [max(map(len, column)) for column in zip(header, *shown, strict=True)]
    for row in (header, *shown):
        cells = (
            f"{cell:<{width}}" if is_left else f"{cell:>{width}}"
            for cell, width, is_left in zip(row, widths, left, strict=True)
        )
        yield f"  {'  '.join(cells)}".rstrip()


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and bool(cell) and cell != "-" and not cell.endswith("%")


def _value(page: ProjectPage | StagePage | ReviewerPage) -> Any:
    value = plain(page)
    value["provenance"] = page.provenance.model_dump(mode="json")
    value["origin"]["reason"] = page.origin.reason.name if page.origin.reason else None
    if "threshold" in value:
        value["threshold"] = value["threshold"].model_dump(mode="json")
    return value
