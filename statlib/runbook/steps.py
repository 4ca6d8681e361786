"""Steps: the units in which a runbook acts, each on record before and after.

Invariant: an effect is never repeated. A step that closed as done is not called again when its notebook is
re-run in the same run; its recorded result is read back and shown instead. A step whose process died is open
in the journal and is called again, so a step's function must itself be safe to call twice: it asks durable
state, or carries the run's request id for its step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from statlib.evidence.entries import Entry, EntryKind, StepOutcome
from statlib.evidence.journal import Journal
from statlib.kernel.digests import digest
from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.fragments import Fragment, KeyValues, StatusLine, Value
from statlib.runbook.look import shapes
from statlib.runbook.look.quantities import duration
from statlib.runbook.reasons import RunbookReason

RESULT_BYTES_MAX = 64 * 1024  # larger results belong into a capture; the journal stays readable by eye

DRY_RUN_ONLY = "dry run only"
INTERRUPTED = "interrupted"

A = ParamSpec("A")
R = TypeVar("R")
C = TypeVar("C")


class Shown(Protocol):
    """A result that says itself how it is looked at."""

    def shown(self) -> Fragment: ...


@dataclass(frozen=True, repr=False)
class Step(Fragment, Generic[R]):
    """How a step ended, and what it returned. ``value`` is None unless it is done.

    ``seconds`` is how long it took when it was called; ``recorded`` is true if that was in an earlier execution
    of the notebook and the value was read back. It shows itself as a status line with the result below: what
    ``value.shown()`` gives, else its fields.
    """

    name: str
    outcome: StepOutcome
    value: R | None
    seconds: float
    recorded: bool = False
    why: str = ""

    def html(self) -> str:
        below = self._below()
        return self._line().html() + (below.html() if below is not None else "")

    def text(self) -> str:
        below = self._below()
        return "\n".join([self._line().text(), *([below.text()] if below is not None else [])])

    def _line(self) -> StatusLine:
        took = f"{self.name}, {duration(self.seconds)}"
        match self.outcome:
            case StepOutcome.DONE if self.recorded:
                return StatusLine(
                    shapes.PASSED, "Done before", f"{took}; its recorded result is shown, nothing was repeated"
                )
            case StepOutcome.DONE:
                return StatusLine(shapes.PASSED, "Done", took)
            case StepOutcome.DRY_RUN:
                return StatusLine(
                    shapes.DRY, "Dry run only", f"{self.name} was not taken; to act, give apply and confirm"
                )
            case _:
                return StatusLine(shapes.DRY, "Not taken", f"{self.name}: {self.why}")

    def _below(self) -> Fragment | None:
        value: Any = self.value
        if value is None:
            return None
        if isinstance(value, Fragment):
            return value
        if callable(getattr(value, "shown", None)):
            return cast(Shown, value).shown()
        if isinstance(value, BaseModel):
            return KeyValues(tuple((_words(key), _cell(item)) for key, item in value))
        if is_dataclass(value):
            return KeyValues(tuple((_words(f.name), _cell(getattr(value, f.name))) for f in fields(value)))
        return KeyValues((("result", _cell(value)),))


class Steps(Generic[C]):
    """Takes steps in one run. ``context`` is handed to every function first; ``apply``: whether it may act."""

    def __init__(self, journal: Journal, context: C, *, apply: bool) -> None:
        self._journal = journal
        self._context = context
        self._apply = apply
        self._stopped = False

    def take(
        self,
        name: str,
        function: Callable[Concatenate[C, A], R],
        *,
        acting: bool,
        args: tuple[Any, ...],
        inputs: Mapping[str, Any],
    ) -> Step[R]:
        """Call ``function(context, *args, **inputs)`` unless the journal shows it done, or this is a dry run.

        Its return annotation must be a type that JSON can carry (a pydantic model, a dataclass, plain values):
        else Fault before it is called. Refuses RunDiffers if it closed with other inputs. What the function
        raises is recorded and raised on.
        """
        adapter = _result_adapter(name, function)
        plain = _plain_inputs(name, args, inputs)
        if (closed := closed_step(self._journal.entries, name)) is not None:
            return self._recorded(name, closed, plain, adapter)
        if self._stopped or (acting and not self._apply):
            return self._not_taken(name, plain, acting and not self._stopped)
        self._journal.append(EntryKind.StepStarted, step=name, inputs=plain, acting=acting)
        started = time.monotonic()
        try:
            value = function(self._context, *args, **inputs)
            result = _plain_result(name, adapter, value)
        except Refusal as refusal:
            wire = refusal.as_wire()
            self._journal.append(EntryKind.Refused, step=name, refusal_kind=wire.pop("kind"), **wire)
            self._close(name, StepOutcome.REFUSED, started, why=str(refusal))
            raise
        except KeyboardInterrupt:
            self._close(name, StepOutcome.FAILED, started, why=INTERRUPTED)
            raise
        except BaseException as error:
            self._close(name, StepOutcome.FAILED, started, why=type(error).__name__)
            raise
        seconds = self._close(name, StepOutcome.DONE, started, result=result)
        return Step(name, StepOutcome.DONE, value, seconds)

    def _recorded(
        self, name: str, closed: ClosedStep, plain: list[Any] | dict[str, Any], adapter: TypeAdapter[R]
    ) -> Step[R]:
        if closed.inputs_sha256 != digest(plain):
            raise Refusal(RunbookReason.RunDiffers, f"step {name} is closed in this run, with other inputs")
        if closed.outcome is not StepOutcome.DONE:
            self._stopped = True
            return Step(name, closed.outcome, None, 0.0, recorded=True, why=DRY_RUN_ONLY)
        try:
            value = adapter.validate_python(closed.result, strict=False)
        except ValidationError as error:
            raise Refusal(
                RunbookReason.RunDiffers, f"step {name} is closed in this run, by another version of it"
            ) from error
        return Step(name, StepOutcome.DONE, value, closed.seconds, recorded=True)

    def _not_taken(self, name: str, plain: Any, first: bool) -> Step[R]:
        self._stopped = True
        outcome = StepOutcome.DRY_RUN if first else StepOutcome.SKIPPED
        self._journal.append(EntryKind.StepStarted, step=name, inputs=plain, acting=first)
        self._close(name, outcome, time.monotonic(), why=DRY_RUN_ONLY)
        return Step(name, outcome, None, 0.0, why=DRY_RUN_ONLY)

    def _close(self, name: str, outcome: StepOutcome, started: float, *, result: Any = None, why: str = "") -> float:
        seconds = round(time.monotonic() - started, 6)
        self._journal.append(
            EntryKind.StepClosed, step=name, outcome=outcome.value, seconds=seconds, result=result, why=why
        )
        return seconds


@dataclass(frozen=True, slots=True)
class ClosedStep:
    """A step that is not to be called again, as the journal holds it."""

    outcome: StepOutcome
    result: Any
    seconds: float
    inputs_sha256: str


def closed_step(entries: tuple[Entry, ...], name: str) -> ClosedStep | None:
    """The last closing of the step, unless it was refused or failed: those may be tried again."""
    started = closed = None
    for entry in entries:
        if entry.data.get("step") != name:
            continue
        if entry.kind is EntryKind.StepStarted:
            started, closed = entry, None
        elif entry.kind is EntryKind.StepClosed:
            closed = entry
    if started is None or closed is None:
        return None
    outcome = StepOutcome(str(closed.data["outcome"]))
    if outcome in (StepOutcome.REFUSED, StepOutcome.FAILED):
        return None
    seconds: Any = closed.data.get("seconds") or 0.0
    return ClosedStep(outcome, closed.data.get("result"), float(seconds), digest(started.data.get("inputs")))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> Value:
    return value if value is None or isinstance(value, str | int | float | datetime | Fragment) else str(value)


def _result_adapter(name: str, function: Callable[..., Any]) -> TypeAdapter[Any]:
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise Fault(
            f"step {name}: an annotation of {function.__qualname__} names {error.name!r}, unknown when it runs",
            remedy="Import it outside TYPE_CHECKING.",
        ) from error
    if "return" not in hints:
        raise Fault(
            f"step {name}: {function.__qualname__} does not say what it returns",
            remedy="Annotate it; the type is how its result is read back when the notebook is re-run.",
        )
    return TypeAdapter(hints["return"])


def _plain_result(name: str, adapter: TypeAdapter[R], value: R) -> Any:
    plain = adapter.dump_python(value, mode="json")
    if (size := len(adapter.dump_json(value))) > RESULT_BYTES_MAX:
        raise Fault(
            f"step {name} returned {size} bytes of JSON; {RESULT_BYTES_MAX} is the bound",
            remedy="Write the rows to a capture and return a summary.",
        )
    return plain


def _plain_inputs(name: str, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> Any:
    try:
        plain = TypeAdapter(dict[str, Any]).dump_python(dict(inputs), mode="json")
        return {"args": TypeAdapter(list[Any]).dump_python(list(args), mode="json"), **plain} if args else plain
    except ValueError as error:
        raise Fault(
            f"step {name} was given an input that JSON cannot carry", remedy="Give plain values or models."
        ) from error
