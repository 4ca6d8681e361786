"""Captures are whole, named in the journal, never overwritten, and told apart from what a dead writer left."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.entries import CaptureData, EntryKind
from statlib.evidence.journal import Journal, read_journal
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.soak_captures import Refusals
from statlib.kernel.refusals import Fault, Refusal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.jsonl") as opened:
        yield opened


@pytest.fixture
def captures(tmp_path: Path, journal: Journal) -> Captures:
    return Captures(tmp_path, journal)


def journaled(journal: Journal) -> list[CaptureData]:
    return [CaptureData.model_validate(e.data) for e in journal.entries if e.kind is EntryKind.Capture]


def test_a_value_is_stored_canonically_and_its_hash_journaled(
    captures: Captures, journal: Journal, tmp_path: Path
) -> None:
    ref = captures.write("backlog", {"b": 1, "a": [1.5, None]})
    content = (tmp_path / "captures/backlog.json").read_bytes()
    assert content == b'{"a":[1.5,null],"b":1}'
    assert ref.sha256 == hashlib.sha256(content).hexdigest()
    (entry,) = journaled(journal)
    assert (entry.file, entry.sha256, entry.size_bytes) == (ref.file, ref.sha256, ref.size_bytes)
    assert (entry.rows, entry.complete) == (None, True)


def test_a_name_written_again_is_never_overwritten(captures: Captures, journal: Journal, tmp_path: Path) -> None:
    for value in (1, 2, 3):
        captures.write("n", value)
    with captures.lines("n") as lines:
        lines.append({})
    assert [data.file for data in journaled(journal)] == [
        "captures/n.json",
        "captures/n-2.json",
        "captures/n-3.json",
        "captures/n.jsonl",
    ]
    assert (tmp_path / "captures/n.json").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a.b", "UP", "a-2", "-a", "a b", "a\n"])
def test_a_name_that_could_mislead_is_refused(name: str, captures: Captures, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="cannot name a capture"):
        captures.write(name, 1)
    with pytest.raises(Fault, match="cannot name a capture"):
        captures.lines(name)
    assert list((tmp_path / "captures").iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 2**53, object(), {"deep": [float("nan")]}])
def test_what_json_cannot_say_leaves_nothing_behind(value: Any, captures: Captures, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="JSON values"):
        captures.write("n", value)
    assert list((tmp_path / "captures").iterdir()) == []


def test_rows_are_journaled_when_the_capture_closes(captures: Captures, journal: Journal, tmp_path: Path) -> None:
    with captures.lines("rows") as lines:
        lines.append({"n": 1})
        lines.append(Refusals(capacity_refused=2))
        with pytest.raises(Fault):
            lines.append({"n": float("nan")})
        assert journaled(journal) == []
    content = (tmp_path / "captures/rows.jsonl").read_bytes()
    assert content == b'{"n":1}\n{"capacity_refused":2}\n'
    (entry,) = journaled(journal)
    assert (entry.sha256, entry.rows) == (hashlib.sha256(content).hexdigest(), 2)
    assert lines.close().sha256 == entry.sha256
    assert len(journaled(journal)) == 1
    with pytest.raises(Fault, match="is closed"):
        lines.append({"n": 3})


def test_rows_written_before_a_failure_are_kept(captures: Captures, journal: Journal) -> None:
    def fail() -> None:
        with captures.lines("rows") as lines:
            lines.append({"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [data.rows for data in journaled(journal)] == [1]


def test_threads_share_one_capture_without_tearing_rows(captures: Captures, journal: Journal, tmp_path: Path) -> None:
    def append_all() -> None:
        for number in range(200):
            lines.append(Refusals(capacity_refused=number))

    with captures.lines("refusals") as lines:
        threads = [threading.Thread(target=append_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    rows = list(CaptureReader(tmp_path, journal.entries).rows("refusals", Refusals))
    assert sorted(row.capacity_refused for row in rows) == sorted([*range(200)] * 4)


def test_a_row_that_an_interrupt_tore_makes_the_capture_incomplete(
    captures: Captures, journal: Journal, tmp_path: Path
) -> None:
    with captures.lines("rows") as lines:
        lines.append({"n": 1})
        with (tmp_path / "captures/rows.jsonl").open("ab") as file:
            file.write(b'{"n":')
    (entry,) = journaled(journal)
    assert (entry.rows, entry.complete) == (2, False)
    assert entry.sha256 == hashlib.sha256((tmp_path / "captures/rows.jsonl").read_bytes()).hexdigest()


def test_a_killed_writer_s_rows_are_kept_and_marked_incomplete(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from statlib.evidence.captures import Captures; from statlib.evidence.journal import Journal\n"
        "here = Path(sys.argv[1]); lines = Captures(here, Journal(here / 'journal.jsonl')).lines('rows')\n"
        "lines.append({'capacity_refused': 1}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60).returncode == -9
    assert read_journal(tmp_path / "journal.jsonl") == ()  # the partial state: a file, and no entry for it
    assert (tmp_path / "captures/rows.jsonl").read_bytes() == b'{"capacity_refused":1}\n'
    with Journal(tmp_path / "journal.jsonl") as journal:
        captures = Captures(tmp_path, journal)
        (ref,) = captures.recover()
        assert (ref.name, ref.rows, ref.complete) == ("rows", 1, False)
        assert captures.recover() == ()
        with pytest.raises(Refusal) as refused:
            list(CaptureReader(tmp_path, journal.entries).rows("rows", Refusals))
    assert refused.value.reason is EvidenceReason.CaptureIncomplete


def test_recovery_knows_the_name_of_a_repeated_capture(captures: Captures, tmp_path: Path) -> None:
    captures.write("window", 1)
    (tmp_path / "captures/window-2.json").write_bytes(b"{")
    (tmp_path / "captures/stray.txt").write_bytes(b"")
    assert [(ref.name, ref.file) for ref in captures.recover()] == [("window", "captures/window-2.json")]


def test_a_capture_is_on_disk_before_the_journal_knows_it(
    captures: Captures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[tuple[str, int]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        entries = (tmp_path / "journal.jsonl").read_bytes().count(b"\n")
        forced.append((Path(f"/dev/fd/{descriptor}").resolve().name, entries))

    monkeypatch.setattr(os, "fsync", watched)
    captures.write("n", 1)
    with captures.lines("rows") as lines:
        lines.append({})
    assert forced == [
        ("n.json", 0),
        ("captures", 0),
        ("journal.jsonl", 1),
        ("captures", 1),
        ("rows.jsonl", 1),
        ("journal.jsonl", 2),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"capacity_refused":-1}', EvidenceReason.CaptureMalformed),
        (b'{"capacity_refused":"1"}', EvidenceReason.CaptureMalformed),
        (b'{"capacity_refused":1,"more":1}', EvidenceReason.CaptureMalformed),
        (b"", EvidenceReason.CaptureMalformed),
        (None, EvidenceReason.CaptureMissing),
    ],
    ids=["range", "type", "unknown field", "empty", "deleted"],
)
def test_a_capture_that_is_not_what_it_should_be_is_refused_by_name(
    content: bytes | None, reason: EvidenceReason, captures: Captures, journal: Journal, tmp_path: Path
) -> None:
    captures.write("refusals", Refusals(capacity_refused=0))
    with captures.lines("refusals") as lines:
        lines.append(Refusals(capacity_refused=0))
    for file in ("refusals.json", "refusals.jsonl"):
        path = tmp_path / "captures" / file
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    reader = CaptureReader(tmp_path, journal.entries)
    for read in (
        lambda: reader.document("refusals", Refusals),
        lambda: list(reader.rows("refusals", Refusals)),
    ):
        with pytest.raises(Refusal, match=r"captures/refusals\.json") as refused:
            read()
        assert refused.value.reason is reason


def test_a_row_too_few_is_refused(captures: Captures, journal: Journal, tmp_path: Path) -> None:
    with captures.lines("refusals") as lines:
        lines.append(Refusals(capacity_refused=0))
        lines.append(Refusals(capacity_refused=0))
    path = tmp_path / "captures/refusals.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(Refusal, match="has 1 rows, journaled 2"):
        list(CaptureReader(tmp_path, journal.entries).rows("refusals", Refusals))
