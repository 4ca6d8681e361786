"""What the world is told of a batch, once its commit is known."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

from statlib.kernel import telemetry
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.fold.transaction import Batch, End


def report(batch: Batch, catalogue: AnyCatalogue) -> None:
    """Nothing of a batch that changed nothing."""
    if batch.end is not End.FOLDED:
        return
    telemetry.count("fold.batches")
    telemetry.count("fold.entries", batch.entries)
    for family, cause in batch.discarded.items():
        telemetry.count("fold.discarded", family=_labels(catalogue.folding)[family], reason=cause)
    for reason in batch.quarantined:
        telemetry.count("fold.quarantined", reason=reason)
    if batch.incomplete:
        telemetry.count("fold.quarantine_capacity_exhausted")
    for lag_s in batch.lags_s:
        telemetry.record("fold.lag", lag_s * 1000, unit="ms")


@cache
def _labels(families: frozenset[str]) -> dict[str, Enum]:
    """A catalogue's families as label values: a closed set, which its names are."""
    named: Any = Enum
    made = named("Family", sorted(families))
    return {name: made[name] for name in families}
