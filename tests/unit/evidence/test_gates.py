"""Each gate passes at its boundary, fails one step past it, and never passes for want of evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.gates import SOAK_GATES, derive_gates, is_rehearsal
from statlib.evidence.journal import Journal
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.soak_captures import SEVEN_DAYS_S, SoakThresholds
from tests.unit.evidence.soak_run import (
    CAPTURES,
    EVENTS,
    THRESHOLDS,
    Raw,
    Row,
    at,
    fallback,
    gates_of,
    operation,
    parity,
    read,
    receipt,
    sample,
)

TRUE = Raw()
OPERATIONS = list(TRUE.operations or ())
RECEIPTS = list(TRUE.receipts or ())
WINDOW, LOADED, BACKLOG = dict(TRUE.window or {}), dict(TRUE.loaded or {}), dict(TRUE.backlog or {})


def with_operations(*rows: dict[str, object]) -> Raw:
    return replace(TRUE, operations=[*OPERATIONS, *rows])


EXHAUSTED = operation(0, outcome="exhausted", reason="WriteConflict", applied=False, operation_id="first try")

PASSING = {
    "elapsed_window": [TRUE, replace(TRUE, window=WINDOW | {"monotonic_s": 61.0})],
    "representative_volume": [TRUE, replace(TRUE, reads=[read()] * 11)],
    "events_lost": [
        TRUE,
        replace(TRUE, operations=[EXHAUSTED, *OPERATIONS]),
        with_operations(operation(EVENTS, operation_id="generated")),
        replace(
            TRUE,
            operations=[
                operation(0, outcome="unresolved", reason="Unresolved", applied=False),
                operation(0, outcome="duplicate", applied=False),
                *OPERATIONS[1:],
            ],
        ),
    ],
    "exhausted_never_saved": [TRUE, with_operations(EXHAUSTED)],
    "applied_twice": [TRUE, with_operations(operation(0, outcome="duplicate", applied=False))],
    "receipts_unaccounted": [
        TRUE,
        replace(TRUE, receipts=[*RECEIPTS, receipt(0)]),
        with_operations(operation(0, operation_id="no receipt due", expects_receipt=False)),
        with_operations(operation(0, operation_id="refused", outcome="refused", reason="VersionStale", applied=False)),
    ],
    "parity_mismatches": [TRUE, replace(TRUE, parity=[parity(), parity(compared=False, exact=False, reason="late")])],
    "comparisons_per_family": [TRUE],
    "fallback_rate": [TRUE, replace(TRUE, reads=[read()] * 10)],
    "unresolved_backlog": [TRUE],
    "capacity_refused": [TRUE],
    "storage_growth": [
        TRUE,
        replace(TRUE, storage=[sample(n - 0.5, 500 * n) for n in (0, 5, 10, 15)]),
        replace(TRUE, storage=[sample(n - 0.5, 90_000 - 500 * n) for n in (0, 5, 10, 15)]),
    ],
}

FAILING = {
    "elapsed_window": [
        replace(TRUE, window=WINDOW | {"monotonic_s": 59.999}),
        replace(TRUE, window=WINDOW | {"ended_at": at(59.999), "monotonic_s": 600.0}),
        replace(TRUE, window=WINDOW | {"ended_at": at(-1)}),
    ],
    "representative_volume": [
        replace(TRUE, operations=OPERATIONS[1:]),
        replace(TRUE, operations=[*OPERATIONS[1:], operation(1)]),
        replace(TRUE, reads=[read()] * 9),
    ],
    "events_lost": [
        replace(TRUE, operations=OPERATIONS[1:]),
        replace(TRUE, loaded=LOADED | {"events_total": EVENTS + 1}),
        with_operations(operation(EVENTS, outcome="refused", reason="VersionStale", applied=False)),
    ],
    "exhausted_never_saved": [replace(TRUE, operations=[EXHAUSTED, *OPERATIONS[1:]])],
    "applied_twice": [with_operations(operation(0))],
    "receipts_unaccounted": [
        replace(TRUE, receipts=RECEIPTS[1:]),
        replace(TRUE, receipts=[*RECEIPTS, receipt(EVENTS)]),
        replace(TRUE, receipts=[*RECEIPTS, receipt(0, namespace="inclusion")]),
        replace(TRUE, receipts=[receipt(0, after=0), *RECEIPTS[1:]]),
        replace(TRUE, receipts=[receipt(0, before=-1), *RECEIPTS[1:]]),
        replace(TRUE, receipts=[*RECEIPTS, receipt(EVENTS, before=2, after=1)]),
        with_operations(operation(0, operation_id="confirmed by a duplicate", outcome="duplicate", applied=False)),
    ],
    "parity_mismatches": [
        replace(TRUE, parity=[parity(), parity(exact=False, differences=["total"])]),
        replace(TRUE, parity=[parity(), parity(exact=False)]),
    ],
    "comparisons_per_family": [
        replace(TRUE, parity=[parity()] * 2 + [parity(compared=False, exact=False, reason="late")]),
        replace(TRUE, parity=[parity(family="Other")] * 3),
    ],
    "fallback_rate": [replace(TRUE, reads=[read()] * 8 + [fallback()])],
    "unresolved_backlog": [
        replace(TRUE, backlog=BACKLOG | {"rebuilds_unresolved": 1}),
        replace(TRUE, backlog=BACKLOG | {"stale_families": ["ProjectScreening"]}),
        replace(TRUE, backlog=BACKLOG | {"stale_scopes": 1}),
    ],
    "capacity_refused": [
        replace(TRUE, refusals={"capacity_refused": 1}),
        with_operations(operation(0, outcome="refused", reason="Full", kind="capacity", applied=False)),
    ],
    "storage_growth": [
        replace(TRUE, storage=[sample(n - 0.5, 501 * n) for n in (0, 5, 10, 15)]),
        # 464 B an operation on average, but so scattered that more than 500 cannot be ruled out
        replace(TRUE, storage=[sample(n - 0.5, size) for n, size in ((0, 400), (5, 2000), (10, 5400), (15, 7000))]),
        replace(
            TRUE, storage=[row for n in (0, 5, 10, 15) for row in (sample(n, 9), sample(n, 600 * n, "collection b"))]
        ),
    ],
}


def cases(of: dict[str, list[Raw]]) -> list[object]:
    return [pytest.param(key, raw, id=f"{key}-{n}") for key, raws in of.items() for n, raw in enumerate(raws)]


def test_every_gate_has_cases_on_both_sides() -> None:
    assert {gate.key for gate in SOAK_GATES} == PASSING.keys() == FAILING.keys()


@pytest.mark.parametrize(("key", "raw"), cases(PASSING))
def test_a_gate_passes_up_to_its_boundary(key: str, raw: Raw, tmp_path: Path) -> None:
    gate = gates_of(raw, tmp_path)[key]
    assert gate.passed, gate
    assert gate.problem is None


@pytest.mark.parametrize(("key", "raw"), cases(FAILING))
def test_a_gate_fails_past_its_boundary(key: str, raw: Raw, tmp_path: Path) -> None:
    gate = gates_of(raw, tmp_path)[key]
    assert not gate.passed
    assert gate.measured is not None
    assert gate.problem is None


@pytest.mark.parametrize("gate", SOAK_GATES, ids=lambda gate: gate.key)
def test_a_gate_fails_typed_without_any_one_of_its_captures(gate: object, tmp_path: Path) -> None:
    sources = next(known for known in SOAK_GATES if known is gate).sources
    for number, capture in enumerate(sources):
        name = capture.partition(".")[0]
        assert name in CAPTURES
        folder = tmp_path / str(number)
        folder.mkdir()
        result = gates_of(TRUE.without(name), folder)[next(known for known in SOAK_GATES if known is gate).key]
        assert not result.passed
        assert result.measured is None
        assert result.problem is EvidenceReason.CaptureMissing
        assert capture in result.source


@pytest.mark.parametrize(
    ("key", "raw", "problem"),
    [
        ("parity_mismatches", replace(TRUE, parity=[]), EvidenceReason.NothingMeasured),
        (
            "parity_mismatches",
            replace(TRUE, parity=[parity(compared=False, exact=False, reason="late")]),
            EvidenceReason.NothingMeasured,
        ),
        (
            "parity_mismatches",
            replace(TRUE, parity=[parity(scopes_compared=0)]),
            EvidenceReason.CaptureMalformed,
        ),
        ("fallback_rate", replace(TRUE, reads=[]), EvidenceReason.NothingMeasured),
        ("fallback_rate", replace(TRUE, reads=[read(source="authoritative")]), EvidenceReason.CaptureMalformed),
        ("fallback_rate", replace(TRUE, reads=[read(lattency_ms=1)]), EvidenceReason.CaptureMalformed),
        ("receipts_unaccounted", replace(TRUE, receipts=[], operations=[]), EvidenceReason.NothingMeasured),
        ("applied_twice", replace(TRUE, operations=[]), EvidenceReason.NothingMeasured),
        ("exhausted_never_saved", replace(TRUE, operations=[]), EvidenceReason.NothingMeasured),
        (
            "applied_twice",
            with_operations(operation(0, outcome="duplicate", applied=True)),
            EvidenceReason.CaptureMalformed,
        ),
        (
            "events_lost",
            replace(TRUE, operations=[], loaded=LOADED | {"events_total": 0}),
            EvidenceReason.NothingMeasured,
        ),
        ("storage_growth", replace(TRUE, storage=[]), EvidenceReason.NothingMeasured),
        (
            "storage_growth",
            replace(TRUE, storage=[sample(n, 1) for n in (0, 5, 10)]),
            EvidenceReason.TooFewSamples,
        ),
        (
            "storage_growth",
            replace(TRUE, storage=[sample(90 + n, 1) for n in range(4)]),
            EvidenceReason.NothingMeasured,
        ),
    ],
)
def test_nothing_measured_is_a_typed_failure(key: str, raw: Raw, problem: EvidenceReason, tmp_path: Path) -> None:
    gate = gates_of(raw, tmp_path)[key]
    assert not gate.passed
    assert gate.measured is None
    assert gate.problem is problem
    assert gate.note


@pytest.mark.parametrize(
    ("key", "raw", "note"),
    [
        ("events_lost", TRUE, "20 events, 20 submissions"),
        ("applied_twice", TRUE, "20 operations written, of which 0 repeated the standing decision"),
        (
            "applied_twice",
            replace(TRUE, operations=[operation(n, noop=n < 3) for n in range(EVENTS)]),
            "20 operations written, of which 3 repeated the standing decision",
        ),
        (
            "applied_twice",  # the first answer was lost: nobody can say which of the two wrote
            replace(TRUE, operations=[operation(0), operation(1, outcome="duplicate", applied=False, noop=True)]),
            "1 operation written, of which 0 repeated the standing decision",
        ),
        (
            "receipts_unaccounted",
            TRUE,
            "20 expected, 20 found; 0 missing, 0 surplus, 0 out of order (each must have after > before ≥ 0)",
        ),
        ("exhausted_never_saved", TRUE, "0 events had an exhausted submission"),
        ("comparisons_per_family", TRUE, "fewest: ProjectScreening, 0 put off; 1 family"),
        ("fallback_rate", replace(TRUE, reads=[fallback()]), "1 of 1 read: 1 RowStale"),
    ],
)
def test_notes_agree_with_one_another_and_with_their_numbers(key: str, raw: Raw, note: str, tmp_path: Path) -> None:
    assert gates_of(raw, tmp_path)[key].note == note


def test_a_capture_whose_writer_died_is_not_read(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        captures = Captures(tmp_path, journal)
        TRUE.without("parity").write(captures)
        (tmp_path / "captures" / "parity.jsonl").write_text("")
        captures.recover()
        gates = {gate.key: gate for gate in derive_gates(CaptureReader(tmp_path, journal.entries), THRESHOLDS)}
    assert gates["parity_mismatches"].problem is EvidenceReason.CaptureIncomplete
    assert not gates["parity_mismatches"].passed


def test_a_value_captured_again_supersedes_and_rows_add_up(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        captures = Captures(tmp_path, journal)
        replace(TRUE, backlog=BACKLOG | {"stale_scopes": 7}).write(captures)
        captures.write("backlog", BACKLOG)
        with captures.lines("parity") as lines:
            lines.append(parity(exact=False))
        gates = {gate.key: gate for gate in derive_gates(CaptureReader(tmp_path, journal.entries), THRESHOLDS)}
    assert gates["unresolved_backlog"].passed
    assert gates["unresolved_backlog"].source == "captures/backlog.json, captures/backlog-2.json"
    assert gates["parity_mismatches"].measured == 1


@pytest.mark.parametrize(
    ("duration_s", "elapsed_s", "offset_ms", "rehearsal"),
    [
        (SEVEN_DAYS_S, SEVEN_DAYS_S, 0, False),
        (SEVEN_DAYS_S, SEVEN_DAYS_S - 0.001, 0, True),
        (SEVEN_DAYS_S - 1, SEVEN_DAYS_S, 0, True),
        (SEVEN_DAYS_S, SEVEN_DAYS_S, 1, True),
    ],
)
def test_only_seven_real_days_are_no_rehearsal(
    duration_s: float, elapsed_s: float, offset_ms: int, rehearsal: bool, tmp_path: Path
) -> None:
    window: Row = {
        "started_at": at(0),
        "ended_at": at(elapsed_s),
        "monotonic_s": elapsed_s,
        "clock_offset_ms": offset_ms,
    }
    with Journal(tmp_path / "journal.jsonl") as journal:
        Captures(tmp_path, journal).write("window", window)
        thresholds = SoakThresholds(**(THRESHOLDS.model_dump() | {"duration_s": duration_s}))
        assert is_rehearsal(CaptureReader(tmp_path, journal.entries), thresholds) is rehearsal


def test_a_run_without_a_window_is_a_rehearsal(tmp_path: Path) -> None:
    assert is_rehearsal(CaptureReader(tmp_path, ()), THRESHOLDS)


def test_results_survive_their_stored_form_unchanged(tmp_path: Path) -> None:
    for gate in gates_of(TRUE.without("window"), tmp_path).values():
        assert type(gate).model_validate_json(gate.model_dump_json(), strict=True) == gate


def test_derivation_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    rows: Row = {name: list(reversed(getattr(TRUE, name))) for name in CAPTURES[4:]}
    shuffled = replace(TRUE, **rows)
    assert gates_of(TRUE, first) == gates_of(shuffled, second)


def test_the_stored_thresholds_are_the_ones_given(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        Captures(tmp_path, journal).write("thresholds", THRESHOLDS)
        assert CaptureReader(tmp_path, journal.entries).document("thresholds", soak.SoakThresholds) == THRESHOLDS
