"""Why the boundary itself says no, before any operation is asked."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class AdminReason(Reason):
    """Refusals of credentials and requests."""

    Unauthenticated = (RefusalKind.UNAUTHORISED, "Send a valid operator token: `Authorization: Bearer …`.", 401)
    Forbidden = (RefusalKind.UNAUTHORISED, "Use a token with the capability named here.")
    RequestInvalid = (RefusalKind.INVALID, "Correct the request; the boundary's /openapi.json describes it.")
    BoundaryUnreachable = (RefusalKind.NOT_FOUND, "Check admin.url and that the boundary runs; locally: `statlib up`.")
    RefusedByServer = (RefusalKind.CONFLICT, "The server is of another release: look its reason up there.")
