"""A sealed run is accepted as it is, and refused, by name, after any change to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.bundle import Bundle, digest_line
from statlib.evidence.entries import EntryKind, Sha256, sealed
from statlib.evidence.json_values import decode, encode, sha256_of_file
from statlib.evidence.soak_captures import SEVEN_DAYS_S
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import Assurance, Check, Verification, verify
from statlib.kernel.refusals import Refusal, SettingsReason
from tests.unit.evidence.soak_run import (
    CELLS,
    THRESHOLDS,
    Raw,
    Story,
    at,
    leave_bundle,
    parity,
    write_notebook,
    write_report,
)

JOURNAL = "evidence/journal.jsonl"


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return leave_bundle(tmp_path_factory.mktemp("sealed") / "run", Story())


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def subjects(found: Verification) -> str:
    return "\n".join(map(str, found.findings))


def reseal(folder: Path, **predicate: Any) -> None:
    """What a forger does who knows how manifests are made: every file's hash is made right again."""
    bundle = Bundle(folder)
    manifest = decode(bundle.manifest.read_bytes())
    manifest["predicate"] |= predicate
    manifest["subject"] = [
        {"name": bundle.name_of(path), "digest": {"sha256": sha256_of_file(path)}}
        for path in sorted(bundle.files(), key=bundle.name_of)
    ]
    content = encode(manifest)
    bundle.manifest.write_bytes(content)
    bundle.manifest_digest.write_bytes(digest_line(content))


def rechain(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> str:
    """What a forger does who also knows the chain: changes entries and hashes them all anew."""
    bundle = Bundle(folder)
    entries = [decode(line) for line in bundle.journal.read_bytes().splitlines()]
    change(entries)
    head: Sha256 = "0" * 64
    for number, entry in enumerate(entries, start=1):
        entry |= {"seq": number, "previous": head}
        head = entry["hash"] = sealed(entry)
    bundle.journal.write_bytes(b"".join(encode(entry) + b"\n" for entry in entries))
    return head


def test_a_sealed_run_is_accepted(original: Path) -> None:
    found = verify(original)
    assert found.ok, subjects(found)
    assert found.verdict is Verdict.REHEARSAL_PASSED
    assert found.assurance is Assurance.UNDAMAGED
    assert "not that nobody rewrote" in found.assurance.meaning
    assert found.files == len(files_of(original)) - 2


def test_seven_real_days_are_a_soak(tmp_path: Path) -> None:
    window = {
        "started_at": at(0),
        "ended_at": at(SEVEN_DAYS_S),
        "monotonic_s": SEVEN_DAYS_S,
        "clock_offset_ms": 0,
    }
    thresholds = THRESHOLDS.model_copy(update={"duration_s": SEVEN_DAYS_S})
    found = verify(leave_bundle(tmp_path, Story(raw=replace(Raw(), window=window), thresholds=thresholds)))
    assert found.ok, subjects(found)
    assert found.verdict is Verdict.SOAK_PASSED


def test_a_failed_run_is_good_evidence_of_a_failure(tmp_path: Path) -> None:
    raw = replace(Raw(), parity=[parity(exact=False)] * 3)
    found = verify(leave_bundle(tmp_path, Story(raw=raw)))
    assert found.ok, subjects(found)
    assert found.verdict is Verdict.FAILED


def test_every_flipped_byte_is_refused_and_its_file_named(folder: Path) -> None:
    for path in files_of(folder):
        content = path.read_bytes()
        step = max(1, len(content) // 10)
        for place in {*range(0, len(content), step), len(content) - 1}:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            found = verify(folder)
            assert path.relative_to(folder).as_posix() in subjects(found), (path, place)
        path.write_bytes(content)
    assert verify(folder).ok


def test_every_truncated_file_is_refused_and_named(folder: Path) -> None:
    for path in files_of(folder):
        content = path.read_bytes()
        for length in {0, len(content) // 2, len(content) - 1}:
            path.write_bytes(content[:length])
            assert path.relative_to(folder).as_posix() in subjects(verify(folder)), (path, length)
        path.write_bytes(content)
    assert verify(folder).ok


def test_every_deleted_file_is_refused_and_named(folder: Path) -> None:
    for path in files_of(folder):
        content = path.read_bytes()
        path.unlink()
        assert path.relative_to(folder).as_posix() in subjects(verify(folder)), path
        path.write_bytes(content)
    assert verify(folder).ok


@pytest.mark.parametrize("name", ["extra.txt", "evidence/captures/extra.json", ".hidden", "evidence/more/extra.json"])
def test_an_added_file_is_refused_and_named(name: str, folder: Path) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    assert f"{name}: is in the folder and not in the manifest" in subjects(verify(folder))


@pytest.mark.parametrize("target", ["evidence/captures/window.json", "evidence/captures"])
def test_a_link_is_no_file(target: str, folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    (folder / target).rename(moved)
    (folder / target).symlink_to(moved)
    found = verify(folder)
    assert not found.ok
    assert target in subjects(found)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: lines.pop(3), 4),
        (lambda lines: lines.pop(0), 1),
        (lambda lines: lines.pop(), None),
        (lambda lines: lines.insert(3, lines[3]), 5),
        (lambda lines: lines.append(lines[-1]), None),
        (lambda lines: lines.insert(2, lines.pop(4)), 3),
        (lambda lines: lines.insert(4, b"not json"), 5),
        (lambda lines: lines.insert(4, b""), 5),
        (lambda lines: lines.insert(4, b'{"seq":' + b"9" * 40 + b"}"), 5),
        (lambda lines: lines.insert(4, b"[" * 100_000), 5),
    ],
    ids=["dropped", "first", "last", "doubled", "last doubled", "moved", "text", "blank", "huge", "deep"],
)
def test_a_tampered_journal_is_refused_even_when_the_manifest_agrees(
    change: Callable[[list[bytes]], object], line: int | None, folder: Path
) -> None:
    bundle = Bundle(folder)
    lines = bundle.journal.read_bytes().splitlines()
    change(lines)
    bundle.journal.write_bytes(b"".join(text + b"\n" for text in lines))
    reseal(folder)
    found = [finding for finding in verify(folder).findings if finding.check is Check.JOURNAL]
    assert found
    if line is not None:
        assert found[0].subject == f"{JOURNAL} line {line}"


def test_a_torn_tail_is_refused(folder: Path) -> None:
    with Bundle(folder).journal.open("ab") as journal:
        journal.write(b'{"seq":')
    reseal(folder)
    assert "is torn" in subjects(verify(folder))


def test_one_dropped_line_is_told_once(folder: Path) -> None:
    bundle = Bundle(folder)
    lines = bundle.journal.read_bytes().splitlines(keepends=True)
    bundle.journal.write_bytes(b"".join(lines[:2] + lines[3:]))
    reseal(folder)
    told = [str(finding) for finding in verify(folder).findings if finding.check is Check.JOURNAL]
    assert len(told) == 2  # the sequence number and the chain, both at the line that follows the gap
    assert all(text.startswith(f"{JOURNAL} line 3:") for text in told)


@pytest.mark.parametrize("edited", sorted(set(Verdict) - {Verdict.REHEARSAL_PASSED}))
def test_an_edited_verdict_is_refused_though_the_manifest_was_sealed_again(edited: Verdict, folder: Path) -> None:
    reseal(folder, verdict=edited.value)
    found = [finding for finding in verify(folder).findings if finding.check is Check.VERDICT]
    assert [finding.subject for finding in found] == ["manifest.json"]
    assert edited in found[0].problem


@pytest.mark.parametrize("edited", sorted(set(Verdict) - {Verdict.REHEARSAL_PASSED, Verdict.FAULT}))
def test_an_edited_verdict_is_refused_though_the_whole_chain_was_made_anew(edited: Verdict, folder: Path) -> None:
    """A fault alone needs no witness in the journal: nobody gains by calling a pass one."""

    def change(entries: list[dict[str, Any]]) -> None:
        entries[-1]["data"]["verdict"] = edited.value

    head = rechain(folder, change)
    write_report(folder / "report.html", edited, head)
    reseal(folder, verdict=edited.value, journal_head=head)
    found = verify(folder)
    assert {finding.check for finding in found.findings} == {Check.VERDICT}


def test_a_gate_edited_everywhere_is_refused(folder: Path) -> None:
    """The measured value is changed in journal and manifest alike; only the capture still says what it was."""

    def change(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            if entry["data"].get("key") == "fallback_rate":
                entry["data"]["measured"] = 0

    head = rechain(folder, change)
    write_report(folder / "report.html", Verdict.REHEARSAL_PASSED, head)
    gates = decode(Bundle(folder).manifest.read_bytes())["predicate"]["gates"]
    for gate in gates:
        gate["measured"] = 0 if gate["key"] == "fallback_rate" else gate["measured"]
    reseal(folder, gates=gates, journal_head=head)
    found = verify(folder)
    assert [finding.subject for finding in found.findings] == ["gate fallback_rate"]
    assert "measured is 0.0, derived 10.0" in subjects(found)


@pytest.mark.parametrize(
    "predicate",
    [
        {"gates": []},
        {"parameters": {"apply": True, "duration_s": 61}},
        {"run_id": "4567"},
        {"runbook": "another"},
        {"journal_head": "1" * 64},
        {"verdict": "excellent"},
        {"unknown": 1},
    ],
    ids=lambda predicate: next(iter(predicate)),
)
def test_an_edited_manifest_is_refused_though_its_hash_was_made_anew(predicate: dict[str, Any], folder: Path) -> None:
    reseal(folder, **predicate)
    found = verify(folder)
    assert not found.ok
    assert "manifest.json" in subjects(found)


def test_a_subject_listed_twice_is_refused(folder: Path) -> None:
    bundle = Bundle(folder)
    manifest = decode(bundle.manifest.read_bytes())
    manifest["subject"].append(manifest["subject"][0])
    bundle.manifest.write_bytes(content := encode(manifest))
    bundle.manifest_digest.write_bytes(digest_line(content))
    assert f"{manifest['subject'][0]['name']}: is listed more than once" in subjects(verify(folder))


def test_a_manifest_in_another_layout_is_refused(folder: Path) -> None:
    bundle = Bundle(folder)
    content = json.dumps(decode(bundle.manifest.read_bytes()), indent=1).encode()
    bundle.manifest.write_bytes(content)
    bundle.manifest_digest.write_bytes(digest_line(content))
    assert "manifest.json: is not in canonical form" in subjects(verify(folder))


def test_an_unexecuted_cell_is_refused_and_named(tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(executed=("parameters",))))
    assert subjects(found) == "notebook.ipynb cell act: was not executed"


@pytest.mark.parametrize(
    ("ended", "between"),
    [
        (Verdict.INTERRUPTED, lambda journal: journal.append(EntryKind.Interrupted, by="SIGTERM")),
        (Verdict.REFUSED, lambda journal: journal.append(EntryKind.Refused, reason="GateSkew")),
        (Verdict.FAULT, lambda journal: journal.append(EntryKind.Note, text="the kernel died")),
    ],
    ids=lambda value: str(value) if isinstance(value, Verdict) else "",
)
def test_a_run_that_says_it_was_cut_short_may_leave_cells_unexecuted(
    ended: Verdict, between: Callable[[Any], object], tmp_path: Path
) -> None:
    story = Story(executed=("parameters",), verdict=ended, between=between, raw=Raw().without("parity"), gates=False)
    found = verify(leave_bundle(tmp_path, story))
    assert found.ok, subjects(found)
    assert found.verdict is ended


@pytest.mark.parametrize("ended", [Verdict.INTERRUPTED, Verdict.REFUSED])
def test_a_run_cut_short_by_nothing_on_record_is_refused(ended: Verdict, tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(executed=(), verdict=ended)))
    assert {finding.check for finding in found.findings} == {Check.VERDICT}


def test_a_dry_run_is_accepted_as_one(tmp_path: Path) -> None:
    story = Story(apply=False, thresholds=None, raw=Raw(**dict.fromkeys(Raw.__dataclass_fields__)))
    story.steps = (("preflight", "done"), ("hold the window", "dry-run"), ("gates", "skipped"))
    found = verify(leave_bundle(tmp_path, story))
    assert found.ok, subjects(found)
    assert found.verdict is Verdict.DRY_RUN_ONLY


def test_a_dry_run_may_not_pass(tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(apply=False, verdict=Verdict.REHEARSAL_PASSED)))
    assert "gives the verdict 'rehearsal passed'; it is 'dry run only'" in subjects(found)


@pytest.mark.parametrize("claimed", [Verdict.SOAK_PASSED, Verdict.FAILED])
def test_a_rehearsal_may_not_be_called_anything_else(claimed: Verdict, tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(verdict=claimed)))
    assert f"gives the verdict {str(claimed)!r}; it is 'rehearsal passed'" in subjects(found)


def test_a_verdict_by_gates_needs_thresholds_and_gates(tmp_path: Path) -> None:
    without = Story(thresholds=None, verdict=Verdict.REHEARSAL_PASSED)
    assert "captures/thresholds.json" in subjects(verify(leave_bundle(tmp_path / "a", without)))
    unrecorded = Story(gates=False, verdict=Verdict.REHEARSAL_PASSED)
    assert "gate parity_mismatches: is missing from" in subjects(verify(leave_bundle(tmp_path / "b", unrecorded)))


def test_a_cell_that_ran_with_another_source_is_refused(tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(source_of=lambda source: source.replace("run", "fun"))))
    assert subjects(found) == "notebook.ipynb cell act: was executed with another source than the notebook shows"


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ((*CELLS, ("late", "code", "1")), "cell late: was not executed"),
        (CELLS[:2], "cell act: was executed and is not in the notebook"),
        ((CELLS[0], CELLS[2], CELLS[1]), "cell act: was executed as cell 2 and stands at 1"),
        ((*CELLS, CELLS[2]), "cell act: is there 2 times"),
        ((*CELLS, ("blank", "code", "  ")), ""),
        ((), "declares no code cell"),
    ],
    ids=["added", "removed", "moved", "doubled", "blank", "none"],
)
def test_the_notebook_must_be_the_one_that_ran(
    cells: tuple[tuple[str, str, str], ...], told: str, folder: Path
) -> None:
    write_notebook(folder / "notebook.ipynb", cells)
    reseal(folder)
    found = verify(folder)
    assert found.ok is (not told)
    assert told in subjects(found)


def test_a_pass_with_an_error_in_a_cell_is_refused(folder: Path) -> None:
    path = folder / "notebook.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][2]["outputs"] = [{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]
    path.write_text(json.dumps(notebook))
    reseal(folder)
    assert "cell act: ended in an error" in subjects(verify(folder))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"cells": [{"id": ""}]}', b"\xff", b'{"cells": [NaN]}'])
def test_what_is_no_notebook_is_refused(content: bytes, folder: Path) -> None:
    (folder / "notebook.ipynb").write_bytes(content)
    reseal(folder)
    assert "notebook.ipynb: is no" in subjects(verify(folder))


@pytest.mark.parametrize("outcome", ["refused", "failed", "dry-run"])
def test_a_pass_with_a_step_that_was_not_done_is_refused(outcome: str, tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(steps=(("hold the window", outcome),))))
    assert f"step hold the window: ended as {outcome}" in subjects(found)


def test_a_step_that_was_done_after_a_refusal_is_accepted(tmp_path: Path) -> None:
    found = verify(leave_bundle(tmp_path, Story(steps=(("hold", "refused"), ("hold", "done")))))
    assert found.ok, subjects(found)


def test_a_closing_word_that_is_no_verdict_is_refused(folder: Path) -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        entries[-1]["data"]["verdict"] = "excellent"

    reseal(folder, journal_head=rechain(folder, change))
    assert "closes with 'excellent', which is no verdict" in subjects(verify(folder))


def test_a_capture_journaled_twice_is_refused(folder: Path) -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        capture = next(entry for entry in entries if entry["kind"] == EntryKind.Capture)
        entries.insert(-1, capture | {})

    reseal(folder, journal_head=rechain(folder, change))
    assert "evidence/captures/window.json: is journaled again in line" in subjects(verify(folder))


def test_a_gate_stated_twice_is_refused(folder: Path) -> None:
    gates = decode(Bundle(folder).manifest.read_bytes())["predicate"]["gates"]
    reseal(folder, gates=[*gates, gates[0]])
    assert "manifest.json: states a gate twice" in subjects(verify(folder))


def test_a_gate_that_cannot_be_derived_is_refused(folder: Path) -> None:
    gates = decode(Bundle(folder).manifest.read_bytes())["predicate"]["gates"]
    reseal(folder, gates=[*gates, gates[0] | {"key": "invented"}])
    assert "gate invented: is stated in manifest.json and cannot be derived" in subjects(verify(folder))


def drop_first(kind: EntryKind) -> Callable[[list[dict[str, Any]]], None]:
    def change(entries: list[dict[str, Any]]) -> None:
        entries.remove(next(entry for entry in entries if entry["kind"] == kind))

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop_first(EntryKind.StepClosed), "step hold the window: was started and never closed"),
        (drop_first(EntryKind.StepStarted), "step hold the window: was closed in line 4 and never started"),
        (drop_first(EntryKind.CellExecuted), "cell parameters: was not executed"),
        (drop_first(EntryKind.Capture), "evidence/captures/window.json: is no capture that the journal knows"),
        (drop_first(EntryKind.GateDerived), "gate elapsed_window: is missing from evidence/journal.jsonl"),
        (drop_first(EntryKind.RunStarted), "line 1: is not RunStarted"),
        (drop_first(EntryKind.RunClosed), "does not end with RunClosed"),
        (lambda entries: entries.insert(5, entries[-1] | {}), "line 6: closes the run before its last line"),
    ],
    ids=["step end", "step start", "cell", "capture", "gate", "start", "end", "two ends"],
)
def test_an_entry_left_out_is_missed_though_all_hashes_were_made_anew(
    change: Callable[[list[dict[str, Any]]], None], told: str, folder: Path
) -> None:
    head = rechain(folder, change)
    write_report(folder / "report.html", Verdict.REHEARSAL_PASSED, head)
    reseal(folder, journal_head=head)
    assert told in subjects(verify(folder))


def test_a_capture_deleted_from_folder_and_manifest_is_missed(folder: Path) -> None:
    (folder / "evidence/captures/receipts.jsonl").unlink()
    reseal(folder)
    assert "evidence/captures/receipts.jsonl: is journaled and missing" in subjects(verify(folder))


def test_a_capture_edited_in_folder_and_manifest_is_noticed(folder: Path) -> None:
    path = folder / "evidence/captures/reads.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"latency_ms":1.1', b'"latency_ms":1.2', 1))
    reseal(folder)
    assert subjects(verify(folder)) == (
        "evidence/captures/reads.jsonl: does not have the SHA-256 that the journal gives"
    )


@pytest.mark.parametrize("file", ["../../outside.json", "captures/../../outside.json", "/etc/window.json"])
def test_a_journal_cannot_lead_the_verifier_out_of_the_folder(file: str, folder: Path) -> None:
    (folder.parent / "outside.json").write_bytes((folder / "evidence/captures/window.json").read_bytes())

    def change(entries: list[dict[str, Any]]) -> None:
        next(entry for entry in entries if entry["data"].get("name") == "window")["data"]["file"] = file

    head = rechain(folder, change)
    reseal(folder, journal_head=head)
    told = subjects(verify(folder))
    assert f"evidence/{file}: is journaled and missing" in told
    assert f"{file} is outside the captures folder" in told


@pytest.mark.parametrize(
    ("verdict", "head", "told"),
    [
        ("soak passed", None, "its statlib-verdict is 'soak passed', not 'rehearsal passed'"),
        ("rehearsal passed", "0" * 64, "its statlib-journal-head is"),
        ('x"><meta name="statlib-verdict" content="rehearsal passed', None, "has 2 <meta name='statlib-verdict'>"),
    ],
    ids=["verdict", "head", "two"],
)
def test_a_report_that_says_otherwise_is_refused(verdict: str, head: str | None, told: str, folder: Path) -> None:
    write_report(folder / "report.html", verdict, head or verify(folder).journal_head or "")
    reseal(folder)
    assert told in subjects(verify(folder))


def test_a_report_that_says_nothing_is_refused(folder: Path) -> None:
    (folder / "report.html").write_text("<p>passed</p>")
    reseal(folder)
    assert "has 0 <meta name='statlib-verdict'>" in subjects(verify(folder))
    (folder / "report.html").write_bytes(b"\xff")
    assert "report.html: is not UTF-8" in subjects(verify(folder))


def test_findings_cannot_steer_a_terminal(folder: Path) -> None:
    (folder / "\x1b[2Jcleared").write_text("")
    assert "\\x1b[2Jcleared: is in the folder" in subjects(verify(folder))


def test_an_empty_folder_is_refused_by_every_file_that_it_lacks(tmp_path: Path) -> None:
    told = subjects(verify(tmp_path))
    for name in ("manifest.json", JOURNAL, "notebook.ipynb", "report.html"):
        assert name in told


def test_no_folder_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        verify(tmp_path / "none")
    assert refused.value.reason is SettingsReason.InputUnreadable
