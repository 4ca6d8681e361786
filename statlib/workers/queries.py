"""The reads behind a deployment's gauges. None returns an identifier, and none grows with the number of studies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from statlib.schedule.states import OPEN
from statlib.statistics.documents import CONTROL, DELTA, Mode

Pipeline = list[Mapping[str, Any]]


def families_by_state() -> Pipeline:
    """Over guards: how many families there are per (state, whether their project's own gate is open)."""
    return [
        {"$lookup": {"from": CONTROL, "localField": "_id.ProjectId", "foreignField": "_id", "as": "Control"}},
        {
            "$group": {
                "_id": {"State": "$State", "Open": {"$in": [Mode.ENABLED, "$Control.Mode"]}},
                "Count": {"$sum": 1},
            }
        },
    ]


def fullest_ledger() -> Pipeline:
    """Over controls: rows of the fullest ledger, as ``ledger.rows_of`` has it, and when the oldest of all was
    observed (None: there is none)."""
    kept = {"$max": ["$LedgerRows", {"$subtract": ["$CommittedProjectionRevision", "$ReplayFloorRevision"]}]}
    first = [
        {"$sort": {"ProjectId": 1, "Revision": 1, "Record": 1}},
        {"$limit": 1},
        {"$project": {"_id": 0, "ObservedAtUtc": 1}},
    ]
    return [
        {"$project": {"Kept": kept}},
        {
            "$lookup": {
                "from": DELTA,
                "localField": "_id",
                "foreignField": "ProjectId",
                "pipeline": first,
                "as": "First",
            }
        },
        {
            "$group": {
                "_id": None,
                "Most": {"$max": "$Kept"},
                "Oldest": {"$min": {"$first": "$First.ObservedAtUtc"}},
                "Projects": {"$sum": 1},
            }
        },
    ]


def slots_by_state(since: datetime) -> Pipeline:
    """Over slots: those that are not over yet, whenever they fell due, and those that fell due after ``since``."""
    return [
        {"$match": {"$or": [{"State": {"$in": sorted(OPEN)}}, {"SlotAtUtc": {"$gte": since}}]}},
        {"$group": {"_id": "$State", "Count": {"$sum": "$SlotCount"}, "Oldest": {"$min": "$SlotAtUtc"}}},
    ]


def unexpired(now: Any) -> Mapping[str, Any]:
    """Filter: leases that somebody holds at the server's time ``now``."""
    return {"$expr": {"$gt": ["$ExpiresAtUtc", now]}}


def counted_by(field: str) -> Mapping[str, Any]:
    """The grouping stage that counts documents per value of ``field``."""
    return {"$group": {"_id": f"${field}", "Count": {"$sum": 1}}}
