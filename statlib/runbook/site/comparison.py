"""Two runs of one runbook side by side: gates, key figures, parameters, environment; what differs is marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statlib.evidence.bundle import Bundle, RunEvidence
from statlib.evidence.checks.files import read_manifest
from statlib.evidence.json_values import encode
from statlib.evidence.results import GateResult
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Refusal
from statlib.runbook.reasons import RunbookReason


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. ``verified``: the folder is accepted by itself; a comparison with one that is not says so."""

    folder: Path
    run_id: str
    verdict: str
    verified: bool


@dataclass(frozen=True, slots=True)
class GatePair:
    """A gate in both runs; a side that has no such gate is None. ``change`` is b − a where both were measured."""

    key: str
    title: str
    unit: str
    a: GateResult | None
    b: GateResult | None

    @property
    def change(self) -> float | None:
        if self.a is None or self.b is None or self.a.measured is None or self.b.measured is None:
            return None
        return self.b.measured - self.a.measured

    @property
    def turned(self) -> bool:
        """Whether one passed and the other did not, or one is not there, or they were held to different thresholds."""
        return (
            self.a is None or self.b is None or (self.a.passed, self.a.threshold) != (self.b.passed, self.b.threshold)
        )


@dataclass(frozen=True, slots=True)
class FigurePair:
    """A key figure of the reports' first screens, by its label. ``unit`` is empty where the two do not share one."""

    label: str
    unit: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        """b over a; None where that says nothing."""
        return self.b / self.a if self.a and self.b is not None else None


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A parameter or a fact of the environment that is not the same in both; JSON text, None where it is not there."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``parameters`` and ``environment`` hold only what differs."""

    runbook: str
    a: Side
    b: Side
    gates: tuple[GatePair, ...]
    figures: tuple[FigurePair, ...]
    parameters: tuple[ValuePair, ...]
    environment: tuple[ValuePair, ...]


def compare(first: Path, second: Path) -> Comparison:
    """Compare two sealed folders. Refuses RunNotFound for a folder without a readable manifest, RunDiffers for runs of
    different runbooks: their gates have nothing to do with each other."""
    a, b = _evidence(first), _evidence(second)
    if a.runbook != b.runbook:
        raise Refusal(
            RunbookReason.RunDiffers, f"{first.name} is a run of {a.runbook}, {second.name} one of {b.runbook}"
        )
    return Comparison(
        runbook=a.runbook,
        a=_side(first, a),
        b=_side(second, b),
        gates=tuple(_gates(a, b)),
        figures=tuple(key_figures(a, b)),
        parameters=tuple(_differing(a.parameters, b.parameters)),
        environment=tuple(_differing(a.environment, b.environment)),
    )


def _evidence(folder: Path) -> RunEvidence:
    statement, findings = read_manifest(Bundle(folder))
    if statement is None:
        raise Refusal(RunbookReason.RunNotFound, str(findings[0]) if findings else str(folder))
    return statement.predicate


def _side(folder: Path, evidence: RunEvidence) -> Side:
    return Side(folder, evidence.run_id, evidence.verdict.value, verify(folder).ok)


def _gates(a: RunEvidence, b: RunEvidence) -> Iterator[GatePair]:
    left, right = ({gate.key: gate for gate in side.gates} for side in (a, b))
    for key in dict.fromkeys([*left, *right]):
        one = left.get(key) or right[key]
        yield GatePair(key, one.title, one.unit, left.get(key), right.get(key))


def key_figures(a: RunEvidence, b: RunEvidence) -> Iterator[FigurePair]:
    left, right = ({one.label: one for one in side.highlights} for side in (a, b))
    for label in dict.fromkeys([*left, *right]):
        one, other = left.get(label), right.get(label)
        units = {figure.unit for figure in (one, other) if figure}
        unit = units.pop() if len(units) == 1 else ""
        yield FigurePair(label, unit, one.value if one else None, other.value if other else None)


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ValuePair]:
    for name in dict.fromkeys([*a, *b]):
        left, right = (encode(side[name]).decode() if name in side else None for side in (a, b))
        if left != right:
            yield ValuePair(name, left, right)
