"""Telemetry: one OpenTelemetry meter. Label values come from enums; an identifier is never a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a gauge."""

    value: float
    labels: Mapping[str, Enum] = field(default_factory=dict)


@cache
def _counter(name: str, unit: str) -> Counter:
    return metrics.get_meter("statlib").create_counter(name, unit=unit)


@cache
def _histogram(name: str, unit: str) -> Histogram:
    return metrics.get_meter("statlib").create_histogram(name, unit=unit)


def count(name: str, amount: int = 1, *, unit: str = "1", **labels: Enum) -> None:
    """Add to a counter."""
    _counter(name, unit).add(amount, _names(labels))


def record(name: str, value: float, *, unit: str, **labels: Enum) -> None:
    """Add one observation to a histogram; ``unit`` is a UCUM unit such as ``ms``."""
    _histogram(name, unit).record(value, _names(labels))


def _names(labels: Mapping[str, Enum]) -> dict[str, str]:
    return {key: label.name for key, label in labels.items()}


def observe(name: str, read: Callable[[], Iterable[Reading]], *, unit: str, description: str) -> None:
    """Declare a gauge that is read whenever somebody collects. ``unit``: UCUM, or what is counted, in braces."""

    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(reading.value, _names(reading.labels)) for reading in read()]

    metrics.get_meter("statlib").create_observable_gauge(name, [callback], unit=unit, description=description)
