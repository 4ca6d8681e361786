"""Where every operation of a review is kept: pending, dropped from a full set, in a receipt, or in quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from statlib.review.documents import STUDIES
from statlib.statistics.documents import FOLD_QUARANTINE, RECEIPT
from statlib.statistics.pending import PENDING, pending_of
from statlib.statistics.trail import Kept, Key
from tests.reviews import Review

NAMELESS = ("", "")


@dataclass(frozen=True)
class Places:
    """How often each named operation is kept in each place; ``nameless``: studies with drops that have no name."""

    of: Mapping[Kept, Counter[Key]]
    nameless: frozenset[str]

    @property
    def all(self) -> frozenset[Key]:
        return frozenset().union(*self.of.values())

    @property
    def repeated(self) -> frozenset[Key]:
        """Operations that are kept more than once."""
        total: Counter[Key] = Counter()
        for places in self.of.values():
            total += places
        return frozenset(key for key, times in total.items() if times > 1)

    def hides(self, key: Key) -> bool:
        """Whether the operation may be one of those that were dropped without a name."""
        return any(study in key[1] for study in self.nameless)


def places(review: Review) -> Places:
    """Where operations are now. Nobody may be writing meanwhile."""
    of: dict[Kept, Counter[Key]] = {kept: Counter() for kept in Kept}
    nameless: set[str] = set()
    for study in review.mongo.collection(STUDIES).find({"ProjectId": review.project, PENDING: {"$exists": True}}):
        found = pending_of(study)
        of[Kept.PENDING].update(filter(None, map(named, found.entries)))
        if found.overflow is not None:
            of[Kept.DROPPED].update((d.operation_namespace, d.operation_id) for d in found.overflow.dropped)
            if found.overflow.unrecorded_to_revision is not None:
                nameless.add(str(study["_id"]))
    of[Kept.RECEIPT].update(filter(None, map(named, _of_project(review, RECEIPT))))
    for record in _of_project(review, FOLD_QUARANTINE):
        if (key := named(record)) is None or key == NAMELESS:
            nameless.add(str(record["StudyId"]))
        else:
            of[Kept.QUARANTINE][key] += 1
    return Places(of, frozenset(nameless))


def named(stored: Any) -> Key | None:
    """The operation that an entry, a receipt or a record is of; None where it does not say."""
    if not isinstance(stored, Mapping):
        return None
    namespace, operation = stored.get("OperationNamespace"), stored.get("OperationId")
    return (namespace, operation) if isinstance(namespace, str) and isinstance(operation, str) else None


def _of_project(review: Review, collection: str) -> Iterator[dict[str, Any]]:
    return iter(review.mongo.collection(collection).find({"ProjectId": review.project}))
