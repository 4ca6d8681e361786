"""The pending entry of a claim, written by the server: a claim meets its document only as it writes it.

One stage goes in front of the claim's own, so that it sees the document as the claim meets it, its version included.
It sets the whole pending set and nothing else, and cannot fail: whatever it reads of the set is asked for its type
first. A set that makes no sense is replaced by one that says so, and a full one counts the claim among the drops
without a name, since a claim has no digest to be known by. In neither case does the claim itself notice anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from statlib.statistics.bounds import PENDING_ENTRIES_MAX, PENDING_ENTRY_BYTES_MAX, PENDING_SET_BYTES_MAX
from statlib.statistics.entries import Saver
from statlib.statistics.pending import FOLD_PROTOCOL, PENDING, Entry, Intent
from statlib.statistics.submissions import Stream

Expression = Any

_SET = f"${PENDING}"
_VERSION = "$Audit.Version"
_NEXT = {"$add": [_VERSION, 1]}
_NOWHERE = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ClaimTransition:
    """A claim's one transition: its kind, and an expression of the payload over the document as the claim meets it."""

    kind: str
    payload: Mapping[str, Expression]


def pending_stage(saver: Saver, stream: Stream, transition: ClaimTransition, now: Expression) -> dict[str, Any]:
    """The stage that goes first. ``now`` is the expression of the server's time."""
    entry = _entry(saver, stream, transition, now)
    kept = {
        "well": _well_formed(),
        "absent": {"$in": [{"$type": _SET}, ["missing", "null", "undefined"]]},
    }
    found = {
        "entries": {"$cond": ["$$well", f"{_SET}.Entries", []]},
        "oldest": {"$min": [{"$cond": ["$$well", f"{_SET}.OldestAtUtc", now]}, now]},
        "overflow": {"$cond": ["$$well", {"$ifNull": [f"{_SET}.Overflow", None]}, None]},
        "bytes": {"$cond": ["$$well", {"$bsonSize": {"$cond": ["$$well", _SET, {}]}}, 0]},
        "payload": dict(transition.payload),
    }
    grown = {"OldestAtUtc": "$$oldest", "Entries": {"$concatArrays": ["$$entries", [entry]]}, "Overflow": None}
    overflowed = {"OldestAtUtc": "$$oldest", "Entries": "$$entries", "Overflow": _overflow(now)}
    has_room = {
        "$and": [
            {"$eq": ["$$overflow", None]},
            {"$lt": [{"$size": "$$entries"}, PENDING_ENTRIES_MAX]},
            {"$lte": ["$$bytes", PENDING_SET_BYTES_MAX]},
        ]
    }
    fits = {"$cond": [has_room, {"$lte": [{"$bsonSize": "$$grown"}, PENDING_SET_BYTES_MAX]}, False]}
    appended = _let({"grown": {"$cond": [has_room, grown, None]}}, {"$cond": [fits, "$$grown", overflowed]})
    known = {"$or": ["$$well", "$$absent"]}
    return {"$set": {PENDING: _let(kept, {"$cond": [known, _let(found, appended), _nonsense(now)]})}}


def _entry(saver: Saver, stream: Stream, transition: ClaimTransition, now: Expression) -> dict[str, Expression]:
    """As ``entries_of`` would make it. What only the server knows is put in the place of stand-ins."""
    moved = saver.transitions.kinds[transition.kind]
    stand_in = Entry(
        protocol_version=FOLD_PROTOCOL,
        operation_namespace=stream.namespace,
        operation_id="",
        expected_source_revision=0,
        source_revision_before=0,
        source_revision_after=0,
        submission_digest="",
        created_at_utc=_NOWHERE,
        context=saver.digests,
        catalogue_version=saver.catalogue.version,
        assumed_tracking_epoch=saver.tracking_epoch,
        trigger_reason=stream.name.partition(":")[0],
    ).to_bson()
    # A payload of this size would stand for its families as a whole in a save's entry, too.
    fits = {"$lte": [{"$bsonSize": "$$payload"}, PENDING_ENTRY_BYTES_MAX]}
    whole = [{"Kind": {"$literal": transition.kind}, "Payload": "$$payload"}]
    return {
        **{name: {"$literal": value} for name, value in stand_in.items()},
        "OperationId": {"$concat": [{"$literal": f"{stream.name}:"}, {"$toString": _VERSION}]},
        "ExpectedSourceRevision": _VERSION,
        "SourceRevisionBefore": _VERSION,
        "SourceRevisionAfter": _NEXT,
        "SubmissionDigest": "",
        "CreatedAtUtc": now,
        "Transitions": {"$cond": [fits, whole, []]},
        "Invalidations": {"$cond": [fits, _intents(moved - saver.families), _intents(moved)]},
    }


def _intents(families: frozenset[str]) -> dict[str, Any]:
    return {"$literal": [Intent(family=family).to_bson() for family in sorted(families)]}


def _overflow(now: Expression) -> dict[str, Any]:
    """The set's note of drops, or a new one, with one drop more that has no name."""
    fresh = {"OverflowedAtUtc": now, "Dropped": []}
    counted = {
        "UnrecordedCount": {"$add": [{"$ifNull": ["$$overflow.UnrecordedCount", 0]}, 1]},
        "UnrecordedFromRevision": {"$min": ["$$overflow.UnrecordedFromRevision", _VERSION]},
        "UnrecordedToRevision": {"$max": ["$$overflow.UnrecordedToRevision", _NEXT]},
    }
    return {"$mergeObjects": [fresh, "$$overflow", counted]}


def _nonsense(now: Expression) -> dict[str, Any]:
    """In place of a set that cannot be read: nothing that it may have held, nor this claim, is taken for absent."""
    return {
        "OldestAtUtc": now,
        "Entries": [],
        "Overflow": {
            "OverflowedAtUtc": now,
            "Dropped": [],
            "UnrecordedCount": 1,
            "UnrecordedFromRevision": 0,
            "UnrecordedToRevision": _VERSION,
        },
    }


def _well_formed() -> dict[str, Any]:
    """What ``pending_of`` reads without doubt, field by field."""
    overflow = f"{_SET}.Overflow"
    noted = {
        "$and": [
            _is(overflow, "object"),
            _is(f"{overflow}.OverflowedAtUtc", "date"),
            _is(f"{overflow}.Dropped", "array", "missing"),
            _is(f"{overflow}.UnrecordedCount", "int", "long", "missing"),
            _is(f"{overflow}.UnrecordedFromRevision", "int", "long", "null", "missing"),
            _is(f"{overflow}.UnrecordedToRevision", "int", "long", "null", "missing"),
        ]
    }
    return {
        "$and": [
            _is(_SET, "object"),
            _is(f"{_SET}.OldestAtUtc", "date"),
            _is(f"{_SET}.Entries", "array"),
            {"$or": [_is(overflow, "null", "missing"), noted]},
        ]
    }


def _is(path: str, *types: str) -> dict[str, Any]:
    return {"$in": [{"$type": path}, list(types)]}


def _let(variables: Mapping[str, Expression], within: Expression) -> dict[str, Any]:
    return {"$let": {"vars": dict(variables), "in": within}}
