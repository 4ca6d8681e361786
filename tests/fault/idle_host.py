"""A process that is a host until its input ends. Started by the tests of hosts."""

from __future__ import annotations

import sys

from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.statistics.hosts import Role, registered


def main() -> None:
    with connected(load_settings(), app_name="idle-host") as mongo, registered(mongo, Role.API) as host:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(host.member_id, flush=True)


if __name__ == "__main__":
    main()
