"""A boundary in a process of its own, which kills itself with SIGKILL right after a commit that it is told of.

Arguments: the number of the commit, counted from when "arm" is said. Says "ready", then its address.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from statlib.admin.app import create_app
from statlib.admin.authentication import authentication_of
from statlib.admin.serving import in_background
from statlib.kernel.settings import load_settings
from tests.domain import LIBRARY
from tests.interruptions import host_with


class KilledAfterCommit(CommandListener):
    """Between the server's answer to a commit and anything that this process could do with it."""

    def __init__(self, number: int) -> None:
        self.armed = threading.Event()
        self._left = number

    def started(self, event: CommandStartedEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if self.armed.is_set() and event.command_name == "commitTransaction":
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    settings = load_settings()
    killer = KilledAfterCommit(int(sys.argv[1]))
    with host_with(settings, killer, app_name="statlib-tests-killed") as host:
        app = create_app(host, LIBRARY, authentication_of(settings))
        with in_background(app) as url:
            print("ready", flush=True)
            print(url, flush=True)
            for line in sys.stdin:
                if line.strip() == "arm":
                    killer.armed.set()
                    print("armed", flush=True)


if __name__ == "__main__":
    main()
