"""The statistics explorer, executed as an operator would on a review that was just loaded and worked on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from statlib.local import process

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "statistics_explorer.ipynb"
PREPARE = """
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


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("STATLIB_CONFIG")
    yield tmp_path
    process.kill(tmp_path / ".statlib" / "mongo" / "db")


def test_every_cell_shows_something_about_the_review_that_is_there(empty_folder: Path) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PREPARE, id="prepare"))  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(empty_folder)}}).execute()
    shown = {
        cell.id: "".join(out.get("data", {}).get("text/plain", "") for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    assert "Explored" in shown["open"]
    assert "seed" in shown["open"] or "imulated" in shown["open"]
    for cell in ("progress", "agreement", "workload"):
        assert shown[cell]
        assert "Nothing to show" not in shown[cell], cell
