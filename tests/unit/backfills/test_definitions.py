"""What a definition must declare, and within which bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statlib.backfills.bounds import ATTEMPTS_MAX, CHANGES_PER_ROW_MAX, ROWS_MAX, TRANSACTION_S_MAX
from statlib.backfills.definitions import BatchBound, Definition, OrderingKey, RetryPolicy, key
from statlib.backfills.reasons import BackfillReason
from statlib.backfills.registry import Registry
from statlib.kernel.refusals import Refusal

WHOLE: dict[str, Any] = {
    "id": "fold-notes",
    "title": "Fold the case of notes",
    "key": key("place"),
    "source": "note",
    "mutate": "UPDATE note SET folded = lower(text) WHERE {window}",
    "validate": "SELECT place FROM note WHERE {window} AND folded IS NULL",
    "bound": BatchBound(rows_max=10),
}
BOUND = BatchBound(rows_max=10)


@pytest.mark.req("BF-ID-01")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", "Fold Notes"),
        ("id", "x" * 64),
        ("key", OrderingKey(())),
        ("mutate", ""),
        ("mutate", "UPDATE note SET folded = lower(text)"),
        ("validate", ""),
        ("validate", "SELECT place FROM note"),
        ("select", "SELECT place FROM note"),
        ("bound", replace(BOUND, rows_max=0)),
        ("bound", replace(BOUND, rows_max=ROWS_MAX + 1)),
        ("bound", replace(BOUND, validation_rows_max=0)),
        ("bound", replace(BOUND, changes_per_row=CHANGES_PER_ROW_MAX + 1)),
        ("bound", replace(BOUND, transaction_s=TRANSACTION_S_MAX + 1)),
        ("bound", replace(BOUND, lock_s=0.0)),
        ("bound", replace(BOUND, target_s=BOUND.transaction_s + 1)),
        ("retry", RetryPolicy(attempts_max=0)),
        ("retry", RetryPolicy(attempts_max=ATTEMPTS_MAX + 1)),
        ("retry", RetryPolicy(backoff_s=0.0)),
    ],
)
def test_what_is_missing_or_unbounded_is_refused_as_it_is_written(field: str, value: object) -> None:
    assert Definition(**WHOLE).id == "fold-notes"
    with pytest.raises(Refusal) as refused:
        Definition(**WHOLE | {field: value})
    assert refused.value.reason is BackfillReason.DefinitionInvalid


@pytest.mark.req("BF-ID-01")
@pytest.mark.parametrize("field", ["id", "key", "mutate", "validate", "bound"])
def test_none_of_the_five_parts_has_a_default(field: str) -> None:
    with pytest.raises(TypeError):
        Definition(**{name: value for name, value in WHOLE.items() if name != field})


def test_two_definitions_under_one_id_are_refused_and_nobody_chooses() -> None:
    with pytest.raises(Refusal) as refused:
        Registry((Definition(**WHOLE), Definition(**WHOLE | {"title": "Another"})))
    assert refused.value.reason is BackfillReason.DefinitionInvalid
    with pytest.raises(Refusal) as unknown:
        Registry((Definition(**WHOLE),)).get("another")
    assert unknown.value.reason is BackfillReason.DefinitionUnknown


def test_waits_between_tries_double_up_to_their_cap() -> None:
    policy = RetryPolicy(backoff_s=1.0, backoff_max_s=5.0)
    assert [policy.delay_s(tried) for tried in (1, 2, 3, 4, 500)] == [1.0, 2.0, 4.0, 5.0, 5.0]
