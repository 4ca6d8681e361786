"""``statlib bench``: figures that a reader decides by, paired within one run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from statlib.bench.language import Report, table
from statlib.cli.output import answer, json_option
from statlib.kernel.settings import load_settings

BENCHES = {
    "write": """What statistics cost a save, in every arm and under every load.

    Answers with cells (latencies in ms, p95 the median of the repeats) and with figures; every count is compared
    with the source at the end. The full form takes some fifteen minutes.
    """,
    "fold": """How fast pending entries are folded, beside how fast saves come, and how far rows lag behind saves.

    The full form takes some five minutes.
    """,
    "read": """What a page costs served and calculated, by size of the project and by family; what a save costs there.

    Served and calculated reads take turns, and their values are compared. The full form makes projects of 1,000,
    10,000 and 100,000 studies and takes some five minutes. In the end some studies are left pending, and read with.
    """,
    "rebuild": """What rebuilding costs: each family over its bare aggregation, and all over the sum of single rebuilds.

    The full form makes a project of 100,000 studies and takes some three minutes.
    """,
    "backfill": """What a data backfill costs over a bare loop of SQL, and what the foreground feels of it.

    On a PostgreSQL of its own. The full form repairs 1,000,000 generated records ten times over.
    """,
    "runbook": """What a run costs over bare papermill, and one more run in an archive of any size.

    Needs no server. Archives of up to 10,000 runs are made in a temporary folder; the full form takes some five
    minutes, most of them for making those.
    """,
}
"""By name, which is also that of the module in ``statlib.bench``: what is measured."""


@click.group()
def bench() -> None:
    """Measure, on servers of their own; nothing of yours is touched."""


def _command(name: str, text: str) -> click.Command:
    @click.command(name, help=text)
    @click.option("--quick", is_flag=True, help="The short form, within a minute: for a look, not for figures.")
    @json_option
    def measure(quick: bool) -> None:
        measured: Any = import_module(f"statlib.bench.{name}")  # needs extras, the others do not
        plan = measured.QUICK if quick else measured.Plan()
        report = measured.run(
            plan, short_form=quick, settings=load_settings(), progress=lambda line: click.echo(line, err=True)
        )
        answer(report, _lines(report))

    return measure


for _name, _text in BENCHES.items():
    bench.add_command(_command(_name, _text))


def _lines(report: Report) -> list[str]:
    form = "short form: for a look, not for figures" if report.short_form else "full form"
    where = ", ".join(f"{key} {value}" for key, value in report.environment.items())
    width = max(map(len, report.figures))
    figures = [f"{name.ljust(width)}  {value:,.2f}" for name, value in report.figures.items()]
    return [f"bench {report.bench} ({form})", where, "", *table(report.cells), "", *figures]
