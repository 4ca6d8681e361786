"""Counts the commands that a thread sends, so that "one command" is shown instead of claimed.

Each retry and each getMore is a command of its own; the driver's monitoring of servers is not counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent


class CommandCount:
    """What one block of one thread sent; grows while the block runs and stands still after it."""

    def __init__(self) -> None:
        self._names: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Command names in the order sent."""
        return tuple(self._names)

    @property
    def total(self) -> int:
        return len(self._names)

    @property
    def by_name(self) -> dict[str, int]:
        return dict(Counter(self._names))

    def _add(self, name: str) -> None:
        self._names.append(name)


class _Open(threading.local):
    """The blocks that are open in the current thread; nested blocks all count."""

    def __init__(self) -> None:
        self.counts: list[CommandCount] = []


class CommandCounter(CommandListener):
    """The listener that ``connect`` registers on every client. Costs a list look-up per command when idle."""

    def __init__(self) -> None:
        self._open = _Open()

    def started(self, event: CommandStartedEvent) -> None:
        for count in self._open.counts:
            count._add(event.command_name)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Counted when started."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Counted when started."""

    @contextmanager
    def counting(self) -> Iterator[CommandCount]:
        count = CommandCount()
        self._open.counts.append(count)
        try:
            yield count
        finally:
            self._open.counts[:] = [other for other in self._open.counts if other is not count]


@contextmanager
def counting(source: MongoClient[dict[str, Any]] | CommandCounter) -> Iterator[CommandCount]:
    """Count this thread's commands on one client. LookupError if the client was not made by ``connect``."""
    with _counter_of(source).counting() as count:
        yield count


def _counter_of(source: MongoClient[dict[str, Any]] | CommandCounter) -> CommandCounter:
    if isinstance(source, CommandCounter):
        return source
    for listener in source.options.event_listeners:
        if isinstance(listener, CommandCounter):
            return listener
    raise LookupError("this client has no command counter; open it with statlib.mongo.connection.connect")
