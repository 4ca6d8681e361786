"""The statistics explorer, executed as an operator would on a review that was just loaded and worked on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from statlib.local import process
from statlib.review.catalogue import REVIEW
from tests.oracles.few_articles import few_articles
from tests.oracles.real_data import real_review

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "statistics_explorer.ipynb"
SIMULATED = """
import statlib
statlib.up()
review = statlib.load(statlib.SimulatedReview(studies=40, name="Explored").load())
members = [member.investigator_id for member in review.project.memberships]
with statlib.host("api") as host:
    writer = statlib.ScreeningWriter(host, review.project.id)
    for number, study in enumerate(review.studies):
        for member in members[: number % 3]:
            writer.submit(study.id, member, list(statlib.Decision)[number % 2])
"""


RECORDED = """
import statlib
from pathlib import Path
from statlib.review.loading.detection import detect
from statlib.review.loading.replay import EventWriter
statlib.up()
folder = Path("{folder}")
review = statlib.load(detect(folder).load(folder))
with statlib.host("api") as host, statlib.boundary() as operator:
    writer = EventWriter(host, review.project.id)
    for event in review.in_order:
        writer.submit(event)
    for family in {families}:
        operator.backfill(review.project.id, family)
"""


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("STATLIB_CONFIG")
    yield tmp_path
    process.kill(tmp_path / ".statlib" / "mongo" / "db")


def executed(folder: Path, prepare: str, parameters: str = "") -> dict[str, list[dict[str, str]]]:
    """What each code cell showed, {mime type: content} per output, with ``prepare`` run before the first."""
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    if parameters:
        (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
        cell.source = parameters
    notebook.cells.insert(0, nbformat.v4.new_code_cell(prepare, id="prepare"))  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(folder)}}).execute()
    return {
        cell.id: [dict(out.get("data", {})) for out in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def words(outputs: list[dict[str, str]]) -> str:
    return "".join(output.get("text/plain", "") for output in outputs)


def test_every_cell_shows_something_about_the_review_that_is_there(empty_folder: Path) -> None:
    shown = executed(empty_folder, SIMULATED)
    stylesheet, overview = (output["text/html"] for output in shown["open"])
    assert stylesheet.startswith("<style>"), "without it, a cell would show both widths of every figure"
    assert "Explored" in overview
    assert "seed" in words(shown["open"]) or "imulated" in words(shown["open"])
    for cell in ("progress", "agreement", "workload"):
        assert words(shown[cell])
        assert "Nothing to show" not in words(shown[cell]), cell
    assert "no folder of raw files is named" in words(shown["raw"])


def test_every_served_counter_of_a_real_review_is_what_pandas_counts_in_its_raw_files(
    empty_folder: Path, tmp_path: Path
) -> None:
    export = few_articles(real_review("hardwicke2023_transparency"), tmp_path / "export", 12)
    shown = executed(
        empty_folder,
        RECORDED.format(folder=export, families=list(REVIEW.families)),
        f'project = ""\nraw_files = "{export}"',
    )
    text = words(shown["raw"])
    assert text.startswith("Equal: all "), text
    assert "stored counters" in text
    rows = [line.split() for line in text.splitlines()[3:]]
    assert [row[0] for row in rows] == list(REVIEW.families)
    assert {row[-1] for row in rows} == {"all"}
    assert all(int(row[1]) > 0 for row in rows)
    assert words(shown["answers"]).count("%") > 10
