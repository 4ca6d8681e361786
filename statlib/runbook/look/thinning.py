"""Fewer points for a line that keep every extreme.

A line of thousands of points in a few hundred pixels shows no more than its envelope. Averages would hide a
peak; the least and the greatest value of each stretch do not. Bars add up what falls together, which loses
nothing that a count says.
"""

from __future__ import annotations

from collections.abc import Sequence

from statlib.runbook.look.quantities import number


def kept_indexes(values: Sequence[float], most: int) -> list[int]:
    """Ascending indexes of at most ``most`` (≥ 4) values: the first, the last, and the extremes of equal stretches."""
    count = len(values)
    if count <= most:
        return list(range(count))
    kept = {0, count - 1}
    stretches = (most - 2) // 2
    for at in range(stretches):
        stretch = range(at * count // stretches, (at + 1) * count // stretches)
        kept.add(min(stretch, key=values.__getitem__))
        kept.add(max(stretch, key=values.__getitem__))
    return sorted(kept)


def stretches_of(count: int, most: int) -> list[range]:
    """``count`` neighbours in at most ``most`` stretches of as equal a length as can be."""
    stretches = min(count, most)
    return [range(at * count // stretches, (at + 1) * count // stretches) for at in range(stretches)]


def remark(count: int, most: int, what: str) -> str:
    """What a caption says about thinning; empty if every point is drawn."""
    if count <= most:
        return ""
    return f" Of {number(count)} {what}, at most {number(most)} are drawn; every extreme is among them."
