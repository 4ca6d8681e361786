"""The soak's gates, derived from raw captures and nothing else.

Pure: the same captures and thresholds give the same results on every machine, which is what lets a verifier
contradict a report. Invariant: a gate whose capture is missing, malformed, cut short or empty fails, with the
reason; no gate passes for want of evidence. To add one, append to ``SOAK_GATES``; if it applies to one arm
only, give its threshold an optional field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from itertools import count

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import Comparison, GateResult, threshold_words
from statlib.evidence.soak_captures import SEVEN_DAYS_S, SoakThresholds
from statlib.evidence.soak_tallies import SoakTallies
from statlib.evidence.verdicts import Verdict, verdict
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Refusal

__all__ = [
    "SOAK_GATES",
    "Comparison",
    "GateResult",
    "SoakGate",
    "SoakThresholds",
    "Verdict",
    "derive_gates",
    "is_rehearsal",
    "verdict",
]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a gate measured, and the sentence that explains the number."""

    number: float
    note: str


@dataclass(frozen=True, slots=True)
class SoakGate:
    """One gate: ``measure`` reads tallies and raises a typed Refusal where there is nothing to read."""

    key: str
    title: str
    comparison: Comparison
    unit: str
    sources: tuple[str, ...]
    limit: Callable[[SoakThresholds], float]
    measure: Callable[[SoakTallies, SoakThresholds], Reading]


def derive_gates(captures: CaptureReader, thresholds: SoakThresholds) -> tuple[GateResult, ...]:
    """Every soak gate, in declared order. Never raises for bad captures: such a gate fails and says why."""
    tallies = SoakTallies(captures)
    return tuple(_derive(gate, tallies, captures, thresholds) for gate in SOAK_GATES)


def is_rehearsal(captures: CaptureReader, thresholds: SoakThresholds) -> bool:
    """Whether the run cannot count as a soak: too short, on an advanced clock, or without a window that says so."""
    try:
        window = captures.document(soak.WINDOW, soak.Window)
    except Refusal:
        return True
    return min(thresholds.duration_s, window.elapsed_s) < SEVEN_DAYS_S or window.clock_offset_ms != 0


def _derive(gate: SoakGate, tallies: SoakTallies, captures: CaptureReader, thresholds: SoakThresholds) -> GateResult:
    limit = gate.limit(thresholds)
    sources = [file for capture in gate.sources for file in captures.files(capture) or (f"captures/{capture}",)]
    try:
        found = gate.measure(tallies, thresholds)
        measured, note, problem = found.number, found.note, None
        passed = gate.comparison.holds(found.number, limit)
    except Refusal as refusal:
        if not isinstance(refusal.reason, EvidenceReason):
            raise
        measured, note, problem, passed = None, refusal.detail, refusal.reason, False
    return GateResult(
        key=gate.key,
        title=gate.title,
        threshold=limit,
        threshold_text=threshold_words(gate.comparison, limit, gate.unit),
        comparison=gate.comparison,
        measured=measured,
        unit=gate.unit,
        passed=passed,
        source=", ".join(sources),
        note=note,
        problem=problem,
    )


def _window(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    window = tallies.window
    clock = f"clock advanced by {window.clock_offset_ms / 1000:,.0f} s" if window.clock_offset_ms else "real clock"
    started, ended = (time.astimezone(UTC) for time in (window.started_at, window.ended_at))
    return Reading(window.elapsed_s, f"{clock}, {started:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC")


def _volume(tallies: SoakTallies, thresholds: SoakThresholds) -> Reading:
    operations, reads = len(tallies.operations.confirmed), tallies.reads.reads
    share = min(operations / thresholds.operations_min, reads / thresholds.reads_min)
    return Reading(
        share * 100,
        f"{operations:,} of {plural(thresholds.operations_min, 'operation')}, "
        f"{reads:,} of {plural(thresholds.reads_min, 'read')}",
    )


def _events(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    total, operations = tallies.loaded.events_total, tallies.operations
    generated = {event for event in operations.events_submitted if event >= total}
    due = total + len(generated)
    if not due:
        raise Refusal(EvidenceReason.NothingMeasured, "no event was recorded or submitted")
    lost = due - sum(event < total or event in generated for event in operations.events_confirmed)
    first = next(event for event in count() if event not in operations.events_confirmed)
    where = f"; the first is event {first:,}" if first < total and lost else ""
    return Reading(lost, f"{plural(due, 'event')}, {plural(operations.submissions, 'submission')}{where}")


def _exhausted(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    operations = tallies.operations
    if not operations.submissions:
        raise Refusal(EvidenceReason.NothingMeasured, "no save was submitted")
    never = operations.events_exhausted - operations.events_confirmed
    causes = f": {_counts(operations.exhaustion_reasons)}" if operations.exhaustion_reasons else ""
    return Reading(
        len(never), f"{plural(len(operations.events_exhausted), 'event')} had an exhausted submission{causes}"
    )


def _applied_twice(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    applied = tallies.operations.times_applied
    if not tallies.operations.submissions:
        raise Refusal(EvidenceReason.NothingMeasured, "no save was submitted")
    repeating = len(tallies.operations.repeating)
    return Reading(
        sum(times > 1 for times in applied.values()),
        f"{plural(len(applied), 'operation')} written, of which {repeating:,} repeated the standing decision",
    )


def _receipts(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    expected, receipts = tallies.operations.expecting_receipt, tallies.receipts
    if not expected and not receipts.rows:
        raise Refusal(EvidenceReason.NothingMeasured, "no receipt was expected and none was found")
    missing = expected - receipts.sound
    surplus = (receipts.sound | receipts.broken) - expected
    namespaces = Counter(namespace for namespace, _ in receipts.sound)
    each = f": {_counts(namespaces)}" if len(namespaces) > 1 else ""
    return Reading(
        len(missing) + len(surplus),
        f"{len(expected):,} expected, {len(receipts.sound):,} found{each}; {len(missing):,} missing, "
        f"{len(surplus):,} surplus, {len(receipts.broken):,} out of order (each must have after > before ≥ 0)",
    )


def _mismatches(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    parity = tallies.parity
    if not parity.compared:
        raise Refusal(EvidenceReason.NothingMeasured, "no comparison took place")
    where = f": {_counts(parity.mismatched)}" if parity.mismatched else ""
    return Reading(parity.mismatched.total(), f"{plural(parity.compared.total(), 'comparison')}{where}")


def _comparisons(tallies: SoakTallies, thresholds: SoakThresholds) -> Reading:
    parity = tallies.parity
    fewest = min(thresholds.families, key=lambda family: (parity.compared[family], family))
    return Reading(
        parity.compared[fewest],
        f"fewest: {fewest}, {parity.put_off[fewest]:,} put off; "
        f"{plural(len(thresholds.families), 'family', 'families')}",
    )


def _fallbacks(tallies: SoakTallies, thresholds: SoakThresholds) -> Reading:
    reads, apart = tallies.reads, set(thresholds.recounted)
    counted = sum(times for family, times in reads.by_family.items() if family not in apart)
    if not counted:
        raise Refusal(EvidenceReason.NothingMeasured, "nothing was read")
    reasons: Counter[str] = Counter()
    recounted: Counter[str] = Counter()
    for family, causes in reads.fallback_reasons.items():
        (recounted if family in apart else reasons).update(causes)
    why = f": {_counts(reasons)}" if reasons else ""
    besides = ""
    if elsewhere := reads.reads - counted:
        besides = f"; besides, {recounted.total():,} of {elsewhere:,} reads of families that saves outdate"
    return Reading(reasons.total() / counted * 100, f"{reasons.total():,} of {plural(counted, 'read')}{why}{besides}")


def _backlog(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    backlog = tallies.backlog
    families = len(backlog.stale_families)
    return Reading(
        backlog.rebuilds_unresolved + families + backlog.stale_scopes,
        f"{plural(backlog.rebuilds_unresolved, 'rebuild')}, {plural(families, 'stale family', 'stale families')}, "
        f"{plural(backlog.stale_scopes, 'stale scope')}",
    )


def _capacity(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    saves, elsewhere = tallies.operations.capacity_refused, tallies.refusals.capacity_refused
    return Reading(saves + elsewhere, f"{plural(saves, 'save')}, {elsewhere:,} elsewhere")


def _growth(tallies: SoakTallies, _: SoakThresholds) -> Reading:
    growth = tallies.growth
    if not growth:
        raise Refusal(EvidenceReason.NothingMeasured, "no collection was sampled")
    name, slope = max(growth.items(), key=lambda item: (item[1].upper, item[0]))
    return Reading(
        slope.upper,
        f"{name}: {slope.value:,.1f} ({slope.lower:,.1f} to {slope.upper:,.1f}); the upper 95 % bound counts; "
        f"{plural(len(growth), 'collection')}",
    )


def _counts(counter: Counter[str]) -> str:
    largest_first = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{times:,} {name}" for name, times in largest_first)


def _zero(_: SoakThresholds) -> float:
    return 0


_OPERATIONS, _READS = f"{soak.OPERATIONS}.jsonl", f"{soak.READS}.jsonl"

SOAK_GATES: tuple[SoakGate, ...] = (
    SoakGate(
        "elapsed_window", "Elapsed window", Comparison.AT_LEAST, "s",
        (f"{soak.WINDOW}.json",), lambda t: t.duration_s, _window,
    ),
    SoakGate(
        "representative_volume", "Representative volume", Comparison.AT_LEAST, "%",
        (_OPERATIONS, _READS), lambda _: 100, _volume,
    ),
    SoakGate(
        "events_lost", "Recorded events not confirmed", Comparison.EXACTLY, "",
        (f"{soak.LOADED}.json", _OPERATIONS), _zero, _events,
    ),
    SoakGate(
        "exhausted_never_saved", "Exhausted saves never saved afterwards", Comparison.EXACTLY, "",
        (_OPERATIONS,), _zero, _exhausted,
    ),
    SoakGate(
        "applied_twice", "Operations applied more than once", Comparison.EXACTLY, "",
        (_OPERATIONS,), _zero, _applied_twice,
    ),
    SoakGate(
        "receipts_unaccounted", "Receipts unaccounted for", Comparison.EXACTLY, "",
        (f"{soak.RECEIPTS}.jsonl", _OPERATIONS), _zero, _receipts,
    ),
    SoakGate(
        "parity_mismatches", "Parity mismatches", Comparison.EXACTLY, "",
        (f"{soak.PARITY}.jsonl",), _zero, _mismatches,
    ),
    SoakGate(
        "comparisons_per_family", "Comparisons, fewest of a family", Comparison.AT_LEAST, "",
        (f"{soak.PARITY}.jsonl",), lambda t: t.comparisons_per_family_min, _comparisons,
    ),
    SoakGate(
        "fallback_rate", "Reads that fell back to the source", Comparison.AT_MOST, "%",
        (_READS,), lambda t: t.fallback_rate_max * 100, _fallbacks,
    ),
    SoakGate(
        "unresolved_backlog", "Unresolved backlog at the end", Comparison.EXACTLY, "",
        (f"{soak.BACKLOG}.json",), _zero, _backlog,
    ),
    SoakGate(
        "capacity_refused", "Refused for capacity", Comparison.EXACTLY, "",
        (f"{soak.REFUSALS}.json", _OPERATIONS), _zero, _capacity,
    ),
    SoakGate(
        "storage_growth", "Storage growth, fastest collection", Comparison.AT_MOST, "B/operation",
        (f"{soak.STORAGE}.jsonl", _OPERATIONS), lambda t: t.bytes_per_operation_max, _growth,
    ),
)  # fmt: skip
"""In the order in which a report shows them."""
