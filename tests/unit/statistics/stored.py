"""Stored documents with harmless defaults, for tests that are about one field of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from statlib.statistics.counters import to_stored
from statlib.statistics.documents import Guard, GuardId, Row, State, WriteEpochs
from statlib.statistics.gates import Stamp
from statlib.statistics.served_rows import SERVED_FIELDS, ServedRow, served_rows

PROJECT = UUID(int=1)
FAMILY = "Family"


class SameEverywhere:
    """Parameters that are alike for every scope."""

    def digest(self, family: str, scope: str) -> str:
        return "digest"


SAME = SameEverywhere()
STAMP = Stamp(fleet=1, project=2, tracking=3, catalogue_version=4, configuration=SAME)


def guard(state: State = State.FRESH, **changed: Any) -> Guard:
    given: dict[str, Any] = {"family_write_epoch": 5, "visible_generation": 1, "visible_token": "t"}
    return Guard(id=GuardId(project_id=PROJECT, family=FAMILY), state=state, **given | changed)


def row(scope: str = "project", counters: Mapping[str, int] | None = None, **changed: Any) -> Row:
    given: dict[str, Any] = {
        "project_id": PROJECT,
        "family": FAMILY,
        "scope": scope,
        "generation": 1,
        "token": "t",
        "state": State.FRESH,
        "is_published": True,
        "counters": to_stored(counters or {"n": 1}),
        "write_epochs": WriteEpochs(fleet=1, project=2, family=5, tracking=3),
        "catalogue_version": 4,
        "configuration_digest": "digest",
    }
    return Row(**given | changed)


def served_row(scope: str = "project", counters: Mapping[str, int] | None = None, **changed: Any) -> ServedRow:
    """The same row as a bundle read takes it."""
    document = row(scope, counters, **changed).to_bson()
    return served_rows([{name: document[name] for name in SERVED_FIELDS}])[FAMILY, scope]
