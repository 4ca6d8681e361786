"""The journal's entries: their kinds, what each must say, and the chain that binds them.

A line is ``{"seq", "at", "kind", "data", "previous", "hash"}`` in canonical JSON. ``hash`` is the SHA-256 of
the same object without it, and ``previous`` the hash of the line before (64 zeros for the first), so that a
changed, dropped, doubled or moved line breaks every line after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from statlib.evidence.json_values import decode, encode, sha256_of
from statlib.kernel.refusals import Fault

CHAIN_START = "0" * 64
CLOCK_OFFSET = "clock_offset_ms"
"""The field by which an entry says that the clock of its run was advanced, and by how much."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class EntryKind(StrEnum):
    """What an entry records. Its data must hold at least what ``REQUIRED`` names for the kind."""

    RunStarted = "RunStarted"
    StepStarted = "StepStarted"
    StepClosed = "StepClosed"
    CellExecuted = "CellExecuted"
    Capture = "Capture"
    Refused = "Refused"
    Note = "Note"
    Interrupted = "Interrupted"
    Recovered = "Recovered"
    GateDerived = "GateDerived"
    RunClosed = "RunClosed"


class StepOutcome(StrEnum):
    """How a step ended. ``dry-run``: it stopped before acting; ``skipped``: durable state showed it done or not due."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    DRY_RUN = "dry-run"
    SKIPPED = "skipped"


class _Said(BaseModel):
    """Further fields are kept: an entry may say more than it must."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class RunStartedData(_Said):
    """``apply``: whether the run was allowed to act. ``parameters``: as given, secrets never among them."""

    runbook: str
    run_id: str
    apply: bool
    parameters: dict[str, JsonValue]


class StepStartedData(_Said):
    step: str = Field(min_length=1)


class StepClosedData(_Said):
    step: str = Field(min_length=1)
    outcome: Annotated[StepOutcome, Field(strict=False)]


class CellExecutedData(_Said):
    """``cell``: the notebook's cell id; ``sha256``: of its source in UTF-8; ``index``: its place in it, from 0.

    Appended when the cell is *reached* by the kernel; one that seals the run is recorded before RunClosed.
    """

    cell: str = Field(min_length=1)
    sha256: Sha256
    index: int = Field(ge=0)


class CaptureData(_Said):
    """``file`` is relative to the evidence folder. ``rows``: of a ``.jsonl``, else null. ``complete``: false for
    a file whose writer died; gates refuse to read such a capture."""

    name: str
    file: str
    sha256: Sha256
    size_bytes: int = Field(ge=0)
    rows: int | None
    complete: bool


class RefusedData(_Said):
    reason: str


class NoteData(_Said):
    text: str


class InterruptedData(_Said):
    by: str


class RecoveredData(_Said):
    """A crash left a torn last line of ``cut_bytes`` bytes with hash ``cut_sha256``; it was cut off."""

    cut_bytes: int = Field(gt=0)
    cut_sha256: Sha256


class GateDerivedData(_Said):
    key: str
    passed: bool


class RunClosedData(_Said):
    verdict: str


REQUIRED: Mapping[EntryKind, type[_Said]] = {
    EntryKind.RunStarted: RunStartedData,
    EntryKind.StepStarted: StepStartedData,
    EntryKind.StepClosed: StepClosedData,
    EntryKind.CellExecuted: CellExecutedData,
    EntryKind.Capture: CaptureData,
    EntryKind.Refused: RefusedData,
    EntryKind.Note: NoteData,
    EntryKind.Interrupted: InterruptedData,
    EntryKind.Recovered: RecoveredData,
    EntryKind.GateDerived: GateDerivedData,
    EntryKind.RunClosed: RunClosedData,
}


class Entry(BaseModel):
    """One line of the journal. ``at`` is the process's idea of UTC: a label for readers, never a proof of time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = Field(ge=1, description="the line's number, from 1")
    at: AwareDatetime
    kind: EntryKind
    data: dict[str, JsonValue]
    previous: Sha256
    hash: Sha256


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with one line (numbered from 1)."""

    line: int
    what: str


@dataclass(slots=True)
class Chain:
    """The chain read so far: feed it lines in order; it keeps what held and notes what did not."""

    seq: int = 0
    head: str = CHAIN_START
    line: int = 0
    entries: list[Entry] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    def read(self, text: bytes) -> None:
        """Take the next line, without its line end. After damage it goes on from what the line claims, so that
        one dropped line is reported once and not once for every line that follows."""
        self.line += 1
        try:
            raw = decode(text)
            entry = Entry.model_validate_json(text, strict=True).model_copy(update={"data": raw["data"]})
            REQUIRED[entry.kind].model_validate(entry.data)
            hash_due, canonical = sealed(raw), encode(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            self._unreadable(f"is no entry: {'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}")
            return
        except (ValueError, Fault) as error:
            self._unreadable(f"is not JSON: {error}")
            return
        if hash_due != entry.hash:
            self._broken("does not have the content that its hash was taken over")
        elif canonical != text:
            self._broken("is not in canonical form")
        if entry.seq != self.seq + 1:
            self._broken(f"has sequence number {entry.seq} where {self.seq + 1} is due")
        if self.head and entry.previous != self.head:
            self._broken(f"does not continue the chain: it follows {entry.previous[:12]}…, not {self.head[:12]}…")
        self.seq, self.head = entry.seq, entry.hash
        self.entries.append(entry)

    def _unreadable(self, what: str) -> None:
        self._broken(what)
        self.seq, self.head = self.seq + 1, ""  # its own hash is unknown, so the next line cannot be held against it

    def _broken(self, what: str) -> None:
        self.damage.append(Damage(self.line, what))


def sealed(raw: Mapping[str, Any]) -> str:
    """The hash of an entry's object, taken without its ``hash``."""
    return sha256_of(encode({key: value for key, value in raw.items() if key != "hash"}))


def compose(kind: EntryKind, data: Mapping[str, Any], *, at: datetime, seq: int, previous: str) -> tuple[Entry, bytes]:
    """The entry and its line, line end included. Raises Fault if ``data`` lacks what the kind must say."""
    plain = decode(encode(data))
    try:
        REQUIRED[kind].model_validate(plain)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False, include_input=False)
        )
        raise Fault(
            f"a {kind} entry was given the wrong data: {wrong}", remedy=f"See {REQUIRED[kind].__name__}."
        ) from error
    stamp = at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    raw = {"seq": seq, "at": stamp, "kind": kind.value, "data": plain, "previous": previous}
    raw["hash"] = sealed(raw)
    return Entry.model_validate(raw), encode(raw) + b"\n"


def scan(content: bytes) -> tuple[Chain, bytes]:
    """Read a whole journal: the chain, and the torn bytes after the last line end (empty if it ended whole)."""
    *lines, torn = content.split(b"\n")
    chain = Chain()
    for text in lines:
        chain.read(text)
    return chain, torn


def open_steps(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Steps started and not closed since, oldest first: what whoever ends a run must close before sealing it."""
    still_open: dict[str, None] = {}
    for entry in entries:
        step = str(entry.data.get("step", ""))
        if entry.kind is EntryKind.StepStarted:
            still_open[step] = None
        elif entry.kind is EntryKind.StepClosed:
            still_open.pop(step, None)
    return tuple(still_open)
