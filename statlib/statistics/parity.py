"""Parity: what is stored against what is calculated, at one and the same moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from statlib.kernel.cancellation import require_not_cancelled
from statlib.mongo.transactions import snapshot
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.bounds import PARITY_DIFFERENCES_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import differences
from statlib.statistics.hosts import Host
from statlib.statistics.reader import Watermarks, authoritative_values, closed_gate, declared, read_moment
from statlib.statistics.reasons import ServeReason


@dataclass(frozen=True, slots=True)
class Difference:
    scope: str
    counter: str
    stored: int
    authoritative: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One family at one moment. ``compared`` is False where a gate was closed (``reason``): nothing was served that
    could be wrong. ``differences`` names at most ``PARITY_DIFFERENCES_MAX`` of ``differing`` counters."""

    family: str
    scopes: int
    compared: bool
    reason: ServeReason | None
    differing: int
    differences: tuple[Difference, ...]
    watermarks: Watermarks

    @property
    def exact(self) -> bool:
        return self.compared and self.differing == 0


def compare(host: Host, catalogue: AnyCatalogue, project: UUID, families: Iterable[str]) -> tuple[Comparison, ...]:
    """Each family's stored counters against the source, in one snapshot each. Writes nothing."""
    return tuple(_compare(host, catalogue, project, family) for family in families)


def _compare(host: Host, catalogue: AnyCatalogue, project: UUID, family: str) -> Comparison:
    host.require_open()
    require_not_cancelled()
    asked: Mapping[str, None] = {family: None}
    with snapshot(host.mongo) as session:
        reads = PinnedReads(host.mongo, session)
        moment = read_moment(reads, catalogue, project, asked)
        scopes = declared(catalogue, moment.context, asked)
        reason = closed_gate(host, catalogue, project, moment, scopes)
        found: list[Difference] = []
        if reason is None:
            counted = authoritative_values(reads, catalogue, project, moment.context, scopes)[family]
            found = [
                Difference(scope, counter, stored, authoritative)
                for scope in scopes[family]
                for counter, (stored, authoritative) in differences(
                    moment.rows[family, scope].values, counted[scope]
                ).items()
            ]
    return Comparison(
        family=family,
        scopes=len(scopes[family]),
        compared=reason is None,
        reason=reason,
        differing=len(found),
        differences=tuple(found[:PARITY_DIFFERENCES_MAX]),
        watermarks=moment.watermarks,
    )
