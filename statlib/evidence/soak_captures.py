"""What the soak runbook captures, field by field, and the thresholds that its gates hold it to.

| capture | model | rows |
|---|---|---|
| `thresholds.json` | `SoakThresholds` | one, written before the window opens |
| `window.json` | `Window` | one, at the window's end |
| `loaded.json` | `Loaded` | one |
| `operations.jsonl` | `Operation` | one for each *submission* of a save, in any order |
| `reads.jsonl` | `BundleRead` | one for each bundle read |
| `parity.jsonl` | `Parity` | one for each family and comparison |
| `receipts.jsonl` | `ReceiptRow` | every receipt of the window, read back from the database |
| `backlog.json` | `Backlog` | one, after the closing backfill |
| `refusals.json` | `Refusals` | one |
| `storage.jsonl` | `StorageSample` | one for each collection and sampling |

A capture written more than once is read thus: of a `.json` the last counts, of a `.jsonl` all parts count.
Fields not named here are refused, so that a misspelt optional field cannot pass unseen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from statlib.kernel.refusals import RefusalKind

WINDOW, LOADED, OPERATIONS, READS = "window", "loaded", "operations", "reads"
PARITY, RECEIPTS, BACKLOG, REFUSALS, STORAGE, THRESHOLDS = (
    "parity",
    "receipts",
    "backlog",
    "refusals",
    "storage",
    "thresholds",
)

FURTHER = "besides"
"""The writer of an operation that another one did in the same write: it has no latency of its own."""

SEVEN_DAYS_S = 7 * 86_400.0
DIFFERENCES_MAX = 32


class _Captured(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SoakThresholds(_Captured):
    """What the run must reach. Stored with the captures, so that whoever verifies holds it to the same numbers.

    A gate that applies to one arm only (the fold's lag, say) gets an optional field here: absent, no such gate.
    """

    duration_s: float = Field(gt=0, description="length of the window; the real one is seven days")
    operations_min: int = Field(ge=1, description="confirmed source operations")
    reads_min: int = Field(ge=1, description="bundle reads")
    families: tuple[str, ...] = Field(min_length=1, strict=False, description="families that must be compared")
    comparisons_per_family_min: int = Field(ge=1)
    fallback_rate_max: float = Field(ge=0, le=1, description="share of reads served from the source")
    bytes_per_operation_max: float = Field(gt=0, description="growth of the fastest collection per confirmed operation")
    recounted: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="reads of families that saves outdate and rebuilds count anew: their falling back is no fallback",
    )


class Window(_Captured):
    """The time under load. ``monotonic_s`` is measured by a clock that nobody can set; ``clock_offset_ms`` is the
    *greatest* offset that the run's clock had: anything but 0 makes it a rehearsal."""

    started_at: AwareDatetime
    ended_at: AwareDatetime
    monotonic_s: float = Field(ge=0)
    clock_offset_ms: int = Field(ge=0)

    @property
    def elapsed_s(self) -> float:
        """The smaller of the two readings: a set clock lengthens one of them, never both."""
        return min(self.monotonic_s, (self.ended_at - self.started_at).total_seconds())


class Loaded(_Captured):
    """The recorded work. ``events_total``: the events that the run undertook to replay, numbered from 0; every one
    must end confirmed. ``events_distinct``: those among them that change something. ``provenance``: the source's
    name, licence, hash, and whether it was recorded or simulated."""

    events_total: int = Field(ge=0)
    events_distinct: int = Field(ge=0)
    provenance: dict[str, JsonValue]


class Outcome(StrEnum):
    """What one submission of a save came back with. ``saved`` and ``duplicate`` confirm the operation."""

    SAVED = "saved"
    DUPLICATE = "duplicate"
    STALE = "stale"
    REFUSED = "refused"
    EXHAUSTED = "exhausted"
    UNRESOLVED = "unresolved"
    FAILED = "failed"


CONFIRMING = frozenset({Outcome.SAVED, Outcome.DUPLICATE})


class Operation(_Captured):
    """One submission. An event submitted again, under the same or a new operation id, is a further row with the
    same ``event`` and the next ``resubmission``."""

    event: int = Field(ge=0, description="the recorded event's number; generated work goes on from events_total")
    operation_id: str = Field(min_length=1)
    namespace: str = Field(min_length=1)
    study: str
    arm: str
    outcome: Outcome = Field(strict=False)
    reason: str | None = Field(description="name of the refusal's reason or the fault's class; null when confirmed")
    kind: RefusalKind | None = Field(default=None, strict=False, description="the refusal's kind")
    attempts: int = Field(ge=0)
    latency_ms: float = Field(ge=0)
    resubmission: int = Field(ge=0, description="0 for the first submission of the event")
    at: AwareDatetime = Field(description="when the answer arrived")
    expects_receipt: bool = Field(description="by the arm's rule, this confirmed save leaves a receipt")
    applied: bool = Field(description="this submission changed the source; false for a duplicate's answer")
    noop: bool = Field(description="the event asked for what was already so")
    writer: str | None = Field(default=None, description=f"which writer; {FURTHER!r}: another operation's write did it")

    @model_validator(mode="after")
    def _only_a_saved_one_applied(self) -> Self:
        if self.applied and self.outcome is not Outcome.SAVED:
            raise ValueError(f"an operation that was {self.outcome} did not change the source")
        return self


class ServedFrom(StrEnum):
    MATERIALISED = "materialised"
    AUTHORITATIVE = "authoritative"


class BundleRead(_Captured):
    """One bundle read of ``scopes`` scopes; ``reason`` names the gate that sent it to the source. ``family`` may be
    the page that asked for several."""

    family: str
    scopes: int = Field(ge=0)
    source: ServedFrom = Field(strict=False)
    reason: str | None
    latency_ms: float = Field(ge=0)
    at: AwareDatetime

    @model_validator(mode="after")
    def _a_fallback_has_a_reason(self) -> Self:
        if (self.source is ServedFrom.AUTHORITATIVE) != (self.reason is not None):
            raise ValueError("a read has a reason exactly when it was served from the source")
        return self


class Parity(_Captured):
    """Stored values of a family against the authoritative calculation in one snapshot. ``compared`` is false where
    the comparison was put off, with its ``reason``. ``differences`` lists the first 32 and no more; how many there
    were does not matter, since one is too many."""

    family: str
    scopes_compared: int = Field(ge=0)
    exact: bool
    compared: bool
    differences: list[JsonValue] = Field(max_length=DIFFERENCES_MAX)
    reason: str | None
    at: AwareDatetime

    @model_validator(mode="after")
    def _exact_means_compared_and_equal(self) -> Self:
        if self.exact and (not self.compared or self.differences or self.scopes_compared == 0):
            raise ValueError("exact needs scopes that were compared and no difference")
        return self


class ReceiptRow(_Captured):
    """A stored receipt: committed source revisions before and after. The evidence rule is after > before ≥ 0."""

    namespace: str
    operation_id: str
    expected: int
    before: int
    after: int
    digest: str

    @property
    def holds(self) -> bool:
        return self.after > self.before >= 0


class Backlog(_Captured):
    """What was still to do when the run ended, after the closing backfill."""

    rebuilds_unresolved: int = Field(ge=0)
    stale_families: list[str]
    stale_scopes: int = Field(ge=0)


class Refusals(_Captured):
    """Refusals for capacity anywhere but in a save's own answer (those are rows of ``operations``)."""

    capacity_refused: int = Field(ge=0)


class StorageSample(_Captured):
    """One collection's size. ``size_bytes`` is what the documents hold (it moves with every write),
    ``storage_bytes`` what the files occupy (it moves in allocations)."""

    at: AwareDatetime
    collection: str
    documents: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    storage_bytes: int = Field(ge=0)


Identity = tuple[str, str]
"""(namespace, operation id): what a receipt and a confirmed operation are matched by."""
