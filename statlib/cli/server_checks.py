"""The checks of ``statlib doctor`` that ask the settings, the database and the boundary."""

from __future__ import annotations

from collections.abc import Iterator

from statlib.cli.checks import Check, Level
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings, config_file
from statlib.mongo.connection import Mongo, connected, shown_address
from statlib.mongo.probe import TRANSACTION_LIFETIME_MAX_S, ServerFacts, probe
from statlib.mongo.reasons import MongoReason
from statlib.review.catalogue import REVIEW
from statlib.statistics import storage
from statlib.statistics.bounds import HOST_ALLOWLIST_MAX
from statlib.statistics.documents import (
    CONTROL,
    GLOBAL_CONTROL,
    GLOBAL_ID,
    STORAGE_VERSION,
    FoldMode,
    ProjectControl,
)
from statlib.statistics.fold_fleet import read_fold_fleet
from statlib.statistics.pending_index import IndexState, index_state

ASKED_TIMEOUT_S = 5.0
NAMED_MAX = 3
FOLDING = [mode.value for mode in FoldMode if mode is not FoldMode.DISABLED]
CHECK_OF_REASON = {
    MongoReason.ServerStandalone: "replica set",
    MongoReason.ServerSharded: "replica set",
    MongoReason.ServerTooOld: "server version",
    MongoReason.ServerTimeUnusable: "server time",
    MongoReason.SnapshotUnusable: "snapshots",
}
SET_LIFETIME = (
    "mongosh '{address}' --eval 'db.adminCommand({{setParameter: 1, transactionLifetimeLimitSeconds: "
    f"{TRANSACTION_LIFETIME_MAX_S}}}}})', and in the server's configuration"
)


def settings_checks(settings: Settings) -> Iterator[Check]:
    """What the tree says, beyond being valid."""
    file = config_file()
    yield Check("settings", Level.OK, f"valid, from {file}" if file else "valid; there is no statlib.toml")
    yield allowlist_check(settings)
    if settings.admin.url:
        yield boundary_check(settings)


def allowlist_check(settings: Settings) -> Check:
    """Settings of which one half would keep the other from doing anything."""
    name, chosen = "allowlist", settings.statistics
    if foreign := sorted(chosen.families - REVIEW.families.keys()):
        known = ", ".join(sorted(REVIEW.families))
        return Check(name, Level.FAIL, f"no such family: {', '.join(foreign)}", f"statistics.families: {known}")
    if len(chosen.allowlist) > HOST_ALLOWLIST_MAX:
        found = f"{plural(len(chosen.allowlist), 'project')}; a host takes {HOST_ALLOWLIST_MAX:,}"
        return Check(name, Level.FAIL, found, "Shorten statistics.allowlist, on every host alike.")
    if chosen.allowlist and not chosen.writes:
        found = f"{plural(len(chosen.allowlist), 'project')}, but statistics.writes is off: nothing is kept or served"
        return Check(name, Level.WARN, found, "Set statistics.writes = true, on every host alike.")
    if chosen.allowlist and not chosen.families:
        found = f"{plural(len(chosen.allowlist), 'project')}, but no families: nothing is kept or served"
        return Check(name, Level.WARN, found, "Set statistics.families, on every host alike.")
    if chosen.writes and not chosen.allowlist:
        found = "empty: no project is under statistics yet"
        return Check(name, Level.WARN, found, "Add projects to statistics.allowlist; `statlib load` does it by itself.")
    families = plural(len(chosen.families), "family", "families")
    return Check(name, Level.OK, f"{plural(len(chosen.allowlist), 'project')}, {families}")


def boundary_check(settings: Settings) -> Check:
    """Whether the deployment's boundary answers, and takes the token."""
    from statlib.admin.client import AdminClient  # noqa: PLC0415 - only where a boundary is named

    try:
        with AdminClient(settings.admin.url, settings.admin.token.get_secret_value()) as client:
            at = client.server_time()
    except (Refusal, Fault) as error:
        return Check("boundary", Level.FAIL, f"{settings.admin.url}: {error}", error.remedy)
    return Check("boundary", Level.OK, f"{settings.admin.url} answers; its database says {at:%Y-%m-%d %H:%M:%S} UTC")


def server_checks(settings: Settings) -> Iterator[Check]:
    """Reachable, of the right kind, and prepared. Changes nothing but a collection that the probe makes and drops."""
    quick = min(ASKED_TIMEOUT_S, settings.mongo.server_selection_timeout_s)
    mongo_settings = settings.mongo.model_copy(update={"server_selection_timeout_s": quick})
    try:
        with connected(settings.model_copy(update={"mongo": mongo_settings}), app_name="statlib-doctor") as mongo:
            yield Check("server", Level.OK, "answers: {}:{}".format(*(mongo.client.address or ("", 0))))
            yield from _probed(mongo)
    except Refusal as refusal:
        yield Check("server", Level.FAIL, str(refusal), _remedy(refusal))


def _probed(mongo: Mongo) -> Iterator[Check]:
    try:
        facts = probe(mongo)
    except Refusal as refusal:
        name = next((check for reason, check in CHECK_OF_REASON.items() if reason is refusal.reason), "server")
        yield Check(name, Level.FAIL, refusal.detail, refusal.remedy)
        return
    yield Check("server version", Level.OK, f"MongoDB {facts.version}")
    yield Check("replica set", Level.OK, facts.set_name)
    yield Check("server time", Level.OK, "filters on $$NOW hold")
    yield Check("snapshots", Level.OK, "snapshot sessions hold")
    yield _lifetime(facts, mongo.settings.mongo.uri.get_secret_value())
    yield _storage(mongo)
    yield _projects(mongo)
    yield _fold(mongo)


def _lifetime(facts: ServerFacts, uri: str) -> Check:
    name, seconds = "transactions", facts.transaction_lifetime_s
    if seconds is None:
        found = "transactionLifetimeLimitSeconds is not readable by this user"
        return Check(name, Level.WARN, found, "Ask whoever runs the server that it is at most 10; it is 60 by default.")
    if seconds > TRANSACTION_LIFETIME_MAX_S:
        found = f"transactionLifetimeLimitSeconds is {seconds}: a lost commit blocks its documents that long"
        return Check(name, Level.WARN, found, SET_LIFETIME.format(address=shown_address(uri)))
    return Check(name, Level.OK, f"transactionLifetimeLimitSeconds is {seconds}")


def _storage(mongo: Mongo) -> Check:
    there = set(mongo.database.list_collection_names())
    lacking = sorted(set(storage.COLLECTIONS) - there)
    control = mongo.collection(GLOBAL_CONTROL).find_one({"_id": GLOBAL_ID}, {"Mode": 1})
    if lacking or control is None:
        found = f"database {mongo.database.name} lacks {plural(len(lacking), 'collection')}" + (
            "" if control else ", and the fleet's control"
        )
        return Check("storage", Level.WARN, found, "statlib init")
    return Check("storage", Level.OK, f"database {mongo.database.name} is prepared; the fleet is {control['Mode']}")


def _projects(mongo: Mongo) -> Check:
    """An allowlist that names what is not there is usually another deployment's."""
    asked = mongo.settings.statistics.allowlist
    found = {d["_id"] for d in mongo.collection(REVIEW.context_collection).find({"_id": {"$in": list(asked)}}, {})}
    absent = sorted(map(str, asked - found))
    controls = mongo.collection(CONTROL).count_documents({"_id": {"$in": list(asked)}})
    if absent:
        named = ", ".join(absent[:NAMED_MAX]) + (f" and {len(absent) - NAMED_MAX} more" if absent[NAMED_MAX:] else "")
        remedy = "Take them off statistics.allowlist, or set mongo.database to where they are."
        return Check("projects", Level.WARN, f"on the allowlist, but not in this database: {named}", remedy)
    return Check("projects", Level.OK, f"{len(found):,} of the allowlist are here, {controls:,} with a control")


def _fold(mongo: Mongo) -> Check:
    """What folding projects need: the index, a live worker of their protocol, and a tripwire that is theirs."""
    asked = {"_id": {"$in": list(mongo.settings.statistics.allowlist)}, "FoldMode": {"$in": FOLDING}}
    folding = [ProjectControl.from_bson(found) for found in mongo.collection(CONTROL).find(asked)]
    if not folding:
        return Check("fold", Level.OK, "no project of the allowlist folds")
    projects = plural(len(folding), "project")
    if (index := index_state(mongo, REVIEW)) is not IndexState.READY:
        found = f"{projects} fold, and the index of pending entries is {index.value.lower()}"
        return Check("fold", Level.FAIL, found, "statlib runbook run build_pending_index")
    doubtful = [control.id for control in folding if control.storage_version != STORAGE_VERSION + control.tripwire]
    if doubtful:
        named = ", ".join(sorted(map(str, doubtful))[:NAMED_MAX])
        return Check(
            "fold", Level.FAIL, f"fold mode and storage version disagree: {named}", "statlib fold reset PROJECT"
        )
    fleet = read_fold_fleet(mongo, folding[0].id)
    if lacking := {c.fold_protocol_version for c in folding if not fleet.worker_live(c.fold_protocol_version)}:
        told = ", ".join(map(str, sorted(lacking)))
        found = f"{projects} fold, and no worker of protocol {told} is live: what is pending piles up"
        return Check("fold", Level.WARN, found, "statlib worker fold")
    return Check("fold", Level.OK, f"{projects} fold; the index is ready and a worker is live")


def _remedy(refusal: Refusal) -> str:
    if refusal.reason is MongoReason.NoDeployment:
        return "statlib up (an embedded database), or set mongo.uri"
    return refusal.remedy
