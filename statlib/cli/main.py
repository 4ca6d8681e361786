"""The ``statlib`` command.

Every command module is imported when its command is called, so that ``statlib --help`` and a misspelt command
answer at once. Exit codes: 0 done, 2 bad usage or input, 4 refused, 6 fault.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import traceback
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from statlib.cli.output import plain, wants_json
from statlib.kernel.refusals import EXIT_FAULT, Fault, Reason, Refusal, RefusalKind

EXIT_USAGE = 2
TRACEBACK_VARIABLE = "STATLIB_TRACEBACK"
EXTRA_OF_MODULE = {
    "filelock": "local",
    "psutil": "local",
    "tomlkit": "local",
    "opentelemetry": "metrics",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "yoyo": "postgres",
    "fastapi": "admin",
    "jwt": "admin",
    "uvicorn": "admin",
    "IPython": "notebooks",
    "ipykernel": "notebooks",
    "cryptography": "evidence",
    "jinja2": "notebooks",
    "matplotlib": "notebooks",
    "nbconvert": "notebooks",
    "nbformat": "notebooks",
    "pandas": "notebooks",
    "papermill": "notebooks",
}


class CliReason(Reason):
    """Refusals of the command line itself."""

    ExtraMissing = (RefusalKind.NOT_FOUND, "Install the extra with the command shown, then try again.")


class Entry(NamedTuple):
    """A command: where it is (``module:attribute``) and the line that ``statlib --help`` shows for it."""

    target: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "up": Entry("statlib.cli.local:up", "Start the data folder's MongoDB replica set."),
    "down": Entry("statlib.cli.local:down", "Stop it; its data stays."),
    "status": Entry("statlib.cli.local:status", "Show whether it runs, and where."),
    "doctor": Entry("statlib.cli.doctor:doctor", "Check this installation, and name what mends it."),
    "init": Entry("statlib.cli.init:init", "Prepare a database: collections, indexes, the fleet's control."),
    "settings": Entry("statlib.cli.settings:settings", "List every setting, its value and where that comes from."),
    "metrics": Entry("statlib.cli.metrics:metrics", "Serve the deployment's metrics for Prometheus."),
    "runbook": Entry("statlib.cli.runbook:runbook", "List, show and run runbooks."),
    "schedule": Entry("statlib.cli.schedule:schedule", "Run jobs and runbooks in their slots, once across hosts."),
    "worker": Entry("statlib.cli.worker:worker", "Run a background worker."),
    "evidence": Entry("statlib.cli.evidence:evidence", "Verify archived reports from their folders alone."),
    "reports": Entry("statlib.cli.reports:reports", "List, compare, show and prune archived runs."),
    "bench": Entry("statlib.cli.bench:bench", "Measure, on servers of their own; nothing of yours is touched."),
    "load": Entry("statlib.cli.load:load", "Load a real or a simulated review."),
    "show": Entry("statlib.cli.show:show", "Show a project, a stage or a reviewer in numbers."),
    "why": Entry("statlib.cli.why:why", "Show why a project is served from the source, gate by gate."),
    "gate": Entry("statlib.cli.operate:gate", "Open or close the narrow gate of one project."),
    "fleet": Entry("statlib.cli.operate:fleet", "Open or close statistics for the whole fleet."),
    "fold": Entry("statlib.cli.fold:fold", "Let the saves of one project fold, or no longer."),
    "ledger": Entry("statlib.cli.ledger:ledger", "Keep the revision ledger of one project short."),
    "backfill": Entry("statlib.cli.operate:backfill", "Publish a family, and prove it served and exact."),
    "data-backfill": Entry("statlib.cli.data_backfill:data_backfill", "Show and steer repairs of PostgreSQL rows."),
    "parity": Entry("statlib.cli.operate:parity", "Compare stored counters with the source."),
    "project": Entry("statlib.cli.project:project", "Edit a review, its members, stages, questions and searches."),
    "fences": Entry("statlib.cli.fences:fences", "Show and settle operations that keep statistics back."),
    "admin": Entry("statlib.cli.admin:admin", "Serve the admin boundary, and keep its tokens."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and turns refusals and faults into one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := COMMANDS.get(cmd_name)) is None:
            return None
        module, _, attribute = entry.target.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (refusal := _extra_missing(cmd_name, error)) is None:
                raise
            raise refusal from error
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.target} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            _refused(ctx, refusal)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ModuleNotFoundError as error:
            if (missing := _extra_missing(ctx.invoked_subcommand or "statlib", error)) is not None:
                _refused(ctx, missing)
            _failed(error)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output left; click ends quietly
            _failed(error)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="statlib")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The statlib.toml to read; else STATLIB_CONFIG, ./statlib.toml or .statlib/statlib.toml.",
)
def main(config: Path | None) -> None:
    """Keep derived data exact, and prove it.

    Exit codes: 0 done, 2 bad usage or input, 4 refused, 6 fault. Every command that answers takes --json.
    """
    if config is not None:
        os.environ["STATLIB_CONFIG"] = str(config)


def _extra_missing(command: str, error: ModuleNotFoundError) -> Refusal | None:
    """None: the module is of no extra, and its absence is a fault."""
    if (extra := EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])) is None:
        return None
    from statlib.kernel.installation import install_command  # noqa: PLC0415 - `statlib --help` needs none of it

    return Refusal(CliReason.ExtraMissing, f"{command} needs: {install_command(extra)}")


def exit_code_of(refusal: Refusal) -> int:
    return EXIT_USAGE if refusal.reason.kind is RefusalKind.INVALID else refusal.exit_code


def _refused(ctx: click.Context, refusal: Refusal) -> NoReturn:
    _show_traceback_if_asked(refusal)
    if wants_json(ctx):
        click.echo(json.dumps(plain({"refused": refusal.as_wire()}), ensure_ascii=False))
    click.echo(f"refused: {_one_line(str(refusal))}", err=True)
    click.echo(f"remedy: {_one_line(refusal.remedy)}", err=True)
    raise SystemExit(exit_code_of(refusal))


def _failed(error: Exception) -> NoReturn:
    _show_traceback_if_asked(error)
    if isinstance(error, Fault):
        cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
        click.echo(f"fault: {_one_line(f'{error}{cause}')}", err=True)
        if error.remedy:
            click.echo(f"remedy: {_one_line(error.remedy)}", err=True)
    else:
        click.echo(f"fault: {_one_line(f'{type(error).__name__}: {error}')}", err=True)
        click.echo(f"remedy: Set {TRACEBACK_VARIABLE}=1 to see where it happened.", err=True)
    raise SystemExit(EXIT_FAULT)


def _show_traceback_if_asked(error: Exception) -> None:
    if os.environ.get(TRACEBACK_VARIABLE):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
