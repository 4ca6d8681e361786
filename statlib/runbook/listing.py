"""Putting a run that has just ended on the archive's pages, so that its report's way back leads somewhere.

The run is sealed by then, and its pages can be made at any later time: what goes wrong here is said, and fails nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path


def list_runs(archive: Path) -> bool:
    """Bring the archive's pages up to date. False, with one line on standard error, if that could not be done."""
    from statlib.runbook.site.build import update_site  # noqa: PLC0415 - a run that never ends needs no pages
    from statlib.runbook.site.retention import read_tombstones  # noqa: PLC0415

    try:
        stones = frozenset(stone.name for stone in read_tombstones(archive))
        done = update_site(archive, tombstones=stones)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        _say(f"the archive's pages were not brought up to date ({why}); `statlib reports site` makes up for it")
        return False
    for name in done.unrecorded:
        _say(f"gone without a tombstone: {name}")
    return True


def _say(line: str) -> None:
    sys.stderr.write(f"note: {line}\n")
