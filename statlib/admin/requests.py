"""One request as the boundary sees it: authenticated, authorised and measured before its body is looked at."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

import pymongo
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from statlib.admin.answers import Attempt, answer
from statlib.admin.authentication import Authentication
from statlib.admin.edge import BODY_BYTES_MAX
from statlib.admin.principals import Principal
from statlib.admin.reasons import AdminReason
from statlib.admin.rules import rule_of
from statlib.kernel.refusals import Refusal

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """A route that answers nobody whom its rule does not name. One without a rule cannot be made."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.rule = rule_of(endpoint)
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()
        rule = self.rule
        known = frozenset(parameter.alias for parameter in self.dependant.query_params)

        async def guarded(request: Request) -> Response:
            attempt = Attempt(rule)
            request.state.attempt = attempt
            try:
                who = attempt.principal = await run_in_threadpool(_authenticate, request)
                rule.require(who)
                _require_well_formed(request, known)
                with pymongo.timeout(rule.deadline_s) if rule.deadline_s else nullcontext():
                    return await handle(request)
            except Exception as error:
                return await run_in_threadpool(answer, request, error)

        return guarded


def _authenticate(request: Request) -> Principal:
    authentication: Authentication = request.app.state.authentication
    return authentication.principal(request.headers.get("authorization"))


def _require_well_formed(request: Request, known: frozenset[str]) -> None:
    if not request.state.body_whole:
        raise Refusal(AdminReason.BodyTooLarge, f"at most {BODY_BYTES_MAX:,} bytes")
    if unknown := sorted(set(request.query_params) - known):
        told = ", ".join(unknown)[:200].encode("utf-8", "replace").decode()
        raise Refusal(AdminReason.RequestInvalid, f"unknown query parameters: {told}")
