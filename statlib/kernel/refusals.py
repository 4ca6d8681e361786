"""Refusals and faults: the one exception tree.

    StatlibError
    ├── Refusal   an expected no, typed; it changed no domain state
    │             (kind ``unresolved`` alone says that it cannot know)
    └── Fault     anything else that went wrong; its cause is always chained

A system declares its reasons in one ``Reason`` enum: the member's name is what travels on the wire and in
the audit, its value carries the kind and what an operator does about it. Invariant: a fault is never dressed
as a refusal, so an operator may retry or correct a refusal without first asking what it left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any


class RefusalKind(StrEnum):
    """What sort of no it is; decides the HTTP status and whether trying again can help."""

    DISABLED = "disabled"
    CONTENTION = "contention"
    CAPACITY = "capacity"
    CONFLICT = "conflict"
    UNRESOLVED = "unresolved"
    NOT_FOUND = "not_found"
    INVALID = "invalid"
    UNAUTHORISED = "unauthorised"


HTTP_STATUS: Mapping[RefusalKind, int] = {
    RefusalKind.DISABLED: 409,
    RefusalKind.CONTENTION: 409,
    RefusalKind.CAPACITY: 409,
    RefusalKind.CONFLICT: 409,
    RefusalKind.UNRESOLVED: 409,
    RefusalKind.NOT_FOUND: 404,
    RefusalKind.INVALID: 422,
    RefusalKind.UNAUTHORISED: 403,
}

EXIT_REFUSED = 4
EXIT_FAULT = 6


class Reason(Enum):
    """Base of every system's closed list of reasons.

    Declare a member as ``Name = (kind, remedy)`` or ``(kind, remedy, http_status)``. Names are PascalCase,
    because they are stored and sent as they stand.
    """

    def __init__(self, kind: RefusalKind, remedy: str, http_status: int | None = None) -> None:
        self.kind = kind
        self.remedy = remedy
        self.http_status = http_status if http_status is not None else HTTP_STATUS[kind]


def find_reason(name: str) -> Reason | None:
    """The declared reason of that name, from any system that has been imported. Names are unique."""
    enums = list(Reason.__subclasses__())
    return next((enum[name] for enum in enums if name in enum.__members__), None)


class StatlibError(Exception):
    """Everything that statlib raises on purpose."""

    exit_code: int = EXIT_FAULT


class Refusal(StatlibError):
    """A typed no. Nothing was written, except where ``reason.kind`` is ``unresolved``.

    ``detail`` says which thing in one line, without free text from a database. ``state`` holds the current
    server state that a caller needs to decide what to do next (JSON values only). ``remedy`` stands in the place
    of the reason's own where the names to put into it are at hand.
    """

    exit_code = EXIT_REFUSED

    def __init__(
        self, reason: Reason, detail: str = "", *, state: Mapping[str, Any] | None = None, remedy: str = ""
    ) -> None:
        super().__init__(f"{reason.name}: {detail}" if detail else reason.name)
        self.reason = reason
        self.detail = detail
        self.state: Mapping[str, Any] = dict(state or {})
        self.remedy = remedy or reason.remedy
        self.add_note(f"remedy: {self.remedy}")  # a traceback shows it, where no command line does

    def as_wire(self) -> dict[str, Any]:
        """The body of the HTTP answer and of the audit record."""
        return {
            "reason": self.reason.name,
            "kind": self.reason.kind.value,
            "detail": self.detail,
            "remedy": self.remedy,
            "state": dict(self.state),
        }


class Fault(StatlibError):
    """Something broke. Raise it ``from`` its cause; ``remedy`` is the one thing to try next."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        if remedy:
            self.add_note(f"remedy: {remedy}")


class SettingsReason(Reason):
    """Why the settings or an input file were not accepted."""

    SettingsInvalid = (RefusalKind.INVALID, "Correct the named setting; docs/reference/settings.md lists them all.")
    InputUnreadable = (RefusalKind.INVALID, "Give an existing, readable file or folder.")
