"""``statlib runbook``: what there is, what it takes, and running it headless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

import click

from statlib.cli.output import answer, json_option, plain, wants_json
from statlib.kernel.refusals import EXIT_REFUSED, Refusal
from statlib.kernel.settings import load_settings
from statlib.runbook.archive import ARCHIVE_DEFAULT
from statlib.runbook.catalogue import all_runbooks, find_runbook
from statlib.runbook.credentials import credentials_in
from statlib.runbook.parameters import describe_parameters, parse_parameters, read_parameters_file


@click.group()
def runbook() -> None:
    """List, show and run runbooks."""


@runbook.command("list")
@json_option
def list_runbooks() -> None:
    """Name every runbook of this installation, and what undoes it."""
    found = all_runbooks()
    width = max((len(book.name) for book in found), default=0)
    lines = [
        f"{book.name:<{width}}  {book.summary}{f' Undone by {book.rollback}.' if book.rollback else ''}"
        for book in found
    ]
    described = [{"name": book.name, "summary": book.summary, "rollback": book.rollback} for book in found]
    answer({"runbooks": described}, lines or "no runbooks")


@runbook.command()
@click.argument("name")
@json_option
def show(name: str) -> None:
    """Show a runbook's parameters: name, type, default and meaning."""
    book = find_runbook(name)
    parameters = describe_parameters(book.parameters)
    lines = [book.summary, f"notebook: {book.path}", f"undone by: {book.rollback or 'nothing to undo'}", ""]
    for one in parameters:
        given = "must be given" if one.default is None else f"default {one.default}"
        lines += [f"  {one.name} ({one.type}; {given})", *([f"      {one.description}"] if one.description else [])]
    answer(
        {
            "name": book.name, "summary": book.summary, "rollback": book.rollback, "notebook": book.path,
            "parameters": parameters,
        },
        lines,
    )  # fmt: skip


@runbook.command()
@click.argument("name")
@click.option("-p", "assignments", multiple=True, metavar="NAME=VALUE", help="A parameter; lists and tables as JSON.")
@click.option(
    "-f", "file", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file of parameters; -p wins over it."
)
@click.option(
    "--archive", type=click.Path(path_type=Path, file_okay=False), default=ARCHIVE_DEFAULT, show_default=True,
    help="The folder that keeps the run.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), help="Seconds until it is stopped."
)
@click.option("--resume", metavar="RUN", help="The id of an unfinished run whose process died.")
@json_option
def run(
    *,
    name: str,
    assignments: tuple[str, ...],
    file: Path | None,
    archive: Path,
    timeout_s: float | None,
    resume: str | None,
) -> None:
    """Execute a runbook headless and archive the run.

    \b
    Exit codes, decided from the run's evidence:
      0  every gate passed, a rehearsal passed, or a dry run
      1  the same, but rows of the input were not loaded: they are named
      3  a gate failed
      4  refused, by a step or before a kernel was started
      5  interrupted or incomplete
      6  fault
    """
    try:
        book = find_runbook(name)
        settings = load_settings()
        parameters = parse_parameters(
            book.parameters,
            read_parameters_file(file) if file else {},
            text=_assigned(assignments),
            secrets=credentials_in(settings),
            runbook=book.name,
        )
        from statlib.runbook.execution import run_headless  # noqa: PLC0415 - papermill alone takes a second to import

        ended = run_headless(book, parameters, settings=settings, archive=archive, timeout_s=timeout_s, resume=resume)
    except Refusal as refusal:
        raise NotRun(refusal, as_json=wants_json(click.get_current_context())) from refusal
    conclusion = ended.conclusion
    halted = conclusion.halted
    cause = "".join(f": {part}" for part in (halted.cause, halted.detail) if part) if halted else ""
    failed = [gate for gate in conclusion.gates if not gate.passed]
    answer(
        {
            "runbook": book.name,
            "run_id": ended.run_id,
            "verdict": conclusion.verdict,
            "exit_code": ended.exit_code,
            "path": ended.path,
            "halted": halted,
            "gates": [gate.model_dump(mode="json") for gate in conclusion.gates],
            "left_out": ended.left_out,
        },
        [
            f"{conclusion.verdict.value}{cause}",
            *(f"gate failed: {gate.title}: {gate.note}" for gate in failed),
            *(f"not loaded: {line}" for line in ended.left_out),
            f"report: {ended.path / 'report.html'}",
            f"verify: statlib evidence verify {ended.path}",
        ],
    )
    if halted:
        click.echo(f"remedy: {halted.remedy}", err=True)
    raise SystemExit(ended.exit_code)


class NotRun(click.ClickException):
    """A refusal before anything ran. Schedulers know one exit code for it, whatever its kind."""

    exit_code = EXIT_REFUSED

    def __init__(self, refusal: Refusal, *, as_json: bool) -> None:
        super().__init__(" ".join(str(refusal).split()))
        self.refusal = refusal
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            click.echo(json.dumps(plain({"refused": self.refusal.as_wire()}), ensure_ascii=False))
        click.echo(f"refused: {self.message}", err=True)
        click.echo(f"remedy: {self.refusal.remedy}", err=True)


def _assigned(assignments: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{name or assignment!r} has no value; write NAME=VALUE", param_hint="-p")
        if name in given:
            raise click.BadParameter(f"{name} is given twice", param_hint="-p")
        given[name] = value
    return given
