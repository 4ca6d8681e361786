"""``statlib load``: an export, or the simulated review, into the database; one project for each review or stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from statlib.cli.load_records import copied_records
from statlib.cli.output import answer, counted, json_option
from statlib.kernel.settings import Settings, load_settings
from statlib.mongo.connection import Mongo, connected
from statlib.mongo.probe import probe
from statlib.review.loading.detection import detect
from statlib.review.loading.registration import register
from statlib.review.loading.review import (
    AnnotationCounts,
    EventCounts,
    LoadedReview,
    RowProblem,
    RowRemark,
    annotation_counts,
    event_counts,
)
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import StoredReview, store

EXIT_ROWS_NOT_LOADED = 1
PROBLEMS_SHOWN = 20
NAME_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What ``statlib load`` did for one project.

    ``problems`` are all rows that were not loaded, ``remarks`` what is odd about rows that were.

    ``studies_untitled``: no row describes them; decisions name them.
    """

    project_id: UUID
    name: str
    format: str
    source: str
    recorded: str
    simulated: str
    seed: int | None
    reviewers: tuple[str, ...]
    stored: StoredReview
    events: EventCounts
    annotations: AnnotationCounts
    studies_untitled: int
    rows_ignored: int
    problems: tuple[RowProblem, ...]
    remarks: tuple[RowRemark, ...]
    files_unread: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer: a report for each project, in the order of the export."""

    projects: tuple[LoadReport, ...]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--simulated", is_flag=True, help="Load a review made up from a seed instead of a folder.")
@click.option("--name", help="The project's name; its id depends on it. By default the folder's.")
@click.option("--review", help="Load one only of the reviews, or of the stages, that FOLDER holds.")
@click.option("--studies", type=int, help="Simulated: how many records.")
@click.option("--reviewers", type=int, help="Simulated: how many reviewers.")
@click.option("--events", type=int, help="Simulated: how many decisions; by default until all is decided.")
@click.option("--postgres", is_flag=True, help="Copy records and decisions into PostgreSQL too, for data backfills.")
@click.option("--seed", type=int, help="Of what is made up; another seed is another review.")
@json_option
def load(
    *,
    folder: Path | None,
    simulated: bool,
    name: str | None,
    review: str | None,
    postgres: bool,
    seed: int | None,
    **sizes: int | None,
) -> None:
    """Load the review in FOLDER, or the simulated one.

    The format is told by the header lines of the CSV files in FOLDER, plain or gzipped: a Rayyan log, a SyRF screening
    export, a two-reviewer spreadsheet, a two-stage review, an annotation export, ASReview or SYNERGY labels. Several
    reviews in one file, and the stages of one review, become a project each. What a format does not record is made up
    from the seed, and the project's provenance says so.

    The project and its studies are stored without screenings and sessions; these are for a replay. Loading again adds
    what is missing and overwrites nothing. An export without a study is not stored.

    Exit codes: 0 loaded, 1 loaded but for the rows that are named, or no rows at all, 2 bad usage or input, 4 refused,
    6 fault.
    """
    given = {key: value for key, value in sizes.items() if value is not None}
    if (folder is None) != simulated:
        raise click.UsageError("Give a FOLDER or --simulated, one of them.")
    if given and not simulated:
        raise click.UsageError(f"--{next(iter(given))} goes with --simulated only.")
    if name is not None and not _can_name_a_project(name):
        raise click.UsageError(f"--name: give 1 to {NAME_CHARACTERS_MAX} characters of Unicode.")
    if review is not None and simulated:
        raise click.UsageError("--review goes with a FOLDER only.")
    if folder is not None:
        format_name, reviews = _read_folder(folder, name, review, seed)
    else:
        format_name, reviews = _simulated(name, given if seed is None else {**given, "seed": seed})
    if seed is not None and all(review.project.provenance.seed is None for review in reviews):
        raise click.UsageError(f"--seed: nothing in a {format_name} is made up from a seed.")
    settings = load_settings()
    with connected(settings, app_name="statlib-load") as mongo:
        probe(mongo)
        reports = tuple(_report(format_name, review, _store(review, mongo, settings)) for review in reviews)
    answer(Loaded(reports), [*_lines_of(reports), *(copied_records(reviews, settings) if postgres else ())])
    if any(report.problems or not report.stored.studies for report in reports):
        click.get_current_context().exit(EXIT_ROWS_NOT_LOADED)


def _can_name_a_project(name: str) -> bool:
    """As an edit may rename it; a command line also holds bytes that are no text."""
    return 1 <= len(name) <= NAME_CHARACTERS_MAX and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _read_folder(
    folder: Path, name: str | None, review: str | None, seed: int | None
) -> tuple[str, tuple[LoadedReview, ...]]:
    loader = detect(folder, name=name, review=review, seed=seed)
    return loader.format, loader.load_all(folder) if review is None else (loader.load(folder),)


def _simulated(name: str | None, parameters: dict[str, Any]) -> tuple[str, tuple[LoadedReview, ...]]:
    simulated = SimulatedReview(name=name, **parameters)
    return simulated.format, (simulated.load(),)


def _store(review: LoadedReview, mongo: Mongo, settings: Settings) -> StoredReview:
    if review.studies:
        return store(review, mongo, before_studies=lambda project: register(project, mongo, settings))
    # Most likely an export that went wrong: no project of that name, and nothing on the allowlist.
    return StoredReview(review.project.id, False, 0, 0)


def _report(format_name: str, review: LoadedReview, stored: StoredReview) -> LoadReport:
    provenance = review.project.provenance
    return LoadReport(
        project_id=review.project.id,
        name=review.project.name,
        format=format_name,
        source=provenance.source,
        recorded=provenance.recorded,
        simulated=provenance.simulated,
        seed=provenance.seed,
        reviewers=tuple(member.name for member in review.project.memberships),
        stored=stored,
        events=event_counts(review.events),
        annotations=annotation_counts(review.annotations),
        studies_untitled=review.untitled,
        rows_ignored=review.ignored,
        problems=review.problems,
        remarks=review.remarks,
        files_unread=review.unread,
    )


def _lines_of(reports: Sequence[LoadReport]) -> Iterator[str]:
    for place, report in enumerate(reports):
        if place:
            yield ""
        yield from _lines(report)


def _lines(report: LoadReport) -> Iterator[str]:
    stored, events = report.stored, report.events
    # A simulated review is named after its format unless it is given another name.
    named = report.name.lower().startswith(report.format.lower())
    yield f"{report.name}{'' if named else f' ({report.format})'}: project {report.project_id}"
    yield f"source     {report.source}"
    yield f"recorded   {report.recorded or 'nothing'}"
    yield f"simulated  {report.simulated or 'nothing'}"
    if not stored.studies:
        yield "no rows: nothing was stored"
        yield from _problems(report.problems)
        return
    yield f"project    {'stored' if stored.project_inserted else 'was there already'}"
    yield f"studies    {stored.studies_inserted:,} stored, {stored.studies_present:,} there already"
    if report.studies_untitled:
        yield f"           {counted(report.studies_untitled, 'study', 'studies')} that no row describes"
    yield f"reviewers  {len(report.reviewers):,}"
    yield (
        f"decisions  {events.submitted:,} to replay, of which {events.unchanged:,} change nothing; "
        f"{events.standing:,} stand in the end, {events.included:,} of them include"
    )
    if acts := report.annotations.submitted:
        yield (
            f"sessions   {acts:,} acts to replay; {report.annotations.candidates:,} sessions and "
            f"{report.annotations.reconciliations:,} reconciliations stand in the end, with "
            f"{report.annotations.answers:,} answers"
        )
    if report.rows_ignored:
        yield f"ignored    {counted(report.rows_ignored, 'row')} without a decision"
    if report.files_unread:
        yield f"not read   {', '.join(report.files_unread)}"
    if report.remarks:
        yield f"remarks    {counted(len(report.remarks), 'row was', 'rows were')} loaded, but:"
        yield from _named(report.remarks)
    yield from _problems(report.problems)


def _problems(found: Sequence[RowProblem]) -> Iterator[str]:
    if found:
        yield f"problems   {counted(len(found), 'row was', 'rows were')} not loaded:"
        yield from _named(found)


def _named(found: Sequence[RowProblem]) -> Iterator[str]:
    yield from (f"  {problem}" for problem in found[:PROBLEMS_SHOWN])
    if (more := len(found) - PROBLEMS_SHOWN) > 0:
        yield f"  and {more:,} more; --json lists them all"
