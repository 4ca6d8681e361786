"""A process that rebuilds and stops right before a command of its own. Started by ``test_rebuild_faults.py``.

Arguments: project, families (several are rebuilt together, in one walk). Each line of input is the number of the
command to stop at (from 1). It then says ``at <number> <command>``, goes on after the next line, and says how the
rebuild ended.
"""

from __future__ import annotations

import sys
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import load_settings
from statlib.statistics.rebuild import rebuild, rebuild_together
from tests.domain import LIBRARY, LIBRARY_IN_ONE_WALK
from tests.interruptions import Interrupter, When, host_with


def main() -> None:
    project, families = UUID(sys.argv[1]), sys.argv[2:]
    interrupter = Interrupter()
    with host_with(load_settings(), interrupter, app_name="rebuild-owner") as host:
        print("ready", flush=True)
        for line in sys.stdin:
            number = int(line)

            def stop(number: int = number) -> None:
                print(f"at {number}", flush=True)
                sys.stdin.readline()

            try:
                with interrupter.armed(When.BEFORE_SENDING, number, stop):
                    if len(families) == 1:
                        rebuild(host, LIBRARY, project, families[0], force=True)
                    else:
                        rebuild_together(host, LIBRARY_IN_ONE_WALK, project, dict.fromkeys(families), force=True)
            except Refusal as refusal:
                print(refusal.reason.name, flush=True)
            else:
                print("published", flush=True)


if __name__ == "__main__":
    main()
