"""From a caller's report to an envelope and a save: what every domain's writer does alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.statistics.attempts import save
from statlib.statistics.bounds import SUBMISSION_ROUNDS_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved, SourceChange
from statlib.statistics.reasons import SaveReason
from statlib.statistics.sources import load


@dataclass(frozen=True, slots=True)
class Stream:
    """One actor's doings of one kind on one document. ``name`` is what operation ids begin with."""

    namespace: str
    name: str
    project: UUID
    aggregate: UUID
    actor: UUID
    stage: UUID | None = None


def open_envelope(host: Host, catalogue: AnyCatalogue, stream: Stream) -> Envelope:
    """Read the document and mint the envelope of one submission. Refuses SourceNotFound, ProjectNotFound."""
    host.require_open()
    loaded = load(host.mongo, catalogue, stream.project, stream.aggregate)
    return Envelope(
        namespace=stream.namespace,
        stream=stream.name,
        project=stream.project,
        aggregate=stream.aggregate,
        actor=stream.actor,
        stage=stream.stage,
        expected=loaded.version,
        opening=loaded.opening,
        created_at=loaded.now,
        fold_sequence=loaded.fold_sequence,
        loaded=loaded,
    )


def submit(host: Host, catalogue: AnyCatalogue, stream: Stream, change: SourceChange) -> Saved:
    """Open and save, again on a document that moved meanwhile: at most three rounds. Refuses as ``save`` does."""
    return in_rounds(lambda: save(host, catalogue, open_envelope(host, catalogue, stream), change))


def in_rounds(deliver: Callable[[], Saved]) -> Saved:
    """Open and save, again on a document that moved meanwhile: at most three rounds. Raises what ``deliver`` does."""
    for _ in range(SUBMISSION_ROUNDS_MAX - 1):
        try:
            return deliver()
        except Refusal as refusal:
            if refusal.reason is not SaveReason.VersionStale:
                raise
    return deliver()
