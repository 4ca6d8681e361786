"""The folder of real reviews that tests read: ``STATLIB_TEST_DATA``. The repository ships none.

Without it, tests on real data fail; ``STATLIB_TEST_DATA_ABSENT_OK=1`` turns that into a skip that says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Read on import: the fixtures take every STATLIB_ variable away from the tests themselves.
_NAMED = os.environ.get("STATLIB_TEST_DATA", "")
_ABSENT_OK = os.environ.get("STATLIB_TEST_DATA_ABSENT_OK", "") == "1"


def real_review(name: str) -> Path:
    """The folder of one real review; fails, or skips where that is allowed, if it is not there."""
    folder = Path(_NAMED) / name
    if _NAMED and folder.is_dir():
        return folder.resolve()
    why = f"REAL DATA ABSENT: no folder {name!r} in STATLIB_TEST_DATA={_NAMED or '(unset)'}; nothing was checked on it"
    if _ABSENT_OK:
        pytest.skip(why)
    pytest.fail(f"{why}. Set STATLIB_TEST_DATA, or STATLIB_TEST_DATA_ABSENT_OK=1 to go without.")
