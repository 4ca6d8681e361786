"""Reads of one pinned moment, and the authoritative calculation over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession

from statlib.kernel.cancellation import require_not_cancelled
from statlib.mongo.connection import Mongo
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.counters import Counters, without_zeros

# A reply is bounded by its 16 MiB; the server's default of 101 documents would cost large bundles a second command.
_REPLY_DOCS = 100_000


@dataclass(frozen=True, slots=True)
class PinnedReads:
    """Reads over a snapshot session. An answer within 16 MiB is one command."""

    mongo: Mongo
    session: ClientSession

    def aggregate(self, collection: str, pipeline: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        found = self.mongo.collection(collection).aggregate(list(pipeline), session=self.session, batchSize=_REPLY_DOCS)
        return list(found)

    def raw(self, collection: str, pipeline: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Each document as the server sent it, for those of which most need no decoding. Not by raw batches: their
        first is always empty, and the others cost a second command."""
        undecoded = self.mongo.database.codec_options.with_options(document_class=RawBSONDocument)
        found = (
            self.mongo.collection(collection)
            .with_options(codec_options=undecoded)
            .aggregate(list(pipeline), session=self.session, batchSize=_REPLY_DOCS)
        )
        return [bytes(document.raw) for document in found]

    def decoded(self, documents: Iterable[bytes]) -> list[dict[str, Any]]:
        return bson.decode_all(b"".join(documents), self.mongo.database.codec_options)


def calculate(
    reads: PinnedReads, catalogue: AnyCatalogue, families: Iterable[str], project: UUID, context: Any
) -> dict[str, dict[str, Counters]]:
    """Every declared scope of each family, counted from the source of one moment; zeros are left out.

    A registered pass that feeds two or more of the families counts them in one command; each of the rest costs one.
    Stops between two commands if it is told to. Refuses Cancelled.
    """
    left = list(dict.fromkeys(families))
    counted: dict[str, Mapping[str, Counters]] = {}
    for shared in catalogue.passes:
        fed = shared.families.intersection(left)
        if len(fed) > 1:
            require_not_cancelled()
            groups = reads.aggregate(catalogue.source_collection, shared.aggregation(project, context, fed))
            counted.update(shared.collect(groups, context, fed))
            left = [family for family in left if family not in fed]
    for name in left:
        family = catalogue.family(name)
        require_not_cancelled()
        groups = reads.aggregate(catalogue.source_collection, family.aggregation(project, context))
        counted[name] = family.collect(groups, context)
    return {
        name: {scope: without_zeros(of.get(scope, {})) for scope in catalogue.family(name).declared_scopes(context)}
        for name, of in counted.items()
    }
