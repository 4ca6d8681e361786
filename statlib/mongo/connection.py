"""The one way in to MongoDB: clients with the concerns that the guarantees rest on.

Invariant: what is written through a ``Mongo`` is majority-committed, and what is read through it was, from the
primary. A snapshot session misses preceding ``w: 1`` writes, so no call site may choose weaker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidName,
    OperationFailure,
    PyMongoError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import CommandCounter
from statlib.mongo.reasons import MongoReason

MAJORITY_WRITE = WriteConcern(w="majority")
MAJORITY_READ = ReadConcern("majority")

_AUTHENTICATION_CODES = frozenset({13, 18})  # Unauthorized, AuthenticationFailed


@dataclass(frozen=True, slots=True)
class Mongo:
    """A connected deployment: everything that a store or an operation needs to reach its documents."""

    client: MongoClient[dict[str, Any]]
    database: Database[dict[str, Any]]
    clock: Clock
    settings: Settings

    def collection(self, name: str) -> Collection[dict[str, Any]]:
        """The named collection with majority write and read concern, on the primary."""
        return self.database.get_collection(
            name, write_concern=MAJORITY_WRITE, read_concern=MAJORITY_READ, read_preference=ReadPreference.PRIMARY
        )


@contextmanager
def connected(settings: Settings, *, app_name: str = "statlib") -> Iterator[Mongo]:
    """A ``Mongo`` for the length of a block; its client is closed afterwards. Refuses as ``connect`` does."""
    client = connect(settings, app_name=app_name)
    try:
        yield mongo_of(client, settings)
    finally:
        client.close()


def connect(settings: Settings, *, app_name: str = "statlib") -> MongoClient[dict[str, Any]]:
    """A client that has met the primary.

    UUIDs are stored as standard binaries and times come back aware, in UTC. Refuses NoDeployment,
    AddressInvalid, ServerUnreachable (after ``mongo.server_selection_timeout_s``) and CredentialsRefused, and
    never shows the credentials of the address.
    """
    uri = settings.mongo.uri.get_secret_value()
    if not uri:
        raise Refusal(MongoReason.NoDeployment, "mongo.uri is empty")
    timeout_ms = round(settings.mongo.server_selection_timeout_s * 1000)
    try:
        parse_uri(uri, warn=False)  # the client itself only warns of a misspelt or mistyped option
        client: MongoClient[dict[str, Any]] = MongoClient(
            uri,
            appname=app_name,
            uuidRepresentation="standard",
            tz_aware=True,
            tzinfo=UTC,
            retryWrites=True,
            w="majority",
            readConcernLevel="majority",
            readPreference="primary",
            serverSelectionTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
            event_listeners=[CommandCounter()],
        )
    except (ConfigurationError, ValueError) as error:  # InvalidURI is a ConfigurationError
        raise Refusal(MongoReason.AddressInvalid, f"{shown_address(uri)}: {type(error).__name__}") from error
    try:
        client.admin.command("ping")
    except PyMongoError as error:
        client.close()
        raise _refused(error, uri) from error
    return client


def mongo_of(client: MongoClient[dict[str, Any]], settings: Settings) -> Mongo:
    """Bundle a client with the configured database and clock. Refuses AddressInvalid for an impossible name."""
    try:
        database = client.get_database(
            settings.mongo.database,
            write_concern=MAJORITY_WRITE,
            read_concern=MAJORITY_READ,
            read_preference=ReadPreference.PRIMARY,
        )
    except InvalidName as error:
        raise Refusal(MongoReason.AddressInvalid, f"mongo.database: {error}") from error
    return Mongo(client=client, database=database, clock=settings.time, settings=settings)


def shown_address(uri: str) -> str:
    """The address without user, password or options, which may carry secrets of their own."""
    found = re.match(r"(\w+(?:\+\w+)?://)(?:.*@)?([^/?]*)", uri, flags=re.DOTALL)
    return f"{found[1]}{found[2]}" if found else "mongo.uri"


def _refused(error: PyMongoError, uri: str) -> Refusal | PyMongoError:
    address = shown_address(uri)
    if isinstance(error, OperationFailure) and error.code in _AUTHENTICATION_CODES:
        return Refusal(MongoReason.CredentialsRefused, f"{address} refused the credentials")
    if isinstance(error, ConnectionFailure):
        return Refusal(MongoReason.ServerUnreachable, f"no primary reached at {address}")
    if isinstance(error, ConfigurationError):  # a mongodb+srv name is looked up only now
        return Refusal(MongoReason.AddressInvalid, f"{address}: {type(error).__name__}")
    return error
