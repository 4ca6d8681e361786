"""Parity: what is served, stored and pending together, against what is calculated, at one and the same moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from statlib.kernel.cancellation import require_not_cancelled
from statlib.mongo.transactions import snapshot
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.bounds import PARITY_DIFFERENCES_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, differences
from statlib.statistics.hosts import Host
from statlib.statistics.overlay import NOTHING_PENDING, OverlayRefusal
from statlib.statistics.pending import Fingerprint
from statlib.statistics.reader import Moment, Verdict, Watermarks, authoritative_values, judged, read_moment
from statlib.statistics.reasons import ServeReason


@dataclass(frozen=True, slots=True)
class Difference:
    scope: str
    counter: str
    stored: int
    authoritative: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One family at one moment. ``compared`` is False where a gate was closed (``reason``, ``detail``): nothing was
    served that could be wrong. ``differences`` names at most ``PARITY_DIFFERENCES_MAX`` of ``differing`` counters.

    ``watermarks`` and ``pending`` together name the moment: of two looks that differ in either, none says anything
    about the other.
    """

    family: str
    scopes: int
    compared: bool
    reason: ServeReason | None
    differing: int
    differences: tuple[Difference, ...]
    watermarks: Watermarks
    pending: Fingerprint = NOTHING_PENDING
    detail: OverlayRefusal | None = None

    @property
    def exact(self) -> bool:
        return self.compared and self.differing == 0


def compare(host: Host, catalogue: AnyCatalogue, project: UUID, families: Iterable[str]) -> tuple[Comparison, ...]:
    """Each family's counters as they would be served against the source, all of them in one snapshot. Writes nothing.

    Gates are asked per family: one that is closed keeps no other from being compared.
    """
    host.require_open()
    require_not_cancelled()
    asked: Mapping[str, None] = dict.fromkeys(families)
    if not asked:
        return ()
    with snapshot(host.mongo) as session:
        reads = PinnedReads(host.mongo, session)
        moment = read_moment(host, reads, catalogue, project, asked)
        scopes = moment.configuration.declared(asked)
        verdicts = {f: judged(host, catalogue, project, moment, {f: wanted}) for f, wanted in scopes.items()}
        served = {family: wanted for family, wanted in scopes.items() if verdicts[family].reason is None}
        require_not_cancelled()
        counted = authoritative_values(reads, catalogue, project, moment.context, served)
    return tuple(_compared(family, scopes[family], moment, counted, verdicts[family]) for family in asked)


def _compared(
    family: str,
    scopes: tuple[str, ...],
    moment: Moment,
    counted: Mapping[str, Mapping[str, Counters]],
    verdict: Verdict,
) -> Comparison:
    found = [
        Difference(scope, counter, stored, authoritative)
        for scope, right in counted.get(family, {}).items()
        for counter, (stored, authoritative) in differences(verdict.value_of(moment, family, scope), right).items()
    ]
    return Comparison(
        family=family,
        scopes=len(scopes),
        compared=verdict.reason is None,
        reason=verdict.reason,
        differing=len(found),
        differences=tuple(found[:PARITY_DIFFERENCES_MAX]),
        watermarks=moment.watermarks,
        pending=moment.fingerprint,
        detail=verdict.detail,
    )
