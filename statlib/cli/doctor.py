"""``statlib doctor``: what is missing, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from statlib.cli.checks import Check, Level, folder_checks, machine_checks
from statlib.cli.output import answer, json_option
from statlib.cli.server_checks import server_checks, settings_checks
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import load_settings

EXIT_SOMETHING_FAILED = 1


@click.command()
@json_option
def doctor() -> None:
    """Check this installation and its database, one line each, with the command that mends what is wrong.

    Nothing is mended or changed. Exits with 1 if a check failed; a warning alone is 0.
    """
    checks = tuple(all_checks())
    failed = sum(check.level is Level.FAIL for check in checks)
    warned = sum(check.level is Level.WARN for check in checks)
    answer(
        {"checks": checks, "failed": failed, "warned": warned},
        [*map(_line, checks), f"{plural(len(checks), 'check')}: {failed} failed, {warned} warned"],
    )
    if failed:
        click.get_current_context().exit(EXIT_SOMETHING_FAILED)


def all_checks() -> Iterator[Check]:
    """In the order in which they are mended. Where the settings are refused, nothing that they name is asked."""
    yield from machine_checks()
    try:
        settings = load_settings()
    except Refusal as refusal:
        yield Check("settings", Level.FAIL, str(refusal), refusal.remedy)
        return
    yield from settings_checks(settings)
    yield from folder_checks(settings)
    yield from server_checks(settings)


def _line(check: Check) -> str:
    found = " ".join(check.found.split())
    remedy = f" -> {' '.join(check.remedy.split())}" if check.remedy else ""
    return f"{check.level:<4}  {check.name:<15}  {found}{remedy}"
