"""Rows as a bundle reads them carry what the gates ask, and a row that is none is never served."""

from __future__ import annotations

from typing import Any

import pytest
from bson.int64 import Int64
from pydantic import ValidationError

from statlib.kernel.refusals import Fault
from statlib.statistics.documents import Row, State, WriteEpochs
from statlib.statistics.gates import row_gate
from statlib.statistics.reasons import ServeReason
from statlib.statistics.served_rows import SERVED_FIELDS, Standing, served_rows
from tests.unit.statistics.stored import FAMILY, STAMP, guard, row, served_row


def document(scope: str = "project", **changed: Any) -> dict[str, Any]:
    whole = row(scope).to_bson()
    return {name: whole[name] for name in SERVED_FIELDS} | changed


def test_a_standing_reads_its_fields_as_a_whole_row_does() -> None:
    of_row = {name: (field.alias, field.annotation, field.default) for name, field in Row.model_fields.items()}
    of_standing = {
        name: (field.alias, field.annotation, field.default) for name, field in Standing.model_fields.items()
    }
    assert of_standing.items() <= of_row.items()
    assert set(SERVED_FIELDS) <= {alias for alias, _, _ in of_row.values()}


def test_what_is_read_of_a_row_is_what_was_stored() -> None:
    stored = row("a", {"n": 3, "zero": 0}, write_epochs=WriteEpochs(fleet=9, project=8, family=7, tracking=6))
    served = served_row("a", {"n": 3, "zero": 0}, write_epochs=stored.write_epochs)
    assert (served.family, served.scope, served.values) == (stored.family, stored.scope, stored.values)
    assert all(getattr(served.standing, name) == getattr(stored, name) for name in Standing.model_fields)


def test_rows_that_stand_alike_share_one_standing_and_others_do_not() -> None:
    stale = {"State": State.STALE.value}
    rows = served_rows([document("a"), document("b"), document("c", **stale), document("d", **stale), document("e")])
    assert rows[FAMILY, "a"].standing is rows[FAMILY, "b"].standing
    assert [of.standing.state for of in rows.values()] == [
        State.FRESH,
        State.FRESH,
        State.STALE,
        State.STALE,
        State.FRESH,
    ]


@pytest.mark.parametrize("value", [0, [1], {"nested": 1}], ids=["a number", "an array", "a document"])
def test_an_epoch_of_a_later_release_outdates_the_row_that_carries_it_and_no_other(value: Any) -> None:
    epochs = {**document()["WriteEpochs"], "Shelf": value}
    rows = served_rows([document("a"), document("b", WriteEpochs=epochs), document("c")])
    assert {scope: row_gate(of, guard(), STAMP) for (_, scope), of in rows.items()} == {
        "a": None,
        "b": ServeReason.RowEpochOutdated,
        "c": None,
    }


def test_counters_of_either_integer_width_are_read() -> None:
    wide = served_rows([document(Counters=[{"k": "n", "v": Int64(2**40)}, {"k": "m", "v": 1}])])
    assert wide[FAMILY, "project"].values == {"n": 2**40, "m": 1}


@pytest.mark.parametrize("missing", ["Family", "Scope", "Counters"])
def test_a_row_without_its_names_or_counters_is_a_fault(missing: str) -> None:
    with pytest.raises(Fault, match="row"):
        served_rows([{name: value for name, value in document().items() if name != missing}])


@pytest.mark.parametrize(
    "counters",
    [
        None,
        3,
        [3],
        [{"k": "n"}],
        [{"v": 1}],
        [{"k": "n", "v": "1"}],
        [{"k": "n", "v": 1.0}],
        [{"k": "n", "v": True}],
        [{"k": "n", "v": None}],
    ],
    ids=repr,
)
def test_counters_that_are_not_whole_numbers_are_a_fault_that_names_the_row(counters: Any) -> None:
    with pytest.raises(Fault, match=f"row {FAMILY} b "):
        served_rows([document("a"), document("b", Counters=counters)])


@pytest.mark.parametrize(
    "changed",
    [
        {"State": "Ripe"},
        {"WriteEpochs": None},
        {"WriteEpochs": {"Fleet": 1, "Project": 2, "Family": 5}},
        {"SourceVersion": "one"},
        {"CatalogueVersion": None},
        {"ConfigurationDigest": 7},
    ],
    ids=repr,
)
def test_a_standing_that_makes_no_sense_is_not_read(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        served_rows([document("a"), document("b", **changed)])


@pytest.mark.parametrize("missing", ["State", "WriteEpochs", "CatalogueVersion", "ConfigurationDigest"])
def test_a_standing_with_something_missing_is_not_read(missing: str) -> None:
    with pytest.raises(ValidationError):
        served_rows([{name: value for name, value in document().items() if name != missing}])
