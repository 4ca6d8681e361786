"""The quickstart and the README's example, run as a newcomer would: in an empty folder, with a server of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from statlib.local import process

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
TIMEOUT_S = 180  # of a cell; one of them waits out the grace of an opening


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without settings or data; a server that the notebook leaves there is stopped."""
    monkeypatch.delenv("STATLIB_CONFIG")
    yield tmp_path
    process.kill(tmp_path / ".statlib" / "mongo" / "db")


def said(notebook: Any) -> Mapping[str, str]:
    """What each cell said, printed or shown, by the cell's id."""
    return {
        cell.id: "".join(out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_the_quickstart_shows_what_its_prose_says(empty_folder: Path) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(empty_folder)}}).execute()
    shown = said(notebook)
    assert re.fullmatch(r"MongoDB [\d.]+ started on port \d+; its data are in .*/\.statlib\n", shown["up"])
    assert shown["load"] == "('Quickstart', 200)"
    assert shown["backfill"] == "True"
    assert shown["write"] == "(False, True, True)"
    assert shown["read"].startswith("materialised ('aggregate',)\n")
    assert "'Inclusions': 1" in shown["read"]
    assert "'Class/Excluded': 1" in shown["correct"]
    assert "'Inclusions'" not in shown["correct"]
    assert shown["parity"] == "(True, 0)"
    assert shown["close"] == "authoritative ProjectDisabled\nTrue"
    assert "'reason': 'WriterGracePending'" in shown["open"]
    assert shown["served"] == "materialised None\n"


@pytest.mark.parametrize(
    ("page", "printed"), [("README.md", "materialised 1\n"), ("docs/application.md", "materialised 1 1\n")]
)
def test_a_page_s_example_prints_what_it_says(empty_folder: Path, page: str, printed: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example],
        cwd=empty_folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert ran.stderr == ""
    assert ran.stdout == f"{example.rpartition('# ')[2].strip()}\n" == printed
