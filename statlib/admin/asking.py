"""What endpoints are handed: the process that acts, who asks, and under which request id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, Header, Path, Request

from statlib.admin import wire
from statlib.admin.answers import REQUEST_HEADER, RUN_HEADER, Attempt
from statlib.admin.operations import Operations
from statlib.admin.principals import Principal
from statlib.backfills.service import Backfills
from statlib.kernel.cancellation import Cancellation
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.passes.actions import Action
from statlib.postgres.reasons import PostgresReason
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.hosts import Host

_ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
RequestId = Annotated[str, Header(alias=REQUEST_HEADER, min_length=8, max_length=128, pattern=_ID)]
OptionalRequestId = Annotated[str | None, Header(alias=REQUEST_HEADER, min_length=8, max_length=128, pattern=_ID)]
PathRequestId = Annotated[str, Path(min_length=8, max_length=128, pattern=_ID)]
RunId = Annotated[str, Header(alias=RUN_HEADER, max_length=128, pattern=r"^[A-Za-z0-9._:-]*$")]


@dataclass(frozen=True, slots=True)
class Asked:
    """One authorised request."""

    host: Host
    catalogue: AnyCatalogue
    operations: Operations
    connection: Cancellation
    principal: Principal
    run: str
    _attempt: Attempt

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    def action(self, target: object, request_id: str | None, payload: wire.Request | Mapping[str, Any]) -> Action:
        """What is attempted; from now on a refusal is audited as this."""
        plain = payload.model_dump(mode="json", by_alias=True) if isinstance(payload, wire.Request) else payload
        action = Action(
            principal=self.principal.name,
            authority=self.principal.authority,
            action=self._attempt.rule.action,
            target=str(target),
            request_id=request_id or str(uuid4()),
            payload=plain,
            route=self._attempt.rule.template,
            run=self.run,
        )
        self._attempt.action = action
        return action


def _asked(request: Request, run: RunId = "") -> Asked:
    attempt: Attempt = request.state.attempt
    if attempt.principal is None:
        raise AssertionError("a guarded route authenticates before anything else")
    state = request.app.state
    return Asked(
        state.host, state.catalogue, state.operations, request.state.connection, attempt.principal, run, attempt
    )


TheRequest = Annotated[Asked, Depends(_asked)]


def _backfills(request: Request) -> Backfills:
    found: Backfills | None = request.app.state.backfills
    if found is None:
        raise Refusal(PostgresReason.PostgresNotConfigured)
    found.prepare()
    return found


TheBackfills = Annotated[Backfills, Depends(_backfills)]


def plain(answer: wire.Wire) -> Mapping[str, Any]:
    """An answer as it is kept and sent."""
    return answer.model_dump(mode="json", by_alias=True)
