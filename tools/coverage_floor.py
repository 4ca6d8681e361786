"""Fails where a module's branch coverage is under the floor: ``python -m tools.coverage_floor coverage.json``.

An average hides the one module that nobody tested; a floor under each does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FLOOR_PERCENT = 85.0


def under_the_floor(report: Path) -> list[tuple[float, str]]:
    """(percent covered, module) of every module under the floor, the lowest first. Branches count as lines do."""
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    found = ((float(file["summary"]["percent_covered"]), name) for name, file in files.items())
    return sorted((percent, name) for percent, name in found if percent < FLOOR_PERCENT)


def main() -> int:
    if low := under_the_floor(Path(sys.argv[1])):
        for percent, name in low:
            print(f"{name}: {percent:.1f} % of its lines and branches ran; the floor is {FLOOR_PERCENT:.0f} %")
        return 1
    print(f"Every module is at or above {FLOOR_PERCENT:.0f} % branch coverage.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
