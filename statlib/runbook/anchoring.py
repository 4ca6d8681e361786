"""Anchoring a run: its journal's head, in the database's audit, when it starts and when it is closed.

Wanted, an anchor that cannot be had is said in the journal and in the report, and the run goes on: evidence of what
happened is worth more than none. Required, a run that cannot be anchored does not start. Nor does one whose runbook
asks something of a deployment that does not answer or lets nobody in: it is the first to knock there, so it says so
once, and soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statlib.admin.reasons import AdminReason
from statlib.evidence.anchors import Anchor, AnchorPhase
from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.reasons import MongoReason
from statlib.review.catalogue import REVIEW
from statlib.runbook.archive import RunFolder
from statlib.runbook.reasons import RunbookReason

SERVER_WAIT_S = 5.0  # for a database that may be what the run is about: it must not hold the run's end up
_CLOSED = frozenset(
    {
        AdminReason.BoundaryUnreachable,
        AdminReason.DatabaseUnavailable,
        AdminReason.Unauthenticated,
        MongoReason.AddressInvalid,
        MongoReason.CredentialsRefused,
        MongoReason.ServerUnreachable,
    }
)


@dataclass(frozen=True, slots=True)
class Anchored:
    """``anchor`` is None where there is none; ``why`` then says it in one line, and ``refused`` is who said no."""

    anchor: Anchor | None
    why: str = ""
    refused: Refusal | None = None


def anchor_start(journal: Journal, folder: RunFolder, settings: Settings, *, offline: bool) -> None:
    """Anchor the journal's first lines. Refuses AnchorMissing where anchors are required and none can be had, and,
    unless the runbook is ``offline``, whatever says that there is no way in to the deployment."""
    found = _anchor(journal, folder, settings, AnchorPhase.STARTED)
    if found.anchor is not None:
        journal.append(EntryKind.Note, text="anchored in the database's audit", anchored=found.anchor.head)
        return
    if settings.evidence.anchor == "required":
        raise Refusal(RunbookReason.AnchorMissing, found.why)
    if not offline and found.refused is not None and found.refused.reason in _CLOSED:
        raise found.refused
    if _configured(settings):
        journal.append(EntryKind.Note, text=f"not anchored: {found.why}")


def anchor_close(journal: Journal, folder: RunFolder, settings: Settings) -> Anchored:
    """Anchor the closed journal. Never raises: the run is over, and its folder must still be sealed."""
    return _anchor(journal, folder, settings, AnchorPhase.CLOSED)


def anchors_of(run_id: str, settings: Settings) -> Sequence[Anchor]:
    """Every anchor that the deployment's database holds of this run. Refuses what the boundary refuses."""
    from statlib.admin.embedded import boundary  # noqa: PLC0415 - needs the extra `admin`

    with boundary(settings, REVIEW) as client:
        return tuple(anchor.plain() for anchor in client.anchors(run_id))


def _anchor(journal: Journal, folder: RunFolder, settings: Settings, phase: AnchorPhase) -> Anchored:
    if settings.evidence.anchor == "off":
        return Anchored(None, "anchors are turned off (evidence.anchor)")
    if not _configured(settings):
        return Anchored(None, "no deployment is configured (mongo.uri or admin.url)")
    entries = journal.entries
    head, count = entries[-1].hash, len(entries)
    try:
        from statlib.admin.embedded import boundary  # noqa: PLC0415 - a run without a deployment needs no server

        with boundary(_impatient(settings), REVIEW) as client:
            anchor = client.anchor(
                folder.run_id,
                runbook=folder.runbook,
                phase=phase,
                head=head,
                entries=count,
                request_id=f"{folder.run_id}-{phase}-{head[:16]}",
            )
    except Refusal as refusal:
        return Anchored(None, f"{type(refusal).__name__}: {refusal}", refusal)
    except (Fault, OSError) as error:
        return Anchored(None, f"{type(error).__name__}: {error}")
    except Exception as error:  # a driver's own: its words may hold an address, so its class alone is told
        return Anchored(None, type(error).__name__)
    return Anchored(anchor.plain())


def _configured(settings: Settings) -> bool:
    return bool(settings.admin.url or settings.mongo.uri.get_secret_value())


def _impatient(settings: Settings) -> Settings:
    wait_s = min(SERVER_WAIT_S, settings.mongo.server_selection_timeout_s)
    mongo = settings.mongo.model_copy(update={"server_selection_timeout_s": wait_s})
    return settings.model_copy(update={"mongo": mongo})
