"""What a rebuild takes off its count: everything that is pending in the count's own snapshot.

The count holds the work of every save, folded or not. An entry that still waits will be added to the row when it is
folded, so it is taken off what is published. What was folded or discarded before the snapshot is in the count alone;
what is written after it waits. So nothing is counted twice and nothing is lost, however many saves come meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from statlib.kernel.cancellation import require_not_cancelled
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.statistics.catalogue import AnyCatalogue, Effect
from statlib.statistics.counters import Counters, minus, plus
from statlib.statistics.derivation import NO_EFFECT, Consumer, together
from statlib.statistics.fold.batch import INDEX, PROJECTION, Selection, Taken, due
from statlib.statistics.fold.dispositions import Dispositions, dispose
from statlib.statistics.fold.evidence import known_of
from statlib.statistics.overlay import NOTHING_PENDING
from statlib.statistics.pending import Fingerprint, PendingSet, fingerprint
from statlib.statistics.reasons import OperateReason
from statlib.statistics.state import ProjectState

_PAGE_DOCS = 500  # whose operations are looked up with one command per collection
_SNAPSHOT_GONE = (239, 246)  # SnapshotTooOld, SnapshotUnavailable


@dataclass(frozen=True, slots=True)
class Subtrahend:
    """What all pending entries of one snapshot do. ``effects`` per family; ``undrained``: families of which an entry
    says nothing certain, with the reason why the fold would not apply it."""

    effects: Mapping[str, Effect] = field(default_factory=dict)
    undrained: Mapping[str, str] = field(default_factory=dict)
    pending: Fingerprint = NOTHING_PENDING

    def moves(self, family: str) -> Mapping[str, Counters]:
        return self.effects.get(family, NO_EFFECT).moves

    def added_to(self, stored: Counters, family: str, scope: str) -> Counters:
        """As the fold will add it, and as a reader does."""
        return plus(stored, self.moves(family).get(scope, {}))

    def taken_off(self, counted: Counters, family: str, scope: str) -> Counters:
        """What to publish, so that the count comes out once all of it is folded."""
        return minus(counted, self.moves(family).get(scope, {}))

    def will_stale(self, family: str, scope: str) -> bool:
        """Whether the fold of something pending makes the scope's row unservable, whatever is in it now."""
        effect = self.effects.get(family, NO_EFFECT)
        return effect.stale_family or scope in effect.stale_scopes


def subtrahend(
    mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, at: ProjectState, families: Collection[str]
) -> Subtrahend:
    """All that is pending of ``families`` in the caller's snapshot, from which ``at`` was read; however much it is.

    Whatever the fold would set aside makes every family uncertain, another context those of its group. Refuses
    PendingNotDrained where the server no longer has the snapshot.
    """
    found = _Found(catalogue.folding.intersection(families))
    consumer = Consumer.of(catalogue, at.context, at.fleet.reviewer_tracking_epoch)
    try:
        for page in _pages(mongo, catalogue, session, at):
            require_not_cancelled()
            known = known_of(mongo, session, at.control.id, page)
            found.add(page, dispose(page, known, consumer))
    except OperationFailure as error:
        if error.code not in _SNAPSHOT_GONE:
            raise
        raise Refusal(OperateReason.PendingNotDrained, "reading it outlived the snapshot") from error
    return Subtrahend(found.effects, found.undrained, fingerprint(found.named))


def _pages(mongo: Mongo, catalogue: AnyCatalogue, session: ClientSession, at: ProjectState) -> Iterator[list[Taken]]:
    """Through the partial index, without a cap."""
    everything = due(Selection(at.control.id), mongo.clock)
    cursor = mongo.collection(catalogue.source_collection).find(everything, PROJECTION, session=session, hint=INDEX)
    taken = map(Taken.of, cursor.batch_size(_PAGE_DOCS))
    while page := list(islice(taken, _PAGE_DOCS)):
        yield page


class _Found:
    """The sum so far. Of the sets only the operations' names are kept."""

    def __init__(self, families: frozenset[str]) -> None:
        self.families = families
        self.effects: dict[str, Effect] = {}
        self.undrained: dict[str, str] = {}
        self.named: list[PendingSet] = []

    def add(self, page: list[Taken], decided: Dispositions) -> None:
        self.named += [replace(one.pending, entries=tuple(map(_bare, one.pending.entries))) for one in page]
        for aside in decided.aside[:1]:
            self.undrained = dict.fromkeys(self.families, aside.reason.value) | self.undrained
        for family, cause in decided.staled.items():
            if family in self.families:
                self.undrained.setdefault(family, cause.value)
        for consumed in decided.consumed:
            for family in self.families.intersection(consumed.effects):
                self.effects[family] = together(self.effects.get(family, NO_EFFECT), consumed.effects[family])


def _bare(raw: Any) -> Any:
    return {name: raw.get(name) for name in ("OperationNamespace", "OperationId")} if isinstance(raw, Mapping) else raw
