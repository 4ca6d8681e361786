"""The lesson about the fold, run as a newcomer would: in an empty folder, with a server of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from statlib.local import process
from statlib.runbook.fold_tour import SETTLED_BEFORE

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "how_the_fold_works.ipynb"
SAVES = 40
ASKED = """
def numbers(of):
    at = of.point
    return at.served, at.stored, at.counted, at.pending, of.reason
"""
ANSWER = """
import json
print(json.dumps({
    "samples": {"before": numbers(before), "after": numbers(after), "changed": numbers(changed),
                "rebuilt": numbers(rebuilt), "alone": numbers(alone), "old": numbers(old)},
    "sent": sent.names, "arm": saved.arm.name, "folded": [folded.batches, folded.entries],
    "discarded": discarded.entries,
    "stream": [[p.served, p.stored, p.counted, p.pending] for p in stream.points],
}))
"""


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("STATLIB_CONFIG", raising=False)
    yield tmp_path
    process.kill(tmp_path / ".statlib" / "mongo" / "db")


def executed(folder: Path) -> Any:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    ask = nbformat.v4.new_code_cell(ASKED + ANSWER, id="ask")  # type: ignore[no-untyped-call]
    notebook.cells.insert(len(notebook.cells) - 1, ask)
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def test_a_save_travels_from_entry_to_row_while_the_served_number_stays_exact(empty_folder: Path) -> None:
    notebook = executed(empty_folder)
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    told = json.loads(outputs["ask"][0]["text"])
    one = SETTLED_BEFORE + 1
    assert (told["arm"], told["sent"]) == ("FOLD", ["aggregate", "findAndModify"])
    assert told["samples"]["before"] == [one, SETTLED_BEFORE, one, 1, ""]
    assert told["folded"] == [1, 1]
    assert told["samples"]["after"] == [one, one, one, 0, ""]
    many = one + SAVES
    assert [served for served, _, counted, _ in told["stream"] if served != counted] == []
    assert told["stream"][-1] == [many, many, many, 0]
    assert any(stored < served for served, stored, _, _ in told["stream"]), "nothing was ever pending"
    served, _, counted, pending, reason = told["samples"]["changed"]
    assert (served, counted, pending) == (many + 1, many + 1, 1)
    assert reason
    assert told["discarded"] == 1
    assert told["samples"]["rebuilt"] == [many + 1, many + 1, many + 1, 0, ""]
    assert told["samples"]["alone"] == [many + 2, many + 1, many + 2, 1, ""]
    assert told["samples"]["old"] == [many + 2, many + 1, many + 2, 1, "PendingOverlayUnavailable, TooOld"]
    for cell in ("read", "after", "stream", "old"):
        for output in outputs[cell]:
            assert "text/html" in output["data"], cell
