"""A run's parts in a process that is no kernel: nothing is shown, nothing is waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statlib.evidence.signing import generate_key
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import EvidenceSettings, Settings
from statlib.runbook.fragments import Code
from statlib.runbook.live import Live
from statlib.runbook.shell import in_kernel, show
from statlib.runbook.signing import signing_key


@pytest.mark.parametrize("loaded", [True, False], ids=["IPython loaded", "IPython not loaded"])
def test_nothing_is_shown(loaded: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if not loaded:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_kernel()
    show(Code("x"))
    with Live() as live:
        live.show(Code("y"))
    assert capsys.readouterr().out == ""


def test_the_key_that_seals_is_the_one_that_the_settings_name(tmp_path: Path) -> None:
    assert signing_key(Settings()) is None
    file = tmp_path / "key.pem"
    made = generate_key(file)
    found = signing_key(Settings(evidence=EvidenceSettings(signing_key_file=file)))
    assert found is not None
    assert found.key_id == made.key_id
    with pytest.raises(Refusal, match="KeyUnusable"):
        signing_key(Settings(evidence=EvidenceSettings(signing_key_file=tmp_path / "absent.pem")))


WAITED_FOR = {"nbformat", "jsonschema", "papermill", "nbclient", "jinja2", "fastapi", "uvicorn", "httpx", "pymongo",
    "matplotlib", "pandas", "numpy", "ipywidgets"}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "at_hand"),
    [("run", set()), ("interactive", set()), ("form", {"ipywidgets"}), ("site.build", {"jinja2"})],
)
def test_a_first_cell_waits_for_no_library_that_only_another_place_needs(module: str, at_hand: set[str]) -> None:
    """A kernel is new in every run: what a module loads there, every run waits for."""
    asked = f"import sys, statlib.runbook.{module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) & WAITED_FOR == at_hand
