"""Transactions that a client left open on the server: the proof that something was half done."""

from __future__ import annotations

from typing import Any

from bson import Binary
from pymongo import MongoClient
from pymongo.read_concern import ReadConcern


def open_transactions(client: MongoClient[dict[str, Any]], app_name: str) -> list[Any]:
    """Session ids of the open transactions of the clients called ``app_name``."""
    admin = client.get_database("admin", read_concern=ReadConcern("local"))
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"idleSessions": True, "allUsers": True}},
        {"$match": {"appName": app_name, "transaction": {"$exists": True}}},
    ]
    return [{"id": Binary.from_uuid(operation["lsid"]["id"])} for operation in admin.aggregate(pipeline)]


def end_transactions(client: MongoClient[dict[str, Any]], sessions: list[Any]) -> None:
    """Abort them now, as the server itself does when their lifetime has run out."""
    client.admin.command("killSessions", sessions)
