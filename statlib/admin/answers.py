"""Answers to what went wrong: a typed refusal, or a fault with a correlation id; and the record that either leaves.

Free text of a database never leaves. A refused control attempt is audited here, whatever refused it: the operation,
the request's form, or a missing capability. Attempts without valid credentials are only counted.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)
from starlette.exceptions import HTTPException

from statlib.admin.principals import Principal
from statlib.admin.reasons import AdminReason
from statlib.admin.rules import Rule, System
from statlib.kernel.refusals import Reason, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.passes.actions import Action, Records
from statlib.passes.audit import count_unauthenticated, server_time
from statlib.postgres.reasons import PostgresReason

_log = logging.getLogger("statlib.admin")

RUN_HEADER = "X-Run-Id"
REQUEST_HEADER = "X-Request-Id"
TEXT_KEPT_MAX = 128  # characters of an unchecked header or path that an audit record keeps
CAUSE_MAX = 200  # characters of an error in the line that says why there is no record

_UNAVAILABLE = (ConnectionFailure, ServerSelectionTimeoutError, NetworkTimeout, ExecutionTimeout, WTimeoutError)
_STEPPING_DOWN = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})  # not primary, or shutting down
_OF_STATUS: dict[int, Reason] = {
    404: AdminReason.RouteUnknown,
    405: AdminReason.MethodNotAllowed,
    413: AdminReason.BodyTooLarge,
}
_HEADERS: dict[Reason, dict[str, str]] = {
    AdminReason.Unauthenticated: {"WWW-Authenticate": "Bearer"},
    AdminReason.BodyTooLarge: {"Connection": "close"},  # the rest of the body is not read
}


@dataclass(slots=True)
class Attempt:
    """What is known of a request so far; filled in as it passes the checks."""

    rule: Rule
    principal: Principal | None = None
    action: Action | None = None


def answer(request: Request, error: Exception) -> Response:
    """The answer to an error, once it is on record. Never raises."""
    attempt: Attempt | None = getattr(request.state, "attempt", None)
    refusal = refusal_of(error)
    if refusal is None:
        return _fault(request, attempt, error)
    if attempt is not None:
        _record_refusal(request, attempt, refusal)
    return refused(refusal)


def refused(refusal: Refusal) -> Response:
    headers = _HEADERS.get(refusal.reason)
    return JSONResponse(refusal.as_wire(), status_code=refusal.reason.http_status, headers=headers)


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal that an error is to its caller; None: it is a fault."""
    match error:
        case Refusal():
            # Whoever gave up because the database was away says so, and not that others were in the way.
            away = error.reason is MongoReason.Contended and _unavailable(error.__cause__)
            return _database_away() if away else error
        case RequestValidationError():
            return Refusal(AdminReason.RequestInvalid, _told(error))
        case HTTPException():
            return Refusal(_OF_STATUS.get(error.status_code, AdminReason.RequestInvalid))
        case psycopg.errors.QueryCanceled() | psycopg.errors.LockNotAvailable():
            return Refusal(PostgresReason.PostgresBusy)
        case psycopg.OperationalError():
            return Refusal(PostgresReason.PostgresUnreachable, "the connection was lost")
        case _ if _unavailable(error):
            return _database_away()
        case _:
            return None


def _database_away() -> Refusal:
    return Refusal(AdminReason.DatabaseUnavailable, "no primary answered in time")


def _unavailable(error: BaseException | None) -> bool:
    if isinstance(error, OperationFailure) and error.code in _STEPPING_DOWN:
        return True
    return isinstance(error, _UNAVAILABLE) or (isinstance(error, PyMongoError) and error.timeout)


def _told(error: RequestValidationError) -> str:
    """Where and what, never what was sent."""
    wrong = (f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors())
    return "; ".join(wrong)[:1_000].encode("utf-8", "replace").decode()


def _fault(request: Request, attempt: Attempt | None, error: Exception) -> Response:
    correlation = uuid4().hex
    _log.error("fault %s in %s %s", correlation, request.method, request.url.path, exc_info=error)
    if attempt is not None and attempt.principal is not None and attempt.rule.mutating:
        action = attempt.action or _unchecked(request, attempt.rule, attempt.principal)
        causes = _keep_somewhere(request, attempt.rule, lambda records: records.note_failure(action, correlation))
        _tell_of_no_record(f"fault {correlation}", causes)
    return JSONResponse({"fault": "unexpected", "correlation": correlation}, status_code=500)


def _record_refusal(request: Request, attempt: Attempt, refusal: Refusal) -> None:
    who = attempt.principal
    if who is None:
        causes = _count(_mongo(request), refusal.reason)
    elif attempt.rule.mutating or refusal.reason is AdminReason.Forbidden:
        action = attempt.action or _unchecked(request, attempt.rule, who)
        causes = _keep_somewhere(request, attempt.rule, lambda records: records.reject(action, refusal))
    else:
        return
    _tell_of_no_record(f"a refusal ({refusal.reason.name})", causes)


def _count(mongo: Mongo, reason: Reason) -> Sequence[Exception]:
    """Count an attempt of nobody's. What kept it from being written, nothing if it was."""
    try:
        count_unauthenticated(mongo, reason, now=server_time(mongo))
    except PyMongoError as error:
        return [error]
    return []


def _keep_somewhere(request: Request, rule: Rule, keep: Callable[[Records], None]) -> Sequence[Exception]:
    """Write an attempt that changed nothing into its system's records; into those of the boundary if that database is
    away or not configured. What kept it from being written to either, nothing if one took it."""
    records: Callable[[System], Records] = request.app.state.records
    causes: list[Exception] = []
    for system in dict.fromkeys((rule.system, System.STATISTICS)):
        try:
            keep(records(system))
        except (PyMongoError, psycopg.Error, Refusal) as error:
            causes.append(error)
        else:
            return []
    return causes


def _tell_of_no_record(of: str, causes: Sequence[Exception]) -> None:
    """One line of the boundary's log. A driver's own words run over many, and go on about every server."""
    if causes:
        told = "; ".join(" ".join(f"{type(cause).__name__}: {cause}".split())[:CAUSE_MAX] for cause in causes)
        _log.error("the audit record of %s could not be written: %s", of, told)


def _unchecked(request: Request, rule: Rule, who: Principal) -> Action:
    """An attempt that was refused before its request was understood: its body is kept as a digest only."""
    body: bytes = getattr(request.state, "body", b"")
    return Action(
        principal=who.name,
        authority=who.authority,
        action=rule.action,
        target=_kept(next(iter(request.path_params.values()), "")),
        request_id=_kept(request.headers.get(REQUEST_HEADER, "")),
        payload={"bodySha256": hashlib.sha256(body).hexdigest(), "bodyBytes": len(body)},
        route=rule.template,
        run=_kept(request.headers.get(RUN_HEADER, "")),
    )


def _kept(text: object) -> str:
    return str(text)[:TEXT_KEPT_MAX].encode("utf-8", "replace").decode()


def _mongo(request: Request) -> Mongo:
    mongo: Mongo = request.app.state.host.mongo
    return mongo
