"""The journal keeps an unbroken chain through threads, processes, crashes and reopening, and notices any change."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statlib.evidence.entries import CHAIN_START, REQUIRED, Chain, StepOutcome, compose, open_steps, scan, sealed
from statlib.evidence.journal import Entry, EntryKind, Journal, read_journal
from statlib.evidence.json_values import decode
from statlib.evidence.reasons import EvidenceReason
from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Fault, Refusal

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NOTES = st.lists(st.dictionaries(st.text("abcdefgh", min_size=1), JSON, max_size=3), min_size=1, max_size=8)
FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def content_of(notes: list[dict[str, Any]]) -> bytes:
    """A journal's bytes, without a file: the chain is pure."""
    previous, lines = CHAIN_START, []
    for seq, data in enumerate(notes, start=1):
        entry, line = compose(EntryKind.Note, {"text": "n"} | data, at=Clock().local_utc(), seq=seq, previous=previous)
        previous = entry.hash
        lines.append(line)
    return b"".join(lines)


def holds(content: bytes) -> bool:
    chain, torn = scan(content)
    return not torn and not chain.damage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence" / "journal.jsonl"


@FILES
@given(notes=NOTES)
def test_what_was_appended_is_read_back_in_order_as_one_chain(notes: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for data in notes:
            journal.append(EntryKind.Note, **{"text": "n", **data})
        head = journal.head
    entries = read_journal(path)
    assert [entry.data for entry in entries] == [{"text": "n", **data} for data in notes]
    assert [entry.seq for entry in entries] == list(range(1, len(notes) + 1))
    assert entries[0].previous == CHAIN_START
    assert all(later.previous == earlier.hash for earlier, later in pairwise(entries))
    assert head == entries[-1].hash


@given(notes=NOTES, data=st.data())
def test_no_byte_can_change(notes: list[dict[str, Any]], data: st.DataObject) -> None:
    content = content_of(notes)
    assert holds(content)
    place = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    assert not holds(content[:place] + bytes([other]) + content[place + 1 :])


@given(notes=NOTES.filter(lambda notes: len(notes) > 1), data=st.data())
def test_no_line_can_be_dropped_doubled_or_moved_within(notes: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = content_of(notes).splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 2))
    dropped = lines[:place] + lines[place + 1 :]
    doubled = [*lines[: place + 1], *lines[place:]]
    moved = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
    for tampered in (dropped, doubled, moved):
        assert not holds(b"".join(tampered))


@given(notes=NOTES, data=st.data())
def test_an_entry_hashed_anew_breaks_the_chain_after_it(notes: list[dict[str, Any]], data: st.DataObject) -> None:
    """Only the last entry can be replaced unseen by the chain; the head, held elsewhere, is what binds that one."""
    lines = content_of(notes).splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    raw = decode(lines[place])
    raw["data"]["text"] = "forged"
    raw["hash"] = sealed(raw)
    _, lines[place] = compose(
        EntryKind.Note,
        raw["data"],
        at=datetime.fromisoformat(raw["at"]),
        seq=raw["seq"],
        previous=raw["previous"],
    )
    chain, _ = scan(b"".join(lines))
    assert [damage.line for damage in chain.damage] == ([] if place == len(lines) - 1 else [place + 2])


@FILES
@given(cut=st.integers(min_value=1))
def test_a_torn_last_line_is_cut_off_and_stated(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = content_of([{}, {}])
    last = whole.splitlines(keepends=True)[-1]
    torn = last[: 1 + cut % (len(last) - 1)]
    path.write_bytes(whole[: -len(last)] + torn)
    with pytest.raises(Refusal, match="torn"):
        read_journal(path)
    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="after the crash")
    kinds = [entry.kind for entry in read_journal(path)]
    assert kinds == [EntryKind.Note, EntryKind.Recovered, EntryKind.Note]
    assert read_journal(path)[1].data["cut_bytes"] == len(torn)


def test_data_may_have_a_field_of_any_name(path: Path) -> None:
    with Journal(path) as journal:
        data: dict[str, Any] = {"reason": "GateSkew", "kind": "conflict", "self": 1}
        journal.append(EntryKind.Refused, **data)
    assert read_journal(path)[0].data == data


def test_reopening_continues_the_chain(path: Path) -> None:
    with Journal(path) as journal:
        first = journal.append(EntryKind.Note, text="1")
    with Journal(path) as journal:
        assert journal.head == first.hash
        assert journal.append(EntryKind.Note, text="2").previous == first.hash


def test_two_journals_on_one_file_take_turns(path: Path) -> None:
    with Journal(path) as mine, Journal(path) as theirs:
        for number in range(6):
            (mine if number % 2 else theirs).append(EntryKind.Note, text=str(number))
        assert mine.head == theirs.head
        assert mine.entries == theirs.entries == read_journal(path)


def test_threads_append_one_chain_and_lose_nothing(path: Path) -> None:
    at_once = threading.Barrier(4)
    with Journal(path) as journal:

        def append(name: str) -> None:
            at_once.wait(10)
            for number in range(25):
                journal.append(EntryKind.Note, text=f"{name}{number}")

        threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    told = [str(entry.data["text"]) for entry in read_journal(path)]
    assert len(told) == 100
    for name in "abcd":
        assert [text for text in told if text.startswith(name)] == [f"{name}{number}" for number in range(25)]


def test_processes_append_one_chain_and_lose_nothing(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from statlib.evidence.journal import EntryKind, Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "[journal.append(EntryKind.Note, text=sys.argv[2] + str(n)) for n in range(25)]"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "ab"]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(read_journal(path)) == 50


def test_nobody_else_holds_the_file_while_an_entry_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_out: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        with path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                kept_out.append(False)
            except BlockingIOError:
                kept_out.append(True)
        fsync(descriptor)

    with Journal(path) as journal:
        monkeypatch.setattr(os, "fsync", watched)
        journal.append(EntryKind.Note, text="1")
    assert kept_out == [True]


def test_an_append_that_returned_survives_a_kill(path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from statlib.evidence.journal import EntryKind, Journal\n"
        "Journal(Path(sys.argv[1])).append(EntryKind.Note, text='kept'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60).returncode == -9
    assert [entry.data["text"] for entry in read_journal(path)] == ["kept"]


def test_every_append_is_forced_to_disk_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[bytes] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        forced.append(path.read_bytes())

    with Journal(path) as journal:
        monkeypatch.setattr(os, "fsync", watched)
        journal.append(EntryKind.Note, text="1")
    assert forced == [path.read_bytes()]


def test_a_disk_that_fails_half_way_leaves_the_chain_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    calls = []

    def failing(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:10])

    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="1")
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", failing)
        with pytest.raises(Fault, match="No space left"):
            journal.append(EntryKind.Note, text="2")
        monkeypatch.undo()
        assert path.read_bytes() == before
        journal.append(EntryKind.Note, text="3")
    assert [entry.data["text"] for entry in read_journal(path)] == ["1", "3"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[0]],
        lambda lines: [lines[0].replace(b'"text":"1"', b'"text":"9"'), lines[1]],
        lambda lines: [b"\n", *lines],
    ],
    ids=["dropped", "doubled", "changed", "blank"],
)
def test_a_damaged_journal_is_not_continued(damage: Callable[[list[bytes]], list[bytes]], path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="1")
        journal.append(EntryKind.Note, text="2")
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    before = path.read_bytes()
    for use in (Journal, read_journal):
        with pytest.raises(Refusal) as refused:
            use(path)
        assert refused.value.reason is EvidenceReason.JournalDamaged
        assert "line" in refused.value.detail
    assert path.read_bytes() == before


def test_an_interrupt_at_any_moment_of_an_append_leaves_a_whole_chain(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Struck after the line is on disk, and between what the journal notes about itself."""
    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="1")
        read = Chain.read

        def struck(self: Chain, text: bytes) -> None:
            raise KeyboardInterrupt

        def struck_after(self: Chain, text: bytes) -> None:
            read(self, text)
            raise KeyboardInterrupt

        for strike in (struck, struck_after):
            monkeypatch.setattr(Chain, "read", strike)
            with pytest.raises(KeyboardInterrupt):
                journal.append(EntryKind.Note, text="struck")
            monkeypatch.undo()
            journal.append(EntryKind.Note, text="next")
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            journal.append(EntryKind.Note, text="struck")
        monkeypatch.setattr(os, "fsync", fsync)
        journal.append(EntryKind.Note, text="next")
    assert [entry.data["text"] for entry in read_journal(path)] == ["1", *["struck", "next"] * 3]


def test_a_line_hashed_rightly_but_written_otherwise_is_damage() -> None:
    content = content_of([{}])
    chain, _ = scan(content.replace(b'"seq":1', b'"seq": 1'))
    assert [damage.what for damage in chain.damage] == ["is not in canonical form"]


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 1e17, 9.9e20, 1e21, 1e300, 5e-324])
def test_large_and_small_numbers_survive_the_chain(number: float, path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="n", number=number)
        journal.append(EntryKind.Note, text="n", number=number)
    assert [entry.data["number"] for entry in read_journal(path)] == [number, number]


def test_a_journal_that_shrinks_while_in_use_is_refused(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EntryKind.Note, text="1")
        path.write_bytes(b"")
        with pytest.raises(Refusal, match="lost"):
            journal.append(EntryKind.Note, text="2")


def test_nothing_follows_the_closing_entry(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EntryKind.RunClosed, verdict="failed")
        with pytest.raises(Refusal) as refused:
            journal.append(EntryKind.Note, text="late")
    assert refused.value.reason is EvidenceReason.RunIsClosed
    with path.open("ab") as file:
        file.write(b"{")
    with pytest.raises(Refusal) as refused:
        Journal(path)
    assert refused.value.reason is EvidenceReason.JournalDamaged


def test_a_closed_file_is_told_apart_from_a_closed_run(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    journal.close()
    with pytest.raises(Fault, match="closed in this process"):
        journal.append(EntryKind.Note, text="1")


def test_a_missing_journal_cannot_be_read(path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        read_journal(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60, {1, 2}, object(), b"x", "\ud800"])
def test_what_json_cannot_say_is_not_appended(value: Any, path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(Fault, match="JSON values"):
            journal.append(EntryKind.Note, text="n", value=value)
        assert journal.entries == ()


@pytest.mark.parametrize("kind", list(EntryKind))
def test_an_entry_must_say_what_its_kind_requires(kind: EntryKind, path: Path) -> None:
    assert kind in REQUIRED
    with Journal(path) as journal:
        with pytest.raises(Fault, match="wrong data"):
            journal.append(kind)
        assert journal.entries == ()


@pytest.mark.parametrize("outcome", ["done", "refused", "failed", "dry-run", "skipped"])
def test_a_step_closes_with_a_known_outcome(outcome: str, path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EntryKind.StepClosed, step="s", outcome=outcome)
        journal.append(EntryKind.StepClosed, step="s", outcome=StepOutcome(outcome))
        with pytest.raises(Fault):
            journal.append(EntryKind.StepClosed, step="s", outcome="perfect")


def test_open_steps_are_those_not_closed_since_they_started(path: Path) -> None:
    def start(step: str) -> Entry:
        return journal.append(EntryKind.StepStarted, step=step)

    def end(step: str) -> Entry:
        return journal.append(EntryKind.StepClosed, step=step, outcome="done")

    with Journal(path) as journal:
        start("a"), end("a"), start("b"), start("c"), start("a"), end("b")
        assert open_steps(journal.entries) == ("c", "a")


def test_time_is_the_shared_clock_s_and_utc(path: Path, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "offset")
    clock.advance(86_400 * 365)
    with Journal(path, clock=clock) as journal:
        entry = journal.append(EntryKind.Note, text="1")
    assert (entry.at - Clock().local_utc()).days in {364, 365}
    assert b'Z","data"' in path.read_bytes()
