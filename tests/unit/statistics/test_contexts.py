"""A project's configuration is worked out anew for whatever could change it, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from statlib.kernel.refusals import Refusal
from statlib.statistics.catalogue import Catalogue
from statlib.statistics.contexts import configuration_of
from statlib.statistics.documents import TrackingMode
from statlib.statistics.reasons import OperateReason
from tests.domain import FAMILIES, LIBRARY, LOANS, SHELVES, VISITS, BookEvidence, LibraryContext, LibraryDomain

TRACKED = TrackingMode.TRACKED


@dataclass
class CountingDomain(LibraryDomain):
    parsed: list[TrackingMode] = field(default_factory=list)

    def context(self, project: Any, tracking: TrackingMode) -> LibraryContext:
        self.parsed.append(tracking)
        return super().context(project, tracking)


def counted() -> tuple[Catalogue[LibraryContext, BookEvidence], CountingDomain]:
    domain = CountingDomain()
    return replace(LIBRARY, domain=domain), domain


def document(**changed: Any) -> dict[str, Any]:
    return {"_id": UUID(int=1), "Shelves": [0, 1], "Visitors": ["ann"], "Entitled": 3} | changed


def test_equal_documents_share_one_configuration() -> None:
    catalogue, domain = counted()
    first = configuration_of(catalogue, document(), TRACKED)
    assert configuration_of(catalogue, document(), TRACKED) is first
    assert domain.parsed == [TRACKED]
    assert first.context == LibraryContext((0, 1), ("ann",), 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"Shelves": [0, 1, 2]},
        {"Visitors": []},
        {"Entitled": 4},
        {"Entitled": 3.0},
        {"Name": "new"},
        {"_id": UUID(int=2)},
    ],
    ids=repr,
)
def test_an_edited_document_is_parsed_and_the_edit_undone_gives_the_first_again(changed: dict[str, Any]) -> None:
    catalogue, domain = counted()
    first = configuration_of(catalogue, document(), TRACKED)
    edited = configuration_of(catalogue, document(**changed), TRACKED)
    assert edited is not first
    assert edited.context == LibraryDomain().context(document(**changed), TRACKED)
    assert configuration_of(catalogue, document(), TRACKED) is first
    assert len(domain.parsed) == 2


def test_true_and_one_are_two_documents_though_they_are_equal() -> None:
    catalogue, _ = counted()
    one = configuration_of(catalogue, document(Entitled=1), TRACKED)
    true = configuration_of(catalogue, document(Entitled=True), TRACKED)
    assert one.digest(LOANS, "project") != true.digest(LOANS, "project")


def test_the_tracking_mode_is_part_of_what_is_remembered() -> None:
    catalogue, domain = counted()
    for tracking in (TRACKED, TrackingMode.UNTRACKED, TRACKED):
        configuration_of(catalogue, document(), tracking)
    assert domain.parsed == [TRACKED, TrackingMode.UNTRACKED]


def test_two_catalogues_never_share_even_if_they_are_equal() -> None:
    catalogue, domain = counted()
    other = replace(catalogue)
    assert configuration_of(catalogue, document(), TRACKED) is not configuration_of(other, document(), TRACKED)
    assert len(domain.parsed) == 2


def test_a_document_that_makes_no_sense_is_refused_each_time() -> None:
    catalogue, domain = counted()
    for _ in range(2):
        with pytest.raises(KeyError):
            configuration_of(catalogue, {"_id": UUID(int=1)}, TRACKED)
    assert len(domain.parsed) == 2


def test_what_a_configuration_says_of_a_scope_is_what_its_family_says_of_it() -> None:
    configuration = configuration_of(LIBRARY, document(), TRACKED)
    fresh = LIBRARY.configuration(configuration.context)
    for family in FAMILIES:
        scopes = LIBRARY.family(family).declared_scopes(configuration.context)
        assert configuration.declared_scopes(family) == configuration.declared_scopes(family) == scopes
        for _ in range(2):
            assert [configuration.digest(family, s) for s in scopes] == [fresh.digest(family, s) for s in scopes]


def test_scopes_asked_for_are_resolved_or_refused() -> None:
    configuration = configuration_of(LIBRARY, document(), TRACKED)
    asked = {SHELVES: None, VISITS: ["visitor/ann"], LOANS: []}
    assert configuration.declared(asked) == {SHELVES: ("shelf/0", "shelf/1"), VISITS: ("visitor/ann",), LOANS: ()}
    with pytest.raises(Refusal, match="shelf/9") as refused:
        configuration.declared({SHELVES: ["shelf/0", "shelf/9"]})
    assert refused.value.reason is OperateReason.ScopeUnknown
    with pytest.raises(Refusal) as refused:
        configuration.declared({"Nothing": None})
    assert refused.value.reason is OperateReason.FamilyUnknown
