"""The one state machine, for automatic and manual work alike.

``TRANSITIONS`` holds every edge with its reason; whatever is not in it is refused, here and by the database, whose own
table a test holds against this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Lifecycle(StrEnum):
    PENDING = "pending"  # registered, not started; no bound exists
    RUNNING = "running"  # started; a worker may claim it, once its backoff is over
    PAUSED = "paused"  # an operator wants it to rest
    BLOCKED = "blocked"  # something must be mended by an operator first
    FAILED = "failed"  # retries are exhausted, or validation failed
    VALIDATING = "validating"  # mutated through the bound; to be proved
    COMPLETED = "completed"  # proved; for ever


class Operator(StrEnum):
    """What an operator may ask for; there is nothing else."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    VALIDATE = "validate"


_L = Lifecycle
TRANSITIONS: Mapping[tuple[Lifecycle, Lifecycle], str] = {
    (_L.PENDING, _L.RUNNING): "start captured the bound",
    (_L.RUNNING, _L.PAUSED): "an operator paused it",
    (_L.RUNNING, _L.BLOCKED): "a prerequisite or an invariant of the data is not met",
    (_L.RUNNING, _L.FAILED): "its retries are exhausted",
    (_L.RUNNING, _L.VALIDATING): "no admitted work is left",
    (_L.PAUSED, _L.RUNNING): "an operator resumed it, and admitted work is left",
    (_L.PAUSED, _L.VALIDATING): "an operator resumed it, and no admitted work is left",
    (_L.BLOCKED, _L.RUNNING): "an operator retried it, and admitted work is left",
    (_L.BLOCKED, _L.VALIDATING): "an operator retried it, and no admitted work is left",
    (_L.FAILED, _L.RUNNING): "an operator retried it, and admitted work is left",
    (_L.FAILED, _L.VALIDATING): "an operator retried it, and no admitted work is left",
    (_L.VALIDATING, _L.PAUSED): "an operator paused it",
    (_L.VALIDATING, _L.COMPLETED): "validation succeeded",
    (_L.VALIDATING, _L.FAILED): "validation failed, or could not be run as often as it was tried",
    (_L.VALIDATING, _L.BLOCKED): "validation met an unmet prerequisite",
}
CLAIMABLE = frozenset({_L.RUNNING, _L.VALIDATING})
# from where each action that moves a row may be asked for, and where it has already been done
SOURCES: Mapping[Operator, frozenset[Lifecycle]] = {
    Operator.START: frozenset({_L.PENDING}),
    Operator.PAUSE: frozenset({_L.RUNNING, _L.VALIDATING}),
    Operator.RESUME: frozenset({_L.PAUSED}),
    Operator.RETRY: frozenset({_L.BLOCKED, _L.FAILED}),
}
CONVERGED: Mapping[Operator, frozenset[Lifecycle]] = {
    Operator.START: frozenset({_L.RUNNING, _L.VALIDATING}),
    Operator.PAUSE: frozenset({_L.PAUSED}),
    Operator.RESUME: frozenset({_L.RUNNING, _L.VALIDATING}),
    Operator.RETRY: frozenset({_L.RUNNING, _L.VALIDATING}),
}
