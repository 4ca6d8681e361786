"""``statlib load``: an export, or the simulated review, into the database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from statlib.cli.output import answer, json_option
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.review.loading.detection import detect
from statlib.review.loading.registration import register
from statlib.review.loading.review import EventCounts, LoadedReview, RowProblem, event_counts
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import StoredReview, store

EXIT_ROWS_NOT_LOADED = 1
PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What ``statlib load`` did. ``problems`` are all rows that were not loaded."""

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
    rows_ignored: int
    problems: tuple[RowProblem, ...]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--simulated", is_flag=True, help="Load a review made up from a seed instead of a folder.")
@click.option("--name", help="The project's name; its id depends on it. By default the folder's.")
@click.option("--studies", type=int, help="Simulated: how many records.")
@click.option("--reviewers", type=int, help="Simulated: how many reviewers.")
@click.option("--events", type=int, help="Simulated: how many decisions; by default until all is decided.")
@click.option("--seed", type=int, help="Simulated: another seed is another review.")
@json_option
def load(folder: Path | None, simulated: bool, name: str | None, **sizes: int | None) -> None:
    """Load the review in FOLDER, or the simulated one.

    The format (Rayyan log, two-reviewer spreadsheet) is told by the header lines of the CSV files in FOLDER. The
    project and its studies are stored without screenings; the decisions are for a replay. Loading again adds what is
    missing and overwrites nothing.

    Exit codes: 0 loaded, 1 loaded but for the rows that are named, 2 bad usage or input, 4 refused, 6 fault.
    """
    given = {key: value for key, value in sizes.items() if value is not None}
    if (folder is None) != simulated:
        raise click.UsageError("Give a FOLDER or --simulated, one of them.")
    if given and not simulated:
        raise click.UsageError(f"--{next(iter(given))} goes with --simulated only.")
    format_name, review = _read_folder(folder, name) if folder is not None else _simulated(name, given)
    settings = load_settings()
    with connected(settings, app_name="statlib-load") as mongo:
        probe(mongo)
        stored = store(review, mongo, before_studies=lambda project: register(project, mongo, settings))
    report = _report(format_name, review, stored)
    answer(report, list(_lines(report)))
    if report.problems:
        click.get_current_context().exit(EXIT_ROWS_NOT_LOADED)


def _read_folder(folder: Path, name: str | None) -> tuple[str, LoadedReview]:
    loader = detect(folder, name=name)
    return loader.format, loader.load(folder)


def _simulated(name: str | None, sizes: dict[str, Any]) -> tuple[str, LoadedReview]:
    parameters = SimulatedReview(name=name, **sizes)
    return parameters.format, parameters.load()


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
        rows_ignored=review.ignored,
        problems=review.problems,
    )


def _lines(report: LoadReport) -> Iterator[str]:
    stored, events = report.stored, report.events
    yield f"{report.name} ({report.format}): project {report.project_id}"
    yield f"source     {report.source}"
    yield f"recorded   {report.recorded or 'nothing'}"
    yield f"simulated  {report.simulated or 'nothing'}"
    yield f"project    {'stored' if stored.project_inserted else 'was there already'}"
    yield f"studies    {stored.studies_inserted:,} stored, {stored.studies_present:,} were there already"
    yield f"reviewers  {len(report.reviewers):,}"
    yield (
        f"decisions  {events.submitted:,} to replay, of which {events.unchanged:,} change nothing; "
        f"{events.standing:,} stand in the end, {events.included:,} of them include"
    )
    if report.rows_ignored:
        yield f"ignored    {report.rows_ignored:,} rows that are no decisions"
    if report.problems:
        yield f"problems   {len(report.problems):,} rows were not loaded:"
        yield from (f"  {problem}" for problem in report.problems[:PROBLEMS_SHOWN])
        if (more := len(report.problems) - PROBLEMS_SHOWN) > 0:
            yield f"  and {more:,} more; --json lists them all"
