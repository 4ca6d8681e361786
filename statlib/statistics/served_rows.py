"""Rows as a bundle reads them: their counters, and what the row gate asks. The rest of a row stays on the server.

What outdates a row is nearly always the same in all rows of a family, so it is validated once for each run of equal
ones. Validating each of 172 rows whole took a third of reading their bundle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bson.int64 import Int64

from statlib.kernel.refusals import Fault
from statlib.mongo.documents import Stored
from statlib.statistics.counters import from_stored
from statlib.statistics.documents import SOURCE_VERSION, State, WriteEpochs

_INTEGERS: Final = frozenset({int, Int64})  # not bool, which is an int to isinstance


class Standing(Stored):
    """What a row was calculated under: the part of a stored row that decides whether it is current."""

    state: State
    write_epochs: WriteEpochs
    source_version: int = SOURCE_VERSION
    catalogue_version: int
    configuration_digest: str


SERVED_FIELDS: Final = ("Family", "Scope", "Counters", *(str(field.alias) for field in Standing.model_fields.values()))
"""The stored fields of a row that a read asks for."""


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One scope's row. ``values`` may hold zeros, which are as good as absent."""

    family: str
    scope: str
    standing: Standing
    values: dict[str, int]


def served_rows(stored: Iterable[dict[str, Any]]) -> dict[tuple[str, str], ServedRow]:
    """By family and scope, of documents with ``SERVED_FIELDS`` and nothing else, which are taken apart.

    Raises Fault for a row without its names or whose counters are not whole numbers, and pydantic's ValidationError
    for a standing that makes no sense.
    """
    rows: dict[tuple[str, str], ServedRow] = {}
    known: dict[str, Any] | None = None
    standing: Standing | None = None
    for rest in stored:
        family, scope, counters = rest.pop("Family", None), rest.pop("Scope", None), rest.pop("Counters", None)
        if family is None or scope is None:
            raise Fault(f"a row without its names: {family} {scope}")
        if standing is None or rest != known:
            standing, known = Standing.from_bson(rest), rest
        try:
            values = from_stored(counters)
        except (KeyError, TypeError) as error:
            raise _malformed(family, scope) from error
        if not _INTEGERS.issuperset(map(type, values.values())):
            raise _malformed(family, scope)
        rows[family, scope] = ServedRow(family, scope, standing, values)
    return rows


def _malformed(family: str, scope: str) -> Fault:
    return Fault(f"row {family} {scope} has counters that are none", remedy="Backfill the family.")
