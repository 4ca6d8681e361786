"""Families that were backfilled together, as the runbooks that put a project into service show them."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from statlib.admin import wire
from statlib.runbook.fragments import Column, Table


class FamilyBackfilled(BaseModel):
    family: str
    published: int
    current: int
    races_lost: int
    exact: bool


class Backfilled(BaseModel):
    """Each family, as it was published or found right."""

    families: list[FamilyBackfilled]

    @classmethod
    def of(cls, done: wire.Backfills) -> Self:
        return cls(
            families=[
                FamilyBackfilled(
                    family=found.rebuild.family,
                    published=len(found.rebuild.published),
                    current=len(found.rebuild.current),
                    races_lost=found.races_lost,
                    exact=found.parity.exact,
                )
                for found in done.families
            ]
        )

    def shown(self) -> Table:
        columns = (
            Column("Family"),
            Column("Published", numeric=True),
            Column("Right as they were", numeric=True),
            Column("Races lost", numeric=True),
            Column("Served and exact"),
        )
        rows = tuple(
            (f.family, f.published, f.current, f.races_lost, "yes" if f.exact else "no") for f in self.families
        )
        return Table("Families backfilled", columns, rows)
