"""Why MongoDB was not used, or did not take a write."""

from __future__ import annotations

from statlib.kernel.refusals import Reason, RefusalKind


class MongoReason(Reason):
    """Refusals of connection, probe, transactions and leases."""

    NoDeployment = (
        RefusalKind.NOT_FOUND,
        "Run `statlib up` for a local replica set, or set mongo.uri.",
    )
    AddressInvalid = (
        RefusalKind.INVALID,
        "Correct mongo.uri: mongodb://host:port,…/?replicaSet=name.",
    )
    ServerUnreachable = (
        RefusalKind.NOT_FOUND,
        "Run `statlib up` if the server is local; else check mongo.uri and that the replica set has a primary "
        "(a standalone server has none for an address with replicaSet).",
    )
    CredentialsRefused = (
        RefusalKind.UNAUTHORISED,
        "Check the user, password and authSource of mongo.uri.",
    )
    ServerStandalone = (
        RefusalKind.INVALID,
        "Restart the server with --replSet and run rs.initiate(), or run `statlib up` for a local replica set.",
    )
    ServerSharded = (
        RefusalKind.INVALID,
        "Set mongo.uri to a replica set; sharded clusters are not supported.",
    )
    ServerTooOld = (
        RefusalKind.INVALID,
        "Upgrade the replica set to MongoDB 6.0 or later.",
    )
    ServerTimeUnusable = (
        RefusalKind.INVALID,
        "Use MongoDB itself: leases compare with $$NOW in a filter, which this server answers wrongly.",
    )
    SnapshotUnusable = (
        RefusalKind.INVALID,
        "Use MongoDB itself: reads rely on snapshot sessions, which this server does not keep.",
    )
    Contended = (RefusalKind.CONTENTION, "Others wrote the same documents at the same time: try again.")
    CommitOutcomeUnknown = (
        RefusalKind.UNRESOLVED,
        "The server did not say whether it committed: look at the current state, then repeat the request if needed.",
    )
    LeaseHeld = (RefusalKind.CONTENTION, "Somebody else is doing this: wait until the lease named here expires.")
    LeaseLost = (RefusalKind.CONTENTION, "The lease ran out meanwhile and nothing was written under it: start again.")
