"""The tiny runbook, installed as an application would install its own, and a watch on what gets started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest

from statlib.kernel.settings import Settings, load_settings
from statlib.runbook.catalogue import Runbook, find_runbook

REPOSITORY = Path(__file__).resolve().parents[2]

PARAMETERS_CELL = 'apply = False\nconfirm = ""\neffects = ""\nlines = 1\ncomparisons_min = 1'
BEGIN_CELL = (
    "from statlib.runbook.run import begin\n"
    "from tests.notebooks import tiny_book as tiny\n"
    'run = begin("tiny", apply=apply, confirm=confirm, effects=effects, lines=lines, comparisons_min=comparisons_min)'
)
PREFLIGHT_CELL = 'plan = run.step("preflight", tiny.preflight)\nplan'
ACT_CELL = 'done = run.act("append", tiny.append, plan.value)\ndone'
MEASURE_CELL = 'run.step("measure", tiny.measure, done.value)'
CLOSE_CELL = "run.close()"

WriteNotebook = Callable[..., Path]


@pytest.fixture
def write_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteNotebook:
    """Writes ``tiny.ipynb`` with the cells given in place of the usual ones after ``begin``."""
    folder = tmp_path / "runbooks"
    folder.mkdir()
    monkeypatch.setenv("STATLIB_RUNBOOKS", str(folder))

    def write(
        *cells: str, parameters: str = PARAMETERS_CELL, tags: tuple[str, ...] = ("parameters",), begin: str = BEGIN_CELL
    ) -> Path:
        notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        sources = [parameters, begin, *(cells or (PREFLIGHT_CELL, ACT_CELL, MEASURE_CELL, CLOSE_CELL))]
        notebook.cells = [
            nbformat.v4.new_markdown_cell("# Tiny"),  # type: ignore[no-untyped-call]
            *(nbformat.v4.new_code_cell(source) for source in sources),  # type: ignore[no-untyped-call]
        ]
        notebook.cells[1].metadata["tags"] = list(tags)
        path = folder / "tiny.ipynb"
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        return path

    return write


@pytest.fixture
def tiny(write_notebook: WriteNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runbook:
    """The tiny runbook, found through an entry point, with its usual notebook."""
    installed = tmp_path / "site"
    metadata = installed / "tiny_runbook-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-runbook\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        "[statlib.runbooks]\ntiny = tests.notebooks.tiny_book\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", f"{installed}:{REPOSITORY}")
    monkeypatch.setenv("STATLIB__DEPLOYMENT", "review-tests")
    write_notebook()
    return find_runbook("tiny")


@pytest.fixture
def settings() -> Settings:
    """Settings without a database: these runbooks need none."""
    return load_settings()


@dataclass
class Launches:
    """Command lines of the processes that this process started while watched."""

    seen: list[str] = field(default_factory=list)
    watching: bool = False

    @property
    def kernels(self) -> list[str]:
        return [line for line in self.seen if "ipykernel" in line]


_launches = Launches()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _launches.watching:
        _launches.seen.append(" ".join(map(str, arguments[1])))


sys.addaudithook(_audit)


@pytest.fixture
def launches() -> Iterator[Launches]:
    _launches.seen.clear()
    _launches.watching = True
    yield _launches
    _launches.watching = False
