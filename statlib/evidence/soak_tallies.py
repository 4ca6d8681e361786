"""One pass over each raw capture of a soak, into the few numbers that gates read. Pure; no policy.

Each tally is made when a gate first asks for it. If its capture is unusable, every gate that asks gets the same
typed refusal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.slope import Slope, fit
from statlib.evidence.soak_captures import Identity, Outcome, ServedFrom
from statlib.kernel.refusals import Refusal, RefusalKind


@dataclass(slots=True)
class OperationTally:
    """``confirmed`` holds the time at which each identity was first confirmed; ``repeating``, which of those applied
    asked for what already stood."""

    submissions: int = 0
    confirmed: dict[Identity, datetime] = field(default_factory=dict)
    expecting_receipt: set[Identity] = field(default_factory=set)
    times_applied: Counter[Identity] = field(default_factory=Counter)
    events_submitted: set[int] = field(default_factory=set)
    events_confirmed: set[int] = field(default_factory=set)
    events_exhausted: set[int] = field(default_factory=set)
    exhaustion_reasons: Counter[str] = field(default_factory=Counter)
    capacity_refused: int = 0
    repeating: set[Identity] = field(default_factory=set)

    def take(self, row: soak.Operation) -> None:
        identity = (row.namespace, row.operation_id)
        self.submissions += row.writer != soak.FURTHER
        self.events_submitted.add(row.event)
        if row.kind is RefusalKind.CAPACITY:
            self.capacity_refused += 1
        if row.outcome is Outcome.EXHAUSTED:
            self.events_exhausted.add(row.event)
            self.exhaustion_reasons[row.reason or "no reason given"] += 1
        if row.applied:
            self.times_applied[identity] += 1
            if row.noop:
                self.repeating.add(identity)
        if row.outcome in soak.CONFIRMING:
            self.events_confirmed.add(row.event)
            self.confirmed[identity] = min(row.at, self.confirmed.get(identity, row.at))
            if row.expects_receipt:
                self.expecting_receipt.add(identity)


@dataclass(slots=True)
class ReadTally:
    """``fallback_reasons`` by what was read."""

    by_family: Counter[str] = field(default_factory=Counter)
    fallback_reasons: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def reads(self) -> int:
        return self.by_family.total()


@dataclass(slots=True)
class ParityTally:
    compared: Counter[str] = field(default_factory=Counter)
    put_off: Counter[str] = field(default_factory=Counter)
    mismatched: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class ReceiptTally:
    """``broken`` are identities of receipts that break after > before ≥ 0 and have no sound one beside them."""

    rows: int = 0
    sound: set[Identity] = field(default_factory=set)
    broken: set[Identity] = field(default_factory=set)


class SoakTallies:
    """The reductions of one run's captures."""

    def __init__(self, captures: CaptureReader) -> None:
        self._captures = captures

    @cached_property
    def window(self) -> soak.Window:
        return self._captures.document(soak.WINDOW, soak.Window)

    @cached_property
    def loaded(self) -> soak.Loaded:
        return self._captures.document(soak.LOADED, soak.Loaded)

    @cached_property
    def backlog(self) -> soak.Backlog:
        return self._captures.document(soak.BACKLOG, soak.Backlog)

    @cached_property
    def refusals(self) -> soak.Refusals:
        return self._captures.document(soak.REFUSALS, soak.Refusals)

    @cached_property
    def operations(self) -> OperationTally:
        tally = OperationTally()
        for row in self._captures.rows(soak.OPERATIONS, soak.Operation):
            tally.take(row)
        return tally

    @cached_property
    def reads(self) -> ReadTally:
        tally = ReadTally()
        for row in self._captures.rows(soak.READS, soak.BundleRead):
            tally.by_family[row.family] += 1
            if row.source is ServedFrom.AUTHORITATIVE:
                reasons = tally.fallback_reasons.setdefault(row.family, Counter())
                reasons[row.reason or "no reason given"] += 1
        return tally

    @cached_property
    def parity(self) -> ParityTally:
        tally = ParityTally()
        for row in self._captures.rows(soak.PARITY, soak.Parity):
            (tally.compared if row.compared else tally.put_off)[row.family] += 1
            if row.compared and not row.exact:
                tally.mismatched[row.family] += 1
        return tally

    @cached_property
    def receipts(self) -> ReceiptTally:
        tally = ReceiptTally()
        for row in self._captures.rows(soak.RECEIPTS, soak.ReceiptRow):
            tally.rows += 1
            (tally.sound if row.holds else tally.broken).add((row.namespace, row.operation_id))
        tally.broken -= tally.sound
        return tally

    @cached_property
    def growth(self) -> dict[str, Slope]:
        """Bytes per confirmed operation, by collection. Refuses as ``slope.fit`` does, naming the collection."""
        confirmed = sorted(self.operations.confirmed.values())
        points: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for sample in self._captures.rows(soak.STORAGE, soak.StorageSample):
            points[sample.collection].append((bisect_right(confirmed, sample.at), sample.size_bytes))
        slopes = {}
        for collection, samples in sorted(points.items()):
            try:
                slopes[collection] = fit(samples)
            except Refusal as error:
                raise Refusal(error.reason, f"{collection}: {error.detail}") from error
        return slopes
