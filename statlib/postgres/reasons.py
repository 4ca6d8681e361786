"""Why PostgreSQL was not used, or did not take a write."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class PostgresReason(Reason):
    """Refusals of connection, transactions and migrations."""

    PostgresNotConfigured = (
        RefusalKind.NOT_FOUND,
        "Run `statlib up --postgres` for a local server, or set postgres.url.",
    )
    PostgresAddressInvalid = (
        RefusalKind.INVALID,
        "Correct postgres.url and postgres.admin_url: postgresql://user:password@host:port/database.",
    )
    PostgresUnreachable = (
        RefusalKind.NOT_FOUND,
        "Run `statlib up --postgres` if the server is local; else check the address and that the server runs.",
        503,
    )
    PostgresCredentialsRefused = (
        RefusalKind.UNAUTHORISED,
        "Check user, password and database of postgres.url; `statlib init --postgres` says which roles are needed.",
    )
    PostgresTooOld = (RefusalKind.INVALID, "Upgrade the server to PostgreSQL 14 or later.")
    PostgresContended = (RefusalKind.CONTENTION, "Others changed the same rows at the same time: try again.")
    PostgresBusy = (
        RefusalKind.CONTENTION,
        "A statement or a lock took longer than it may: look at what holds the locks, then try again.",
        503,
    )
    PostgresCommitUnknown = (
        RefusalKind.UNRESOLVED,
        "The connection was lost during the commit: look at the current state, then repeat the request if needed.",
    )
    SchemaIncompatible = (
        RefusalKind.CONFLICT,
        "Run `statlib init --postgres` with the administrative role; a backfill never replaces a migration.",
        503,
    )
    MigrationEdited = (
        RefusalKind.CONFLICT,
        "Restore the file as it was applied, and put the change into a new migration.",
    )
    MigrationUnknown = (
        RefusalKind.CONFLICT,
        "The database is ahead of this release: install the release that brought the named migration.",
    )
    RuntimeRoleMissing = (
        RefusalKind.NOT_FOUND,
        "Let a database administrator run CREATE ROLE statlib_runtime LOGIN PASSWORD '…', then repeat.",
    )
