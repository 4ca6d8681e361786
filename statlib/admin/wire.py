"""What travels over the boundary, both ways. JSON names are camelCase."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from statlib.admin.reasons import AdminReason
from statlib.kernel.refusals import Refusal
from statlib.statistics.backfill import Backfilled
from statlib.statistics.documents import GlobalControl, ProjectControl, Receipt
from statlib.statistics.parity import Comparison
from statlib.statistics.reader import Watermarks
from statlib.statistics.rebuild import Rebuilt
from statlib.statistics.status import FamilyStatus, ProjectStatus
from statlib.statistics.storage import CollectionSize


class Wire(BaseModel):
    """Base of every message: unknown fields of a newer server are kept, unknown fields of a request are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class Request(Wire):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class FleetModeRequest(Request):
    enabled: bool


class NarrowGateRequest(Request):
    enabled: bool


FAMILIES_ASKED_MAX = 20

FamilyName = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]


class FamilyRequest(Request):
    family: FamilyName
    force: bool = False


class FamiliesRequest(Request):
    """``families``: none named means every one that the boundary's settings keep."""

    families: tuple[FamilyName, ...] = Field(default=(), max_length=FAMILIES_ASKED_MAX)
    force: bool = False


class FleetMode(Wire):
    mode: str
    mode_epoch: int

    @classmethod
    def of(cls, control: GlobalControl) -> Self:
        return cls(mode=control.mode, mode_epoch=control.mode_epoch)


class NarrowGate(Wire):
    mode: str
    opening_count: int
    opened_at_utc: datetime | None

    @classmethod
    def of(cls, control: ProjectControl) -> Self:
        return cls(mode=control.mode, opening_count=control.opening_count, opened_at_utc=control.opened_at_utc)


class Clocks(Wire):
    source: int
    projection: int
    client: int
    mode_epoch: int

    @classmethod
    def of(cls, marks: Watermarks) -> Self:
        return cls(source=marks.source, projection=marks.projection, client=marks.client, mode_epoch=marks.mode_epoch)


class Family(Wire):
    family: str
    state: str
    scopes: int
    current: int
    rebuilding: bool
    served: bool
    reason: str | None
    remedy: str | None

    @classmethod
    def of(cls, status: FamilyStatus) -> Self:
        return cls(
            family=status.family,
            state=status.state,
            scopes=status.scopes,
            current=status.current,
            rebuilding=status.rebuilding,
            served=status.served,
            reason=status.reason.name if status.reason else None,
            remedy=status.reason.remedy if status.reason else None,
        )


class Status(Wire):
    project: UUID
    fleet_mode: str
    project_mode: str | None
    opening_count: int | None
    clocks: Clocks
    families: tuple[Family, ...]
    hosts: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, status: ProjectStatus) -> Self:
        return cls(
            project=status.project,
            fleet_mode=status.fleet_mode,
            project_mode=status.project_mode,
            opening_count=status.opening_count,
            clocks=Clocks.of(status.watermarks),
            families=tuple(Family.of(family) for family in status.families),
            hosts=tuple(dict(host) for host in status.hosts),
        )


class Rebuild(Wire):
    family: str
    published: tuple[str, ...]
    current: tuple[str, ...]
    drifted: tuple[str, ...]

    @classmethod
    def of(cls, rebuilt: Rebuilt) -> Self:
        return cls(family=rebuilt.family, published=rebuilt.published, current=rebuilt.current, drifted=rebuilt.drifted)


class ParityDifference(Wire):
    scope: str
    counter: str
    stored: int
    authoritative: int


class Parity(Wire):
    family: str
    scopes: int
    compared: bool
    exact: bool
    reason: str | None
    differing: int
    differences: tuple[ParityDifference, ...]
    clocks: Clocks

    @classmethod
    def of(cls, comparison: Comparison) -> Self:
        return cls(
            family=comparison.family,
            scopes=comparison.scopes,
            compared=comparison.compared,
            exact=comparison.exact,
            reason=comparison.reason.name if comparison.reason else None,
            differing=comparison.differing,
            differences=tuple(
                ParityDifference(scope=d.scope, counter=d.counter, stored=d.stored, authoritative=d.authoritative)
                for d in comparison.differences
            ),
            clocks=Clocks.of(comparison.watermarks),
        )


class Backfill(Wire):
    rebuild: Rebuild
    races_lost: int
    parity: Parity

    @classmethod
    def of(cls, backfilled: Backfilled) -> Self:
        return cls(
            rebuild=Rebuild.of(backfilled.rebuilt),
            races_lost=backfilled.races_lost,
            parity=Parity.of(backfilled.verified),
        )


class Backfills(Wire):
    """Of families that were backfilled together, in the order asked."""

    families: tuple[Backfill, ...]

    @classmethod
    def of(cls, backfilled: Iterable[Backfilled]) -> Self:
        return cls(families=tuple(map(Backfill.of, backfilled)))


class ReceiptLine(Wire):
    namespace: str
    operation_id: str
    expected: int
    before: int
    after: int
    digest: str
    observed_at_utc: datetime

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        return cls(
            namespace=receipt.operation_namespace,
            operation_id=receipt.operation_id,
            expected=receipt.expected_source_revision,
            before=receipt.committed_source_before_revision,
            after=receipt.committed_source_after_revision,
            digest=receipt.source_digest,
            observed_at_utc=receipt.observed_at_utc,
        )


class ReceiptPage(Wire):
    """``next`` is what to send as ``after`` for the following page; None at the end."""

    receipts: tuple[ReceiptLine, ...]
    next: str | None


def receipt_page(lines: list[ReceiptLine], limit: int) -> ReceiptPage:
    """A full page may have another after it: its cursor is the last line's place in the order."""
    last = lines[-1] if len(lines) == limit else None
    following = f"{last.observed_at_utc.isoformat()}|{last.operation_id}" if last else None
    return ReceiptPage(receipts=tuple(lines), next=following)


def parse_cursor(cursor: str) -> tuple[datetime, str]:
    """The place that ``receipt_page`` named. Refuses RequestInvalid."""
    at, _, operation_id = cursor.partition("|")
    try:
        return require_storable(datetime.fromisoformat(at)), operation_id
    except ValueError as error:
        raise Refusal(AdminReason.RequestInvalid, "after: not a cursor of this route") from error


def require_storable(at: datetime) -> datetime:
    """ValueError unless it names a zone and lies in years that every database and client can hold."""
    if at.tzinfo is None or not 1970 < at.year < 9000:
        raise ValueError("a time names its zone and lies between 1971 and 8999")
    return at


Instant = Annotated[datetime, AfterValidator(require_storable)]


class Size(Wire):
    collection: str
    documents: int
    size_bytes: int
    storage_bytes: int

    @classmethod
    def of(cls, size: CollectionSize) -> Self:
        return cls(
            collection=size.collection,
            documents=size.documents,
            size_bytes=size.size_bytes,
            storage_bytes=size.storage_bytes,
        )


class Storage(Wire):
    observed_at_utc: datetime
    collections: tuple[Size, ...]
