"""The smallest whole runbook: it opens, takes one step, expects one thing, and closes. Only benchmarks find it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from statlib.evidence.expectations import EXPECTATIONS, Expectation
from statlib.evidence.results import Comparison
from statlib.runbook.catalogue import ENTRY_POINT_GROUP, Runbook
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.run import Run

NAME = "bench_trivial"
CELLS = (
    "number = 2",
    "from statlib.bench import trivial_book as book\n"
    "from statlib.runbook.run import begin\n"
    f'run = begin("{NAME}", number=number)',
    'run.step("double", book.double)',
    "run.close()",
)
BARE_CELLS = ("number = 2", "import json", "doubled = number * 2\ndoubled", "json.dumps(doubled)")


class Parameters(RunbookParameters):
    number: int = 2


class Doubled(BaseModel):
    doubled: int


RUNBOOK = Runbook(name=NAME, summary="Double a number.", parameters=Parameters, offline=True)


def double(run: Run[Parameters]) -> Doubled:
    doubled = run.parameters.number * 2
    row = Expectation(
        key="doubled", title="Twice the number", expected=4, measured=doubled, comparison=Comparison.EXACTLY
    )
    with run.captures.lines(EXPECTATIONS) as rows:
        rows.append(row)
    return Doubled(doubled=doubled)


def write_notebook(path: Path, cells: tuple[str, ...]) -> Path:
    """One code cell each, the first tagged as parameters."""
    import nbformat  # noqa: PLC0415 - its import takes longer than the step: no kernel is to wait for it

    notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]  # type: ignore[no-untyped-call]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return path


def install(folder: Path) -> None:
    """Make the runbook known to kernels that have ``folder`` on their path, as an application makes its own known."""
    metadata = folder / f"{NAME}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[{ENTRY_POINT_GROUP}]\n{NAME} = {__name__}\n"
    (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")
