"""What every route must declare: who may call it, and what it may refuse. A route without a rule cannot exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fastapi import FastAPI

from statlib.admin.principals import Capability, Principal
from statlib.admin.reasons import AdminReason
from statlib.kernel.cancellation import CancelReason
from statlib.kernel.refusals import Reason, Refusal
from statlib.mongo.reasons import MongoReason
from statlib.passes.actions import RequestReason
from statlib.postgres.reasons import PostgresReason
from statlib.statistics.reasons import SaveReason

DEADLINE_S = 30.0  # of a route whose work is bounded; what waits longer for the database is refused typed

_EVERY = (
    AdminReason.Unauthenticated,
    AdminReason.Forbidden,
    AdminReason.RequestInvalid,
    AdminReason.BodyTooLarge,
    AdminReason.AuthenticationUnavailable,
    AdminReason.DatabaseUnavailable,
    SaveReason.HostNotRegistered,
)
_MUTATING = (RequestReason.RequestConflict, MongoReason.Contended, MongoReason.CommitOutcomeUnknown)
_POSTGRES = (
    PostgresReason.PostgresNotConfigured,
    PostgresReason.PostgresUnreachable,
    PostgresReason.PostgresContended,
    PostgresReason.PostgresCommitUnknown,
    PostgresReason.PostgresBusy,
    PostgresReason.SchemaIncompatible,
    PostgresReason.MigrationEdited,
)
_LONG = (CancelReason.Cancelled, AdminReason.RequestInProgress, MongoReason.LeaseHeld, MongoReason.LeaseLost)


class System(StrEnum):
    """Whose database keeps the audit and the requests of a route."""

    STATISTICS = "statistics"
    BACKFILLS = "backfills"


@dataclass(frozen=True, slots=True)
class Rule:
    """One route. ``action`` names it in the audit.

    ``long``: its work has no fixed bound; it is claimed, can be cancelled, and has no deadline.
    """

    method: str
    path: str
    operation: str
    action: str
    capabilities: frozenset[Capability]
    answers: Any
    refuses: tuple[Reason, ...]
    long: bool
    system: System

    @property
    def mutating(self) -> bool:
        return self.method != "GET"

    @property
    def template(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def deadline_s(self) -> float | None:
        return None if self.long else DEADLINE_S

    @property
    def all_refusals(self) -> tuple[Reason, ...]:
        claimed = _LONG if self.long and self.system is System.STATISTICS else ()
        postgres = _POSTGRES if self.system is System.BACKFILLS else ()
        kinds = (*_EVERY, *(_MUTATING if self.mutating else ()), *claimed, *postgres, *self.refuses)
        return tuple(dict.fromkeys(kinds))

    def require(self, who: Principal) -> None:
        """Refuses Forbidden."""
        if not who.capabilities & self.capabilities:
            raise Refusal(AdminReason.Forbidden, f"needs {' or '.join(sorted(self.capabilities))}")


Endpoint = Callable[..., Any]


class Rules:
    """The routes of one subject, in the order of their declaration."""

    def __init__(self, system: System = System.STATISTICS) -> None:
        self._system = system
        self.all: list[tuple[Rule, Endpoint]] = []

    def route(
        self,
        method: str,
        path: str,
        *,
        needs: Iterable[Capability],
        answers: Any,
        refuses: Iterable[Reason] = (),
        long: bool = False,
        action: str = "",
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare the decorated function as a route. Its name is the stable operation id."""
        capabilities = frozenset(needs)
        if not capabilities:
            raise ValueError(f"{method} {path} names no capability")

        def declare(endpoint: Endpoint) -> Endpoint:
            operation = _camel(endpoint.__name__)
            rule = Rule(
                method, path, operation, action or operation, capabilities, answers, tuple(refuses), long, self._system
            )
            self.all.append((rule, endpoint))
            _rules[endpoint] = rule
            return endpoint

        return declare

    def add_to(self, app: FastAPI) -> None:
        for rule, endpoint in self.all:
            app.add_api_route(
                rule.path,
                endpoint,
                methods=[rule.method],
                operation_id=rule.operation,
                name=rule.operation,
                response_model=rule.answers,
                responses=_described(rule),
                openapi_extra={"x-capability": sorted(rule.capabilities), "x-cancellable": rule.long},
            )


_rules: dict[Endpoint, Rule] = {}


def rule_of(endpoint: Endpoint) -> Rule:
    """The rule that was declared for this endpoint. LookupError: it has none, so it must not be served."""
    try:
        return _rules[endpoint]
    except KeyError as error:
        raise LookupError(f"{endpoint!r} names no capability: declare it with Rules.route") from error


def _described(rule: Rule) -> dict[int | str, dict[str, Any]]:
    by_status: dict[int, list[Reason]] = {}
    for reason in rule.all_refusals:
        by_status.setdefault(reason.http_status, []).append(reason)
    described: dict[int | str, dict[str, Any]] = {
        status: {
            "description": "Refused: " + ", ".join(reason.name for reason in reasons),
            "content": {"application/json": {"schema": _refused(reasons)}},
        }
        for status, reasons in sorted(by_status.items())
    }
    described[500] = {"description": "An unexpected fault", "content": {"application/json": {"schema": _FAULT}}}
    return described


def _refused(reasons: list[Reason]) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "title": "Refused",
        "type": "object",
        "required": ["reason", "kind", "detail", "remedy", "state"],
        "properties": {
            "reason": {"type": "string", "enum": sorted(reason.name for reason in reasons)},
            "kind": {"type": "string", "enum": sorted({reason.kind.value for reason in reasons})},
            "detail": text,
            "remedy": text,
            "state": {"type": "object"},
        },
    }


_FAULT = {
    "title": "Fault",
    "type": "object",
    "required": ["fault", "correlation"],
    "properties": {"fault": {"const": "unexpected"}, "correlation": {"type": "string"}},
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def canonical_openapi(app: FastAPI) -> bytes:
    """The contract as one document whose bytes depend on nothing but the routes."""
    return json.dumps(app.openapi(), sort_keys=True, indent=1, ensure_ascii=False).encode()
