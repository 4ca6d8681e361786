"""Row and guard states: the one table of allowed edges, each with its reason.

Invariant: no point move ever makes anything Fresh. Only a rebuild's publication does.
"""

from __future__ import annotations

from collections.abc import Mapping

from statlib.kernel.refusals import Fault
from statlib.statistics.documents import State

EDGES: Mapping[tuple[State, State], str] = {
    (State.MISSING, State.REBUILDING): "a first rebuild was admitted",
    (State.MISSING, State.STALE): "an opening gives every family a guard, so that nobody starts one from zero",
    (State.STALE, State.REBUILDING): "a rebuild was admitted",
    (State.REBUILDING, State.FRESH): "the rebuild published",
    (State.REBUILDING, State.STALE): "something changed under the rebuild, or it gave up",
    (State.REBUILDING, State.REBUILDING): "a later owner took over an abandoned rebuild",
    (State.FRESH, State.STALE): "an invalidation, drift, a fence or a refused move",
    (State.FRESH, State.REBUILDING): "a forced rebuild was admitted",
    (State.FRESH, State.FRESH): "a sibling scope was published",
    (State.STALE, State.STALE): "invalidated again: the epoch moves on",
}


def allowed(before: State, after: State) -> bool:
    return (before, after) in EDGES


def require(before: State, after: State) -> State:
    """``after``, if that edge exists; a Fault otherwise, because code that takes a wrong edge is broken."""
    if not allowed(before, after):
        raise Fault(f"a family cannot go from {before} to {after}")
    return after
