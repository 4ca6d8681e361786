"""Sealing: an in-toto statement over every file, written once, and only over a run that ended."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statlib import __version__
from statlib.evidence.bundle import Bundle, Statement, seal
from statlib.evidence.closing import close_run
from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal, read_journal
from statlib.evidence.json_values import decode
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Fault, Refusal
from tests.unit.evidence.soak_run import Story, leave_bundle, write_notebook, write_report


def close(folder: Path, ended: Verdict = Verdict.FAULT) -> str:
    """The least run that can be sealed; returns its head."""
    with Journal(Bundle(folder).journal) as journal:
        journal.append(EntryKind.RunStarted, runbook="r", run_id="1", apply=True, parameters={})
        head = close_run(journal, gates=(), verdict=ended)
    write_notebook(folder / "notebook.ipynb")
    write_report(folder / "report.html", ended, head)
    return head


def sealing(folder: Path, head: str, **changed: Any) -> Statement:
    given = {"parameters": {}, "environment": {}, "verdict": Verdict.FAULT, "journal_head": head} | changed
    return seal(folder, **given)


def test_the_manifest_is_an_in_toto_statement_over_every_file(tmp_path: Path) -> None:
    bundle = Bundle(leave_bundle(tmp_path / "run", Story()))
    manifest = decode(bundle.manifest.read_bytes())
    assert manifest["_type"] == "https://in-toto.io/Statement/v1"
    assert manifest["predicateType"].startswith("urn:statlib:")
    files = {path.relative_to(bundle.folder).as_posix() for path in bundle.folder.rglob("*") if path.is_file()}
    assert {subject["name"] for subject in manifest["subject"]} == files - {"manifest.json", "manifest.sha256"}
    for subject in manifest["subject"]:
        content = (bundle.folder / subject["name"]).read_bytes()
        assert subject["digest"] == {"sha256": hashlib.sha256(content).hexdigest()}
    predicate = manifest["predicate"]
    assert predicate["journal_head"] == read_journal(bundle.journal)[-1].hash
    assert predicate["statlib_version"] == __version__
    assert predicate["verdict"] == "rehearsal passed"
    assert predicate["environment"] == {"python": "3.11"}
    assert len(predicate["gates"]) == 12


def test_the_manifest_s_hash_is_what_sha256sum_reads(tmp_path: Path) -> None:
    sealing(tmp_path, close(tmp_path))
    checked = subprocess.run(
        ["sha256sum", "--check", "manifest.sha256"], cwd=tmp_path, check=False, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr


def test_a_sealed_folder_is_never_sealed_again(tmp_path: Path) -> None:
    head = close(tmp_path)
    sealing(tmp_path, head)
    before = Bundle(tmp_path).manifest.read_bytes()
    with pytest.raises(Refusal) as refused:
        sealing(tmp_path, head, environment={"other": 1})
    assert refused.value.reason is EvidenceReason.AlreadySealed
    assert Bundle(tmp_path).manifest.read_bytes() == before


def test_sealing_that_was_killed_half_way_starts_again(tmp_path: Path) -> None:
    head = close(tmp_path)
    (tmp_path / ".manifest.json.tmp").write_bytes(b"{")
    (tmp_path / "manifest.json").write_bytes(b"{}")
    sealing(tmp_path, head)
    found = verify(tmp_path)
    assert found.ok, found.findings


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"verdict": Verdict.SOAK_PASSED}, "not soak passed"), ({"journal_head": "0" * 64}, "head is")],
    ids=["verdict", "head"],
)
def test_a_seal_cannot_say_otherwise_than_the_journal(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=told) as refused:
        sealing(tmp_path, close(tmp_path), **changed)
    assert refused.value.reason is EvidenceReason.RunNotClosed


@pytest.mark.parametrize(
    "tell",
    [
        lambda journal: None,
        lambda journal: journal.append(EntryKind.Note, text="no start"),
        lambda journal: journal.append(EntryKind.RunStarted, runbook="r", run_id="1", apply=True, parameters={}),
    ],
    ids=["empty", "not started", "not closed"],
)
def test_a_run_that_did_not_end_is_not_sealed(tell: Callable[[Journal], object], tmp_path: Path) -> None:
    with Journal(Bundle(tmp_path).journal) as journal:
        tell(journal)
        head = journal.head
    with pytest.raises(Refusal) as refused:
        sealing(tmp_path, head)
    assert refused.value.reason is EvidenceReason.RunNotClosed
    assert not Bundle(tmp_path).manifest.exists()


def test_a_run_with_an_open_step_neither_closes_nor_seals(tmp_path: Path) -> None:
    with Journal(Bundle(tmp_path).journal) as journal:
        journal.append(EntryKind.RunStarted, runbook="r", run_id="1", apply=True, parameters={})
        journal.append(EntryKind.StepStarted, step="hold")
        with pytest.raises(Refusal, match="hold") as refused:
            close_run(journal, gates=(), verdict=Verdict.FAULT)
        assert refused.value.reason is EvidenceReason.RunNotClosed
        head = journal.append(EntryKind.RunClosed, verdict="fault").hash
    with pytest.raises(Refusal, match="hold"):
        sealing(tmp_path, head)


@pytest.mark.parametrize("name", ["notebook.ipynb", "report.html"])
def test_a_bundle_without_notebook_or_report_is_not_sealed(name: str, tmp_path: Path) -> None:
    head = close(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(Refusal, match=name) as refused:
        sealing(tmp_path, head)
    assert refused.value.reason is EvidenceReason.BundleIncomplete


def test_a_link_is_not_sealed(tmp_path: Path) -> None:
    head = close(tmp_path)
    (tmp_path / "evidence/link.json").symlink_to(tmp_path / "report.html")
    with pytest.raises(Refusal, match=r"evidence/link\.json is not a plain file"):
        sealing(tmp_path, head)


def test_an_environment_that_json_cannot_say_is_not_sealed(tmp_path: Path) -> None:
    head = close(tmp_path)
    with pytest.raises(Fault):
        sealing(tmp_path, head, environment={"cores": float("nan")})
    assert not Bundle(tmp_path).manifest_digest.exists()
