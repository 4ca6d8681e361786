"""Doing something at an exact command of a save: right before it is sent, or right after its reply has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from enum import StrEnum
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import CommandCounter
from statlib.mongo.connection import mongo_of
from statlib.statistics import hosts


class When(StrEnum):
    BEFORE_SENDING = "before-sending"
    AFTER_REPLY = "after-reply"


class Interrupter(CommandListener):
    """Calls back at one command of the thread that armed it: the ``number``-th (from 1), counting all commands or
    those called ``name``. A command without a reply counts as replied when the client gives it up."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._sent: list[str] = []
        self._when = When.BEFORE_SENDING
        self._number = 0
        self._name: str | None = None
        self._action: Callable[[], None] | None = None
        self.reached = False

    @contextmanager
    def armed(
        self, when: When, number: int, action: Callable[[], None], *, name: str | None = None
    ) -> Iterator[Interrupter]:
        self._sent, self.reached = [], False
        self._when, self._number, self._name, self._action = when, number, name, action
        self._thread = threading.get_ident()
        try:
            yield self
        finally:
            self._thread = None

    def started(self, event: CommandStartedEvent) -> None:
        if threading.get_ident() == self._thread:
            self._sent.append(event.command_name)
            self._interrupt(When.BEFORE_SENDING, event.command_name)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if threading.get_ident() == self._thread:
            self._interrupt(When.AFTER_REPLY, event.command_name)

    def failed(self, event: CommandFailedEvent) -> None:
        if threading.get_ident() == self._thread:
            self._interrupt(When.AFTER_REPLY, event.command_name)

    def _interrupt(self, when: When, name: str) -> None:
        counted = self._sent if self._name is None else [sent for sent in self._sent if sent == self._name]
        if self.reached or when is not self._when or len(counted) != self._number or self._name not in {None, name}:
            return
        self.reached = True
        assert self._action is not None
        self._action()


@contextmanager
def host_with(settings: Settings, *listeners: CommandListener, app_name: str) -> Iterator[hosts.Host]:
    """A host whose client, connected as the product connects, also tells ``listeners`` of its commands."""
    client: MongoClient[dict[str, Any]] = MongoClient(
        settings.mongo.uri.get_secret_value(),
        appname=app_name,
        uuidRepresentation="standard",
        tz_aware=True,
        tzinfo=UTC,
        w="majority",
        readConcernLevel="majority",
        heartbeatFrequencyMS=500,  # a server that an injected error made unknown is found again soon
        event_listeners=[CommandCounter(), *listeners],
    )
    try:
        with hosts.registered(mongo_of(client, settings), hosts.Role.API) as host:
            yield host
    finally:
        client.close()
