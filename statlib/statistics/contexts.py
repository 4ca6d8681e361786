"""What a project's own document says of its statistics, worked out once for as long as the document stays the same.

Parsing the project, naming its scopes and digesting their parameters took a fifth of serving all its families, and
gave every read the same until somebody edited the project. It follows from the document's bytes, the tracking mode and
the catalogue alone, and is remembered by these: by what was just read, never by time or by a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

from statlib.statistics.bounds import CONTEXTS_KEPT_MAX
from statlib.statistics.catalogue import AnyCatalogue, Configuration
from statlib.statistics.documents import TrackingMode

_CODEC: CodecOptions[Mapping[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)


class _Itself:
    """A catalogue as a key: that very one, since none can be hashed and two of one version may differ."""

    def __init__(self, catalogue: AnyCatalogue) -> None:
        self.catalogue = catalogue

    def __hash__(self) -> int:
        return id(self.catalogue)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.catalogue is self.catalogue


def configuration_of(
    catalogue: AnyCatalogue, document: Mapping[str, Any], tracking: TrackingMode
) -> Configuration[Any]:
    """The project's configuration with its context, under the fleet's mode. Shared by all reads of equal documents, in
    whatever thread: nobody changes it. Raises what the domain raises for a document that makes no sense."""
    return _remembered(_Itself(catalogue), bson.encode(document, codec_options=_CODEC), tracking)


@lru_cache(maxsize=CONTEXTS_KEPT_MAX)
def _remembered(of: _Itself, document: bytes, tracking: TrackingMode) -> Configuration[Any]:
    context = of.catalogue.domain.context(bson.decode(document, codec_options=_CODEC), tracking)
    return of.catalogue.configuration(context)
