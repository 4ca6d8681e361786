"""How all backfills of a database stand, added up: what gauges show. Read from PostgreSQL each time, and never back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statlib.backfills.failures import FailureKind
from statlib.backfills.lifecycle import CLAIMABLE, Lifecycle
from statlib.backfills.readiness import readiness
from statlib.backfills.registry import Registry
from statlib.backfills.sql import statement
from statlib.backfills.telemetry import Phase
from statlib.postgres.connection import Postgres
from statlib.postgres.transactions import transact


class Proof(StrEnum):
    """What the last validation said; ``unknown`` where there was none."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class ClaimStanding(StrEnum):
    """``run-out``: its owner was lost, and nobody has taken the backfill over yet."""

    HELD = "held"
    RUN_OUT = "run-out"


class Rows(StrEnum):
    """What batches that committed did to rows."""

    SELECTED = "selected"
    CHANGED = "changed"


class Gate(StrEnum):
    """What backfills make of readiness; ``off`` in manual mode, where they never gate."""

    OFF = "off"
    OPEN = "open"
    GATED = "gated"


@dataclass(frozen=True, slots=True)
class Standing:
    """One reading. Every value of every enum is there, also at nought.

    ``stalled_s``: seconds since the backfill at work that waited longest moved its checkpoint, 0 where none is at work;
    ``retried``: backfills with tries since their last progress.
    """

    lifecycles: Mapping[Lifecycle, int]
    gate: Gate
    claims: Mapping[ClaimStanding, int]
    rows: Mapping[Rows, int]
    batches: int
    stalled_s: float
    retried: int
    failures: Mapping[FailureKind, int]
    proofs: Mapping[Proof, int]
    spent_s: Mapping[Phase, float]


def read_standing(postgres: Postgres, registry: Registry) -> Standing:
    """Everything now. Raises what reading raises: what cannot be read is unknown, and no number stands for it."""
    asked = statement("standing", postgres.clock)
    found = transact(postgres, lambda session: session.all(asked), read_only=True)
    ready = readiness(postgres, registry)
    return added_up(found, Gate.OFF if not ready.automatic else Gate.OPEN if ready.ready else Gate.GATED)


def added_up(groups: Sequence[Mapping[str, Any]], gate: Gate) -> Standing:
    """The groups of the statement ``standing`` as one reading."""

    def total(name: str, **where: str) -> int:
        return sum(int(one[name]) for one in groups if all(one[key] == value for key, value in where.items()))

    waits = [one["since_progress_s"] for one in groups if one["lifecycle"] in CLAIMABLE]
    return Standing(
        lifecycles={one: total("backfills", lifecycle=one) for one in Lifecycle},
        gate=gate,
        claims={ClaimStanding.HELD: total("claims_held"), ClaimStanding.RUN_OUT: total("claims_run_out")},
        rows={Rows.SELECTED: total("rows_selected"), Rows.CHANGED: total("rows_changed")},
        batches=total("batches"),
        stalled_s=max((wait for wait in waits if wait is not None), default=0.0),
        retried=total("retried"),
        failures={kind: total("backfills", failure_kind=kind) for kind in FailureKind if kind is not FailureKind.NONE},
        proofs={proof: total("backfills", validation=proof) for proof in Proof},
        spent_s={
            Phase.EXECUTION: total("execution_ms") / 1000,
            Phase.VALIDATION: total("validation_ms") / 1000,
        },
    )
