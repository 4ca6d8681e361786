"""What shows that an operation was done, wherever it has got to by now, and when nothing can be read from a miss."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from statlib.statistics.documents import Quarantined, Receipt
from statlib.statistics.envelopes import Envelope, Opening
from statlib.statistics.idempotency import Evidence
from statlib.statistics.pending import PENDING, PendingSet, Poison, pending_of
from statlib.statistics.trail import EVERYTHING, Kept, Trail, trail_of

AT = datetime(2024, 5, 1, tzinfo=UTC)
PROJECT, STUDY, ANNA = UUID(int=1), UUID(int=2), UUID(int=3)
ENVELOPE = Envelope("n", "s", PROJECT, STUDY, ANNA, None, 5, Opening(1, 1), AT, siblings=("t",))
NO_DIGEST = "none"


def pending(*operations: tuple[str, str, Any]) -> PendingSet:
    entries = [
        {"OperationNamespace": n, "OperationId": o, "SubmissionDigest": d, "SourceRevisionAfter": 7}
        for n, o, d in operations
    ]
    return PendingSet(tuple(entries), None, AT)


def dropped(*operations: tuple[str, str, str], unrecorded_to: int | None = None) -> PendingSet:
    overflow = {
        "OverflowedAtUtc": AT,
        "Dropped": [{"OperationNamespace": n, "OperationId": o, "SubmissionDigest": d} for n, o, d in operations],
        "UnrecordedCount": 0 if unrecorded_to is None else 1,
        "UnrecordedFromRevision": None if unrecorded_to is None else 0,
        "UnrecordedToRevision": unrecorded_to,
    }
    return pending_of({"Audit": {"Version": 9}, PENDING: {"OldestAtUtc": AT, "Entries": [], "Overflow": overflow}})


def receipt(namespace: str, operation: str, digest: str) -> Receipt:
    return Receipt(
        project_id=PROJECT,
        operation_namespace=namespace,
        operation_id=operation,
        expected_source_revision=5,
        committed_source_before_revision=6,
        committed_source_after_revision=7,
        source_digest=digest,
        source_aggregate_id=STUDY,
        has_trusted_source_identity=True,
        created_at_utc=AT,
        observed_at_utc=AT,
    )


def quarantined(namespace: str, operation: str, digest: str | None, to: int | None = None) -> Quarantined:
    return Quarantined(
        project_id=PROJECT,
        study_id=STUDY,
        operation_namespace=namespace,
        operation_id=operation,
        reason=Poison.OVERFLOWED.value,
        submission_digest=digest,
        to_revision=to,
        quarantined_at_utc=AT,
    )


def trail(kept: Kept, namespace: str, operation: str, digest: str) -> Trail:
    match kept:
        case Kept.PENDING:
            return trail_of(pending((namespace, operation, digest)))
        case Kept.DROPPED:
            return trail_of(dropped((namespace, operation, digest)))
        case Kept.RECEIPT:
            return trail_of(PendingSet(), [receipt(namespace, operation, digest)])
        case Kept.QUARANTINE:
            return trail_of(PendingSet(), (), [quarantined(namespace, operation, digest)])


@pytest.mark.req("SAVE-53", "SAVE-54", "SAVE-55", "SAVE-56", "SAVE-57", "ENTRY-20")
@pytest.mark.parametrize("kept", list(Kept))
@pytest.mark.parametrize(
    ("namespace", "operation", "digest", "expected"),
    [
        ("n", "s:5", "mine", Evidence.SAME),
        ("n", "s:5", "another", Evidence.OTHER),
        ("n", "s:6", "mine", Evidence.SUPERSEDED),
        ("n", "s:4", "mine", Evidence.NONE),
        ("n", "t:5", "mine", Evidence.SUPERSEDED),
        ("n", "u:9", "mine", Evidence.NONE),
        ("m", "s:5", "mine", Evidence.NONE),
        ("n", "s:five", "mine", Evidence.NONE),
    ],
)
def test_an_operation_is_known_wherever_it_is_kept(
    kept: Kept, namespace: str, operation: str, digest: str, expected: Evidence
) -> None:
    found = trail(kept, namespace, operation, digest)
    assert found.evidence(ENVELOPE, "mine") is expected
    trace = found.of((namespace, operation))
    assert trace is not None
    assert (trace.kept, trace.leaves_receipt) == (kept, kept in {Kept.PENDING, Kept.RECEIPT})
    assert trace.revision_after == (7 if trace.leaves_receipt else None)


@pytest.mark.req("SAVE-58")
@pytest.mark.parametrize(
    "found",
    [trail_of(pending(("n", "s:5", None))), trail_of(PendingSet(), (), [quarantined("n", "s:5", None)])],
    ids=["pending", "quarantined"],
)
def test_an_operation_whose_digest_cannot_be_read_is_neither_this_one_nor_another(found: Trail) -> None:
    assert found.evidence(ENVELOPE, "mine") is Evidence.HIDDEN


@pytest.mark.req("SAVE-67", "SAVE-71", "SAVE-72")
@pytest.mark.parametrize("to", [4, 5, 6])
@pytest.mark.parametrize("where", ["document", "quarantine"])
def test_a_miss_proves_nothing_up_to_the_last_drop_without_a_name(to: int, where: str) -> None:
    unnamed = dropped(unrecorded_to=to), trail_of(PendingSet(), (), [quarantined("", "", None, to)])
    found = trail_of(unnamed[0]) if where == "document" else unnamed[1]
    assert found.evidence(ENVELOPE, "mine") is (Evidence.HIDDEN if to >= 5 else Evidence.NONE)


@pytest.mark.parametrize(
    "found",
    [
        trail_of(PendingSet(("text",), None, AT)),
        trail_of(PendingSet(({"OperationId": "s:5"},), None, AT)),
        trail_of(PendingSet(), (), [quarantined("", "", None)]),
        trail_of(pending_of({"Audit": {"Version": 6}, PENDING: "nonsense"})),
    ],
    ids=["an entry of text", "an entry without a namespace", "quarantined without a name", "a set of text"],
)
def test_a_miss_proves_nothing_beside_what_nobody_could_read(found: Trail) -> None:
    assert found.evidence(ENVELOPE, "mine") is Evidence.HIDDEN
    assert found.hidden_through in {EVERYTHING, 6}


def test_what_is_found_outweighs_what_may_be_hidden() -> None:
    hidden = [quarantined("", "", None)]
    assert trail_of(pending(("n", "s:5", "mine")), (), hidden).evidence(ENVELOPE, "mine") is Evidence.SAME


@pytest.mark.parametrize("through", [4, 5])
def test_a_miss_proves_nothing_where_receipts_were_retired(through: int) -> None:
    found = trail_of(PendingSet(), retired=[{"RetiredThroughSourceRevision": through}])
    assert found.evidence(ENVELOPE, "mine") is (Evidence.RETIRED if through == 5 else Evidence.NONE)
