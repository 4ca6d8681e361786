"""Reads of one pinned moment, and the authoritative calculation over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pymongo.client_session import ClientSession

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


def calculate(
    reads: PinnedReads, catalogue: AnyCatalogue, family: str, project: UUID, context: Any
) -> dict[str, Counters]:
    """Every declared scope of a family, counted from the source by one command; zeros are left out of each."""
    of = catalogue.family(family)
    counted = of.collect(reads.aggregate(catalogue.source_collection, of.aggregation(project, context)), context)
    return {scope: without_zeros(counted.get(scope, {})) for scope in of.declared_scopes(context)}
