"""Stored documents as pydantic models.

Stored fields are PascalCase (``_id`` apart), Python attributes snake_case; the mapping is declared here, once.
Invariant: a field that this release does not know survives every read-modify-write, in nested documents too,
because models keep what they did not declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_pascal


def _utc(value: datetime) -> datetime:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    aware = aware.astimezone(UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)  # BSON keeps milliseconds


UtcTime = Annotated[datetime, AfterValidator(_utc)]


class Stored(BaseModel):
    """Base of every stored document and sub-document."""

    model_config = ConfigDict(alias_generator=to_pascal, populate_by_name=True, extra="allow", frozen=True)

    @classmethod
    def from_bson(cls, document: Mapping[str, Any]) -> Self:
        return cls.model_validate(document)

    def to_bson(self) -> dict[str, Any]:
        """The document as stored, unknown fields included. UUIDs and times stay native for the driver."""
        return self.model_dump(mode="python", by_alias=True)


class Audit(Stored):
    """Version guard of a document; every guarded write compares ``version`` and adds one."""

    version: int = 0
    last_modified: UtcTime | None = None
