"""The boundary's HTTP app.

Every route names the capability it needs; there is none without. A refusal is answered with its own status and the
current state; an unexpected fault with a correlation id and no detail, because free text from a database may hold
anything.
"""

from __future__ import annotations

import logging
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from statlib import __version__
from statlib.admin.reasons import AdminReason
from statlib.admin.routes import router
from statlib.admin.tokens import Tokens
from statlib.kernel.refusals import Refusal
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.hosts import Host

_log = logging.getLogger("statlib.admin")


def create_app(host: Host, catalogue: AnyCatalogue, tokens: Tokens) -> FastAPI:
    """The app of one deployment. ``host`` is the registered process that carries operations out."""
    app = FastAPI(title="statlib admin boundary", version=__version__)
    app.state.host = host
    app.state.catalogue = catalogue
    app.state.tokens = tokens
    app.include_router(router)

    @app.exception_handler(Refusal)
    def refused(_: Request, refusal: Refusal) -> Response:
        return JSONResponse(refusal.as_wire(), status_code=refusal.reason.http_status)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        wrong = "; ".join(f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors())
        return refused(_, Refusal(AdminReason.RequestInvalid, wrong))

    @app.exception_handler(Exception)
    def fault(request: Request, error: Exception) -> Response:
        correlation = uuid4().hex
        _log.error("fault %s in %s %s", correlation, request.method, request.url.path, exc_info=error)
        return JSONResponse({"fault": "unexpected", "correlation": correlation}, status_code=500)

    return app
