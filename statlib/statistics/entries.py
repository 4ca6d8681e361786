"""What one save leaves in its own document for the fold: an entry for each of its operations, or nothing. Pure.

A save that moves and stales nothing leaves nothing, and so no evidence of itself. One that does anything leaves an
entry for every operation that it has, also for one without a part in it: each of them can then be told from its repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statlib.statistics.bounds import PENDING_ENTRY_BYTES_MAX
from statlib.statistics.catalogue import AnyCatalogue, AnyTransitions, Document, Encoded
from statlib.statistics.contexts import configuration_of, consumer_of
from statlib.statistics.derivation import Consumer
from statlib.statistics.documents import GlobalControl
from statlib.statistics.effects import Operation, Operations
from statlib.statistics.envelopes import Envelope
from statlib.statistics.outcomes import SourceWrite
from statlib.statistics.pending import FOLD_PROTOCOL, Entry, Intent, encoded_size
from statlib.statistics.sources import Loaded


@dataclass(frozen=True, slots=True)
class Saver:
    """Under what entries are written: the domain, one state of its context, and the families that this host keeps."""

    catalogue: AnyCatalogue
    transitions: AnyTransitions
    families: frozenset[str]
    at: Consumer

    @classmethod
    def of(cls, catalogue: AnyCatalogue, families: frozenset[str], context: Document, fleet: GlobalControl) -> Saver:
        if catalogue.transitions is None:
            raise AssertionError("only saves of a domain with transitions fold")
        configuration = configuration_of(catalogue, context, fleet.reviewer_tracking_mode)
        at = consumer_of(catalogue, configuration, fleet.reviewer_tracking_epoch)
        return cls(catalogue, catalogue.transitions, families, at)

    @property
    def digests(self) -> dict[str, str]:
        return dict(self.at.digests)

    @property
    def context(self) -> Any:
        return self.at.context

    @property
    def tracking_epoch(self) -> int:
        return self.at.tracking_epoch

    def encode(self, before: Any, after: Any, families: frozenset[str]) -> Encoded:
        """The change for ``families``; a family that this host does not keep is staled by it, if it is touched."""
        kept = self.transitions.encode(before, after, self.context, families & self.families)
        return Encoded(kept.transitions, (*kept.intents, *self.staled(before, after, families - self.families)))

    def staled(self, before: Any, after: Any, families: frozenset[str]) -> tuple[Intent, ...]:
        """Intents for those of ``families`` that the change touches, for each of them as a whole."""
        touched = (f for f in families if self.catalogue.families[f].derive(before, after, self.context).touches)
        return tuple(Intent(family=family) for family in sorted(touched))


def entries_of(
    saver: Saver, envelope: Envelope, submission_digest: str, loaded: Loaded, write: SourceWrite
) -> list[Entry]:
    """Entries of ``write`` upon what was loaded: one per operation, or none at all."""
    catalogue = saver.catalogue
    operations = Operations(Operation(envelope.namespace, envelope.operation_id), write.further)
    before = catalogue.domain.evidence(loaded.source)
    after = catalogue.domain.evidence({**loaded.source, **write.fields})
    if before == after:
        return []
    _only_folding_families(saver, before, after)
    parts = {operation: _families_of(catalogue, operations, operation) for operation in operations.all}
    encoded = {operation: saver.encode(before, after, families) for operation, families in parts.items()}
    if not any(encoded.values()):
        return []
    digests = saver.digests
    entries = [
        Entry(
            protocol_version=FOLD_PROTOCOL,
            operation_namespace=operation.namespace,
            operation_id=operation.operation_id,
            expected_source_revision=envelope.expected,
            source_revision_before=loaded.version,
            source_revision_after=loaded.version + 1,
            submission_digest=submission_digest,
            created_at_utc=loaded.now,
            context=digests,
            catalogue_version=catalogue.version,
            assumed_tracking_epoch=saver.tracking_epoch,
            transitions=list(encoded[operation].transitions),
            invalidations=list(encoded[operation].intents),
            trigger_reason=envelope.stream.partition(":")[0],
        )
        for operation in operations.all
    ]
    return [
        entry
        if encoded_size(entry.to_bson()) <= PENDING_ENTRY_BYTES_MAX
        else _stale_instead(entry, saver.staled(before, after, families))
        for entry, families in zip(entries, parts.values(), strict=True)
    ]


def _stale_instead(entry: Entry, intents: tuple[Intent, ...]) -> Entry:
    return entry.model_copy(update={"transitions": [], "invalidations": list(intents)})


def _families_of(catalogue: AnyCatalogue, operations: Operations, operation: Operation) -> frozenset[str]:
    return frozenset(family for family in catalogue.folding if operations.of(family) == operation)


def _only_folding_families(saver: Saver, before: Any, after: Any) -> None:
    """A save that moved another family would be lost on it: nothing in an entry speaks of those."""
    others = frozenset(saver.catalogue.families) - saver.catalogue.folding
    if moved := saver.staled(before, after, others):
        raise AssertionError(f"a save moves {', '.join(one.family for one in moved)}, which does not fold")
