"""The end of fold mode: once no writer can still be appending, and nothing is pending."""

from __future__ import annotations

from datetime import datetime, timedelta

from statlib.statistics.bounds import FOLD_WRITER_GRACE_S
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.documents import CONTROL, FoldMode, ProjectControl
from statlib.statistics.fold import batch
from statlib.statistics.unit import Overtaken, Unit


def grace_is_over(control: ProjectControl, now: datetime) -> bool:
    """Whether the project is being disabled, and has been for longer than any write that began before takes."""
    since = control.fold_disabling_since_utc
    return (
        control.fold_mode is FoldMode.DISABLING
        and since is not None
        and now - since >= timedelta(seconds=FOLD_WRITER_GRACE_S)
    )


def finalise(unit: Unit, catalogue: AnyCatalogue) -> bool:
    """Clear fold mode and its tripwire in the unit's transaction, if the time has come. Returns whether it did.

    No row, clock or epoch moves: what is stored is exact, and stays so.
    """
    control = unit.control
    if not grace_is_over(control, unit.state.now):
        return False
    if batch.anything(unit.mongo, catalogue, unit.session, batch.Selection(control.id)):
        return False
    ended = {
        "FoldMode": FoldMode.DISABLED.value,
        "FoldDisablingSinceUtc": None,
        "StorageVersion": control.storage_version - control.tripwire,
    }
    done = unit.mongo.collection(CONTROL).update_one(
        {"_id": control.id, "Audit.Version": control.audit.version},
        {"$set": ended, "$inc": {"Audit.Version": 1}},
        session=unit.session,
    )
    if done.matched_count != 1:
        raise Overtaken
    return True
