"""Play the interleavings of whoever acts on a project whose saves fold, on a server of its own, and say what was met.

All orders of each pair of actors with at most so many pre-emptions, the fewest first, and so many orders of each triple
by chance. Ends with 1 if anything that must hold did not, and prints the order in which it did not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from statlib.kernel.settings import MongoSettings, Settings
from statlib.local.replica_set import replica_set
from tests.conftest import settings_on
from tests.exploring import Played, at_random, orders
from tests.fold_actors import ACTORS, World, world

VIOLATIONS_MAX = 20


def main() -> int:
    asked = _arguments()
    actors = tuple(asked.actors.split(","))
    pairs = list(itertools.combinations(actors, 2))
    triples = list(itertools.combinations(actors, 3))
    if asked.pairs:
        pairs = [tuple(sorted(pair.split(","), key=ACTORS.index)) for pair in asked.pairs.split(" ")]
    broken = 0
    with (
        replica_set(for_tests=True, settings=Settings(mongo=MongoSettings())) as server,
        tempfile.TemporaryDirectory() as folder,
        world(settings_on(server, Path(folder))) as played_in,
    ):
        for pair in pairs if asked.preemptions >= 0 else ():
            tried = (played for _, played in orders(partial(played_in.play, pair), asked.preemptions))
            broken += _explore(played_in, pair, tried, asked.seconds)
        for number, triple in enumerate(triples if asked.triples else ()):
            seed = asked.seed + number * asked.triples
            broken += _explore(played_in, triple, _by_chance(played_in, triple, seed, asked.triples), asked.seconds)
        print(f"scopes compared as served: {played_in.met.served:,}; fallen back: {played_in.met.fallen_back:,}")
        for outcome, times in sorted(played_in.met.outcomes.items()):
            print(f"  {outcome}: {times:,}")
    print(f"orders in which something did not hold: {broken}")
    return 1 if broken else 0


def _by_chance(played_in: World, names: tuple[str, ...], seed: int, times: int) -> Iterator[Played]:
    for number in range(times):
        yield played_in.play(names, at_random(seed + number))


def _explore(played_in: World, names: tuple[str, ...], tried: Iterable[Played], seconds: float) -> int:
    """Judge each order. Returns in how many something did not hold."""
    begun, broken, diverged, blocked = time.monotonic(), 0, 0, 0
    numbers: Counter[int] = Counter()
    complete = "all"
    for played in tried:
        numbers[played.preemptions] += 1
        diverged += played.diverged
        blocked += played.blocked > 0
        if wrong := played_in.violations(played):
            broken += 1
            print(f"{' × '.join(names)}:", *wrong, str(played), sep="\n  ", flush=True)
        if time.monotonic() - begun > seconds or broken >= VIOLATIONS_MAX:
            complete = "not all"
            break
    of_each = ", ".join(f"{number} with {preemptions}" for preemptions, number in sorted(numbers.items()))
    print(
        f"{' × '.join(names):<28} {numbers.total():>6} orders ({of_each} pre-emptions; {complete}), "
        f"{blocked} with somebody blocked, {diverged} diverged, {broken} broken, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return broken


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preemptions", type=int, default=3, help="of a pair's orders; -1: play no pairs")
    parser.add_argument("--triples", type=int, default=250, help="orders of each triple, by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the first order of the first triple")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long for each pair or triple")
    parser.add_argument("--actors", default=",".join(ACTORS), help="those that take part, by commas")
    parser.add_argument("--pairs", default="", help="these instead of all: 'save,fold fold,read'")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
