"""Counts of things in sentences: one wording on every floor."""

from __future__ import annotations


def plural(count: int, singular: str, several: str = "") -> str:
    """``1 gate``, ``2,000 gates``, ``2 families``: commas between thousands; ``several`` where an s will not do."""
    return f"{count:,} {singular if count == 1 else several or singular + 's'}"
