"""What a soak's report says beyond its gates: figures, key numbers and where the data came from.

Derived from captures alone. A run that ended early has fewer of them, and its report fewer figures.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.kernel.refusals import Refusal
from statlib.runbook.findings import Findings
from statlib.runbook.fragments import Figure
from statlib.runbook.look import figures as draw
from statlib.runbook.look.quantities import plural
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.report import DataKind, DataSource, Highlight, NextStep
from statlib.runbook.soak.captured import NOT_LOADED, PROGRESS, REBUILDS, NotLoaded, ProgressRow, RebuildRow

Row = TypeVar("Row")

INTERVALS_MAX = 60
STORAGE_READINGS_MAX = 120
SIMULATED_ONLY = frozenset({"studies"})
RECORDED_ONLY = frozenset({"review"})


def soak_findings(captures: CaptureReader, parameters: RunbookParameters) -> Findings:
    """See the module."""
    return Findings(
        subject="Soak",
        highlights=tuple(_highlights(captures)),
        figures=tuple(_figures(captures)),
        provenance=tuple(_provenance(captures)),
        next_steps=tuple(_next_steps(captures)),
        unused=RECORDED_ONLY if _simulates(captures) else SIMULATED_ONLY,
        left_out=_left_out(captures),
        figure_of_gate={
            "volume": "saves",
            "parity": "parity",
            "comparisons": "parity",
            "fallback": "parity",
            "storage": "storage",
        },
    )


def _left_out(captures: CaptureReader) -> tuple[str, ...]:
    try:
        return captures.document(NOT_LOADED, NotLoaded).lines()
    except Refusal:  # nothing was left out, or the data were not read
        return ()


def _simulates(captures: CaptureReader) -> bool:
    """Whether the studies themselves were made up; so too of a run that loaded nothing."""
    try:
        return not captures.document(soak.LOADED, soak.Loaded).provenance.get("recorded")
    except Refusal:
        return True


def _figures(captures: CaptureReader) -> Iterator[Figure]:
    for figure in (_saves, _writers, _latency, _parity, _progress, _storage):
        with suppress(Refusal, ValueError):  # captures that are missing, or hold nothing to draw
            yield figure(captures)


def _saves(captures: CaptureReader) -> Figure:
    span, operations = _span(captures), list(_submissions(captures))
    intervals = []
    for start, seconds, inside in _by_interval(span, operations, lambda operation: operation.at):
        outcomes = [operation.outcome for operation in inside]
        confirmed = sum(outcome in soak.CONFIRMING for outcome in outcomes)
        stale, exhausted = outcomes.count(soak.Outcome.STALE), outcomes.count(soak.Outcome.EXHAUSTED)
        other = len(outcomes) - confirmed - stale - exhausted
        intervals.append(draw.SavesInterval(start, seconds, confirmed, stale, exhausted, other))
    return draw.saves_over_time(intervals, source="operations.jsonl", over=span)


def _submissions(captures: CaptureReader) -> Iterator[soak.Operation]:
    """Without what was done besides, which was not submitted by itself."""
    return (row for row in captures.rows(soak.OPERATIONS, soak.Operation) if row.writer != soak.FURTHER)


def _writers(captures: CaptureReader) -> Figure:
    """Confirmed saves and their latency, by the writer that they went through."""
    by_writer: dict[str, list[float]] = defaultdict(list)
    for operation in _submissions(captures):
        if operation.outcome in soak.CONFIRMING and operation.writer:
            by_writer[operation.writer].append(operation.latency_ms)
    summaries = [
        draw.LatencySummary("", f"{writer}, {len(latencies):,}", len(latencies), *_quantiles(latencies))
        for writer, latencies in sorted(by_writer.items(), key=lambda item: -len(item[1]))
    ]
    return draw.save_latency(summaries, source="operations.jsonl")


def _latency(captures: CaptureReader) -> Figure:
    span = _span(captures)
    by_outcome: dict[str, list[soak.Operation]] = defaultdict(list)
    for operation in _submissions(captures):
        by_outcome[operation.outcome.value].append(operation)
    intervals = [
        draw.LatencyInterval(start, outcome, len(inside), *_quantiles([o.latency_ms for o in inside]))
        for outcome, operations in sorted(by_outcome.items(), key=lambda item: -len(item[1]))
        for start, _, inside in _by_interval(span, operations, lambda operation: operation.at)
        if inside
    ]
    return draw.save_latency_over_time(intervals, source="operations.jsonl", over=span)


def _parity(captures: CaptureReader) -> Figure:
    span = _span(captures)
    points = [
        draw.ParityPoint(row.at, row.family, row.exact if row.compared else None)
        for row in captures.rows(soak.PARITY, soak.Parity)
    ]
    reads = [
        draw.ReadsInterval(start, seconds, len(inside) - (fell := sum(r.reason is not None for r in inside)), fell)
        for start, seconds, inside in _by_interval(
            span, list(captures.rows(soak.READS, soak.BundleRead)), lambda read: read.at
        )
    ]
    return draw.parity_over_time(points, reads, source="parity.jsonl, reads.jsonl", over=span)


def _progress(captures: CaptureReader) -> Figure:
    points = [draw.ScreeningPoint(row.at, row.studies) for row in captures.rows(PROGRESS, ProgressRow)]
    return draw.screening_progress(points, source="progress.jsonl", over=_span(captures))


def _storage(captures: CaptureReader) -> Figure:
    confirmed = sorted(
        operation.at
        for operation in captures.rows(soak.OPERATIONS, soak.Operation)
        if operation.outcome in soak.CONFIRMING
    )
    samples: dict[str, list[soak.StorageSample]] = defaultdict(list)
    for sample in captures.rows(soak.STORAGE, soak.StorageSample):
        samples[sample.collection].append(sample)
    growing = {
        name: [draw.StoragePoint(_reached(confirmed, sample.at), sample.size_bytes) for sample in _thin(readings)]
        for name, readings in samples.items()
        if readings[-1].size_bytes != readings[0].size_bytes
    }
    limit = captures.document(soak.THRESHOLDS, soak.SoakThresholds).bytes_per_operation_max
    return draw.storage_growth(growing, source="storage.jsonl, operations.jsonl", limit=limit)


def _highlights(captures: CaptureReader) -> Iterator[Highlight]:
    with suppress(Refusal):
        latencies = [
            operation.latency_ms for operation in _submissions(captures) if operation.outcome in soak.CONFIRMING
        ]
        if latencies:
            _, p95, _ = _quantiles(latencies)
            yield Highlight("Save latency, p95", round(p95, 1), "ms", f"{len(latencies):,} confirmed saves")
    with suppress(Refusal):
        reads = [read.latency_ms for read in captures.rows(soak.READS, soak.BundleRead) if read.reason is None]
        if reads:
            _, p95, _ = _quantiles(reads)
            yield Highlight("Page read, p95", round(p95, 1), "ms", f"{len(reads):,} served from statistics")
    with suppress(Refusal):
        rebuilds = list(captures.rows(REBUILDS, RebuildRow))
        published = sum(row.published > 0 for row in rebuilds)
        if rebuilds:
            races = sum(row.races_lost for row in rebuilds)
            reasons = sorted({row.reason for row in rebuilds if row.reason})
            note = "; ".join([f"of {len(rebuilds):,}", f"{plural(races, 'race')} lost and run again", *reasons])
            yield Highlight("Rebuilds under load", published, "", note)


def _next_steps(captures: CaptureReader) -> Iterator[NextStep]:
    """What a run that failed should be given, where the review itself is smaller than what the gate asks for."""
    with suppress(Refusal):
        least = captures.document(soak.THRESHOLDS, soak.SoakThresholds).operations_min
        decisions = captures.document(soak.LOADED, soak.Loaded).events_total
        if 0 < decisions < least:
            yield NextStep(
                "Ask of a small review no more than it holds.",
                f"Representative volume wants {plural(least, 'operation')}, and this review has "
                f"{plural(decisions, 'event')}. The report will say what was asked for. Add to the command:",
                f"-p 'thresholds={{\"operations_min\":{decisions}}}'",
            )


def _provenance(captures: CaptureReader) -> Iterator[DataSource]:
    with suppress(Refusal):
        loaded = captures.document(soak.LOADED, soak.Loaded)
        said = loaded.provenance
        if recorded := said.get("recorded"):
            missing = [f"not loaded: {line}" for line in _left_out(captures)]
            use = "; ".join([str(recorded), *missing])
            yield DataSource(str(said.get("source")), DataKind.RECORDED, use, loaded.events_total, "events")
        if simulated := said.get("simulated"):
            amount = None if said.get("recorded") else loaded.events_total
            yield DataSource(str(said.get("source") or "statlib"), DataKind.SIMULATED, str(simulated), amount, "events")


def _span(captures: CaptureReader) -> draw.Span:
    window = captures.document(soak.WINDOW, soak.Window)
    return draw.Span.between(window.started_at, window.ended_at)


def _by_interval(
    span: draw.Span, rows: Sequence[Row], at: Callable[[Row], datetime]
) -> Iterator[tuple[datetime, float, list[Row]]]:
    """(start, seconds, rows answered in it), of equal length, whole seconds, covering the span."""
    seconds = max(1.0, float(-(-span.seconds // INTERVALS_MAX)))
    places: dict[int, list[Row]] = defaultdict(list)
    last = max(0, int(-(-span.seconds // seconds)) - 1)
    for row in rows:
        place = int((at(row) - span.start).total_seconds() // seconds)
        places[min(max(place, 0), last)].append(row)
    for place in range(last + 1):
        yield span.start + timedelta(seconds=place * seconds), seconds, places[place]


def _quantiles(values: list[float]) -> tuple[float, float, float]:
    """p50, p95, p99, by linear interpolation."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


def _reached(confirmed: Sequence[datetime], at: datetime) -> int:
    return bisect_right(confirmed, at)


def _thin(samples: Sequence[soak.StorageSample]) -> Iterable[soak.StorageSample]:
    """Every k-th reading and the last, so that a week of them can be drawn."""
    step = max(1, len(samples) // STORAGE_READINGS_MAX)
    return [*samples[::step], samples[-1]] if (len(samples) - 1) % step else samples[::step]
