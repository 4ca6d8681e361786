"""What a project's own document says of its statistics, worked out once for as long as the document stays the same.

Parsing the project, naming its scopes and digesting their parameters took a fifth of serving all its families, and
gave every read the same until somebody edited the project. It follows from the document's bytes, the tracking mode and
the catalogue alone, and is remembered by these: by what was just read, never by time or by a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

from statlib.statistics.bounds import CONTEXTS_KEPT_MAX
from statlib.statistics.catalogue import AnyCatalogue, Configuration
from statlib.statistics.derivation import Consumer
from statlib.statistics.documents import TrackingMode

T = TypeVar("T")

_CODEC: CodecOptions[Mapping[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)


class Itself(Generic[T]):
    """Something as a key: that very one, since it cannot be hashed, or another one that is equal may differ."""

    def __init__(self, one: T) -> None:
        self.one = one

    def __hash__(self) -> int:
        return id(self.one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.one is self.one


def configuration_of(
    catalogue: AnyCatalogue, document: Mapping[str, Any], tracking: TrackingMode
) -> Configuration[Any]:
    """The project's configuration with its context, under the fleet's mode. Shared by all reads of equal documents, in
    whatever thread: nobody changes it. Raises what the domain raises for a document that makes no sense."""
    return _remembered(Itself(catalogue), bson.encode(document, codec_options=_CODEC), tracking)


def consumer_of(catalogue: AnyCatalogue, configuration: Configuration[Any], tracking_epoch: int) -> Consumer:
    """What the project's pending entries are held against, shared by all reads that share the configuration."""
    return _remembered_consumer(Itself(catalogue), Itself(configuration), tracking_epoch)


@lru_cache(maxsize=CONTEXTS_KEPT_MAX)
def _remembered(of: Itself[AnyCatalogue], document: bytes, tracking: TrackingMode) -> Configuration[Any]:
    context = of.one.domain.context(bson.decode(document, codec_options=_CODEC), tracking)
    return of.one.configuration(context)


@lru_cache(maxsize=CONTEXTS_KEPT_MAX)
def _remembered_consumer(
    catalogue: Itself[AnyCatalogue], of: Itself[Configuration[Any]], tracking_epoch: int
) -> Consumer:
    return Consumer.of(catalogue.one, of.one.context, tracking_epoch)
