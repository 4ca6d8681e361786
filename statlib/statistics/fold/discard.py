"""The last resort for a document that is saved faster than a transaction can take its entries: its set is given up.

Two steps, neither of which its savers can abort: a transaction that reads the document and writes statistics alone, and
one update of the document alone, which has no version to miss. What was appended in between stays for the next batch.
A crash between the two leaves entries that are pending and in quarantine; whoever folds next consumes them as such, and
their families are stale already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.kernel.refusals import Refusal
from statlib.mongo.leases import fence
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off, transact
from statlib.statistics.derivation import Consumer
from statlib.statistics.documents import FOLD_QUARANTINE
from statlib.statistics.effects import record_effects
from statlib.statistics.fold.batch import PROJECTION, Taken
from statlib.statistics.fold.dispositions import SetAside, dropped, put_aside, touched
from statlib.statistics.fold.quarantine import Intake, held, take_in
from statlib.statistics.fold.transaction import Batch, End, Fold, set_control
from statlib.statistics.moves import StaleCause
from statlib.statistics.pending import FOLD_SEQUENCE, PENDING, Poison
from statlib.statistics.state import require_state
from statlib.statistics.unit import Overtaken, Unit

TRIES_MAX = 20


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What the first step put into quarantine, of the set as it was then."""

    taken: Taken
    aside: Sequence[SetAside]
    staled: Mapping[str, StaleCause]
    incomplete: bool


def discard(fold: Fold, document: UUID) -> Batch:
    """Give up what is pending in ``document``. Refuses LeaseLost, Contended; both leave it pending."""
    given_up = set_aside(fold, document)
    if given_up is None:
        return Batch(End.NOTHING_DUE)
    remove(fold, given_up)
    return Batch(
        End.FOLDED,
        (document,),
        discarded=given_up.staled,
        quarantined=tuple(one.reason for one in given_up.aside),
        incomplete=given_up.incomplete,
    )


def set_aside(fold: Fold, document: UUID) -> GivenUp | None:
    """The first step. None: nothing is pending there, or not for this release."""
    for attempt in range(TRIES_MAX):
        try:
            return transact(fold.host.mongo, lambda session: _set_aside(fold, document, session))
        except Overtaken:  # somebody moved the project's clocks
            back_off(attempt)
    raise Refusal(MongoReason.Contended, f"{TRIES_MAX} tries at giving up what is pending in {document}")


def _set_aside(fold: Fold, document: UUID, session: ClientSession) -> GivenUp | None:
    mongo, catalogue = fold.host.mongo, fold.catalogue
    fence(mongo, session, fold.lease, ttl_s=fold.lease_ttl_s)
    state = require_state(mongo, catalogue, session, fold.project, tuple(catalogue.families))
    sources = mongo.collection(catalogue.source_collection)
    found = sources.find_one({"_id": document, "ProjectId": fold.project}, PROJECTION, session=session)
    if found is None or not state.versions_match or not (taken := Taken.of(found)).pending:
        return None
    unit = Unit(mongo, session, state)
    at = Consumer.of(catalogue, state.context, state.fleet.reviewer_tracking_epoch)
    aside = _aside(taken)
    intake = take_in(aside, held(mongo, session, fold.project, fold.caps), state.control, state.now, fold.caps)
    staled = _staled(taken, at, intake)
    record_effects(unit, fold.host, catalogue, [], staled)
    unit.insert(FOLD_QUARANTINE, [record.to_bson() for record in intake.records])
    set_control(unit, intake.control_fields(state.control, state.now))
    return GivenUp(taken, aside, staled, intake.incomplete)


def _aside(taken: Taken) -> list[SetAside]:
    aside = [put_aside(taken.aggregate, raw, Poison.LIVELOCKED) for raw in taken.pending.entries]
    return aside + (dropped(taken.aggregate, taken.pending.overflow) if taken.pending.overflow is not None else [])


def _staled(taken: Taken, at: Consumer, intake: Intake) -> dict[str, StaleCause]:
    families = frozenset().union(*(touched(raw, at) for raw in taken.pending.entries))
    if taken.pending.overflow is not None or intake.disables:
        families = at.catalogue.folding
    return dict.fromkeys(sorted(families), StaleCause.LIVELOCKED)


def remove(fold: Fold, given_up: GivenUp) -> None:
    """The second step: take out of the document exactly what the first put into quarantine."""
    taken = given_up.taken
    sources = fold.host.mongo.collection(fold.catalogue.source_collection)
    identity = {"_id": taken.aggregate, "ProjectId": fold.project}
    if taken.malformed:
        sources.update_one(
            {**identity, PENDING: taken.raw}, {"$unset": {PENDING: ""}, "$inc": {"Audit.Version": 1, FOLD_SEQUENCE: 1}}
        )
        return
    sources.update_one({**identity, PENDING: {"$exists": True}}, _without(given_up))


def _without(given_up: GivenUp) -> list[dict[str, Any]]:
    """The document without them, as a pipeline: what it says of the set is taken from the document as it is then."""
    noted = given_up.taken.pending.overflow
    keys = [one.key for one in given_up.aside if one.key != ("", "")]
    nameless = [one.entry for one in given_up.aside if one.key == ("", "") and one.entry is not None]
    range_end = noted.unrecorded_to_revision if noted is not None else None
    overflow = _overflow(_left("Overflow.Dropped", keys, []), range_end)
    less = {"Entries": _left("Entries", keys, nameless), "Overflow": overflow}
    with_age = {"$mergeObjects": [f"${PENDING}", {"OldestAtUtc": _OLDEST}]}
    counted = {
        "Audit.Version": {"$add": ["$Audit.Version", 1]},
        FOLD_SEQUENCE: {"$add": [{"$ifNull": [f"${FOLD_SEQUENCE}", 0]}, 1]},
    }
    return [
        {"$set": {PENDING: {"$mergeObjects": [f"${PENDING}", less]}}},
        {"$set": {PENDING: {"$cond": [_IS_EMPTY, "$$REMOVE", with_age]}, **counted}},
    ]


def _left(field: str, keys: Sequence[tuple[str, str]], nameless: Sequence[Any]) -> dict[str, Any]:
    named = [{"namespace": namespace, "operation": operation} for namespace, operation in keys]
    key = {"namespace": "$$one.OperationNamespace", "operation": "$$one.OperationId"}
    gone = {"$or": [{"$in": [key, {"$literal": named}]}, {"$in": ["$$one", {"$literal": list(nameless)}]}]}
    return {"$filter": {"input": _array(field), "as": "one", "cond": {"$not": [gone]}}}


def _array(field: str) -> dict[str, Any]:
    path = f"${PENDING}.{field}"
    return {"$cond": [{"$isArray": path}, path, []]}


def _overflow(drops: Mapping[str, Any], range_end: int | None) -> dict[str, Any]:
    """The note of what was dropped, without those: none, once nothing is left in it."""
    path = f"${PENDING}.Overflow"
    end = f"{path}.UnrecordedToRevision"
    same_range = {"$eq": [{"$ifNull": [end, None]}, range_end]}
    unrecorded = {"UnrecordedCount": 0, "UnrecordedFromRevision": None, "UnrecordedToRevision": None}
    cleared = {"$cond": [same_range, {"$mergeObjects": [path, unrecorded]}, path]}
    return {
        "$let": {
            "vars": {"drops": drops},
            "in": {
                "$cond": [
                    {"$or": [{"$ne": [{"$type": path}, "object"]}, {"$and": [same_range, {"$eq": ["$$drops", []]}]}]},
                    None,
                    {"$mergeObjects": [cleared, {"Dropped": "$$drops"}]},
                ]
            },
        }
    }


_IS_EMPTY = {
    "$and": [{"$eq": [f"${PENDING}.Entries", []]}, {"$eq": [{"$ifNull": [f"${PENDING}.Overflow", None]}, None]}]
}
_OLDEST = {
    "$ifNull": [
        {"$min": [{"$min": f"${PENDING}.Entries.CreatedAtUtc"}, f"${PENDING}.Overflow.OverflowedAtUtc"]},
        f"${PENDING}.OldestAtUtc",
    ]
}
