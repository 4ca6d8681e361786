"""Rows as a bundle reads them: their counters, and what the row gate asks. The rest of a row stays on the server.

What outdates a row is nearly always the same in all rows of a family, so it is validated once for each run of equal
ones. Validating each of 172 rows whole took a third of reading their bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

    @property
    def state(self) -> State:
        return self.standing.state

    @property
    def write_epochs(self) -> WriteEpochs:
        return self.standing.write_epochs

    @property
    def source_version(self) -> int:
        return self.standing.source_version

    @property
    def catalogue_version(self) -> int:
        return self.standing.catalogue_version

    @property
    def configuration_digest(self) -> str:
        return self.standing.configuration_digest


def served_rows(stored: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], ServedRow]:
    """By family and scope, of documents with ``SERVED_FIELDS`` and nothing else.

    Raises Fault for a row without its names or whose counters are not whole numbers, and pydantic's ValidationError
    for a standing that makes no sense.
    """
    rows: dict[tuple[str, str], ServedRow] = {}
    known: Mapping[str, Any] | None = None
    standing: Standing | None = None
    for document in stored:
        rest = dict(document)
        try:
            family, scope, values = rest.pop("Family"), rest.pop("Scope"), _values(rest.pop("Counters"))
        except (KeyError, TypeError) as error:
            named = f"{document.get('Family')} {document.get('Scope')}"
            raise Fault(f"row {named} is not one: {error}", remedy="Backfill the family.") from error
        if standing is None or rest != known:
            standing, known = Standing.from_bson(rest), rest
        rows[family, scope] = ServedRow(family, scope, standing, values)
    return rows


def _values(counters: Any) -> dict[str, int]:
    values = from_stored(counters)
    if not _INTEGERS.issuperset(map(type, values.values())):
        raise TypeError("a counter is no whole number")
    return values
