"""Quarantine: what the fold took out of documents without applying it, so that a repeat is still known.

Nothing but its age ever deletes a record. Overflow is no breach and happens whenever no worker runs, so the number of
records is bounded without ever costing detection: towards the bound fold mode disables itself, and at it the project is
marked, after which a miss in quarantine proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

from statlib.mongo.connection import Mongo
from statlib.statistics.bounds import QUARANTINE_COPIES_MAX, QUARANTINE_HARD_MAX, QUARANTINE_SOFT_MAX
from statlib.statistics.documents import FOLD_QUARANTINE, FoldMode, ProjectControl, Quarantined
from statlib.statistics.fold.dispositions import SetAside


@dataclass(frozen=True, slots=True)
class Caps:
    """Records of a project: up to ``copies`` they keep the entry itself, at ``soft`` fold mode disables itself, and
    more than ``hard`` there are never."""

    copies: int = QUARANTINE_COPIES_MAX
    soft: int = QUARANTINE_SOFT_MAX
    hard: int = QUARANTINE_HARD_MAX


@dataclass(frozen=True, slots=True)
class Intake:
    """What becomes of what was set aside. ``disables``: fold mode ends with it; ``incomplete``: not all is recorded."""

    records: tuple[Quarantined, ...] = ()
    disables: bool = False
    incomplete: bool = False

    def control_fields(self, control: ProjectControl, now: datetime) -> dict[str, Any]:
        """What the project's control says of it, in the same transaction."""
        fields: dict[str, Any] = {}
        if self.disables:
            fields |= {"FoldMode": FoldMode.DISABLING.value, "FoldDisablingSinceUtc": now}
        if self.incomplete and control.fold_quarantine_incomplete_since_utc is None:
            fields["FoldQuarantineIncompleteSinceUtc"] = now
        return fields


def held(mongo: Mongo, session: ClientSession, project: UUID, caps: Caps) -> int:
    """How many records the project has, counted no further than just past the hard cap, and from the index alone."""
    quarantine = mongo.collection(FOLD_QUARANTINE)
    return quarantine.count_documents({"ProjectId": project}, limit=caps.hard + 1, session=session)


def take_in(aside: Sequence[SetAside], held: int, control: ProjectControl, now: datetime, caps: Caps) -> Intake:
    """Decide what is recorded, where ``held`` records are there already. Pure."""
    room = max(caps.hard - held, 0)
    return Intake(
        records=tuple(
            _record(one, control.id, now, keeps_copy=held + number < caps.copies)
            for number, one in enumerate(aside[:room])
        ),
        disables=bool(aside) and held + len(aside) >= caps.soft and control.fold_mode is FoldMode.ENABLED,
        incomplete=len(aside) > room,
    )


def _record(one: SetAside, project: UUID, now: datetime, *, keeps_copy: bool) -> Quarantined:
    namespace, operation = one.key
    lower, upper = one.revisions or (None, None)
    return Quarantined(
        project_id=project,
        study_id=one.aggregate,
        operation_namespace=namespace,
        operation_id=operation,
        reason=one.reason.value,
        submission_digest=one.digest,
        from_revision=lower,
        to_revision=upper,
        entry=_copy(one.entry) if keeps_copy else None,
        quarantined_at_utc=now,
    )


def _copy(entry: Any) -> dict[str, Any] | None:
    if entry is None or isinstance(entry, Mapping):
        return None if entry is None else dict(entry)
    return {"Value": entry}
