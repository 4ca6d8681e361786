"""A run's parts in a process that is no kernel: nothing is shown, nothing is waited for."""

from __future__ import annotations

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
