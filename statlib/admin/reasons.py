"""Why the boundary itself says no, before any operation is asked."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class AdminReason(Reason):
    """Refusals of credentials and requests."""

    Unauthenticated = (RefusalKind.UNAUTHORISED, "Send a valid operator token: `Authorization: Bearer …`.", 401)
    Forbidden = (RefusalKind.UNAUTHORISED, "Use a token with the capability named here.")
    AuthenticationUnavailable = (
        RefusalKind.CONTENTION,
        "The boundary cannot read its tokens or keys: mend the files that admin.token_file and admin.jwt name.",
        503,
    )
    DatabaseUnavailable = (
        RefusalKind.CONTENTION,
        "No primary answered in time: repeat the call with the same request id when the database is back.",
        503,
    )
    RequestInvalid = (RefusalKind.INVALID, "Correct the request; the boundary's /openapi.json describes it.")
    BodyTooLarge = (RefusalKind.INVALID, "Send a smaller body; no request of this boundary needs 64 KiB.", 413)
    RouteUnknown = (RefusalKind.NOT_FOUND, "Correct the path; the boundary's /openapi.json lists every route.")
    MethodNotAllowed = (RefusalKind.INVALID, "Use the method that /openapi.json names for this path.", 405)
    RequestInProgress = (
        RefusalKind.CONTENTION,
        "The same request is being carried out: repeat it later, and its outcome is returned.",
    )
    OperationUnknown = (RefusalKind.NOT_FOUND, "Nothing runs under this request id: it has ended, or never began.")
    BoundaryUnreachable = (RefusalKind.NOT_FOUND, "Check admin.url and that the boundary runs; locally: `statlib up`.")
    RefusedByServer = (RefusalKind.CONFLICT, "The server is of another release: look its reason up there.")


class TokenReason(Reason):
    """Refusals of changes to the token file, and of a listening address."""

    TokenInvalid = (RefusalKind.INVALID, "Give the token a plain name and at least one capability.")
    TokenUnknown = (RefusalKind.NOT_FOUND, "See `statlib admin token list`.")
    TokenFileBusy = (RefusalKind.CONTENTION, "Another process holds the token file's lock: try again.")
    PublicWithoutTls = (
        RefusalKind.INVALID,
        "Give --tls-certificate and --tls-key, bind to loopback, or say --behind-proxy if a proxy ends TLS.",
    )
