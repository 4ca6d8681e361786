"""Plays the orders in which the database commands of several actors can interleave, on the real code.

Every actor is a thread with a client of its own that stops before each command. One at a time is let go. An actor
whose command waits on the server for another's transaction cannot be run, nor can one that only asks the same again and
again.

An order is named by where it leaves the usual one, in which whoever runs goes on for as long as it can. A pre-emption
is a switch away from an actor that could have gone on: orders are played by their number, the fewest first.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent
from pymongo.read_concern import ReadConcern

Schedule = tuple[tuple[int, str], ...]
"""Where an order leaves the usual one: at which step, and who runs then."""

Follow = Callable[[int, tuple[str, ...], str | None], str]
"""Who runs next, of those that can: step, names, and who ran last."""

_LOOK_S = 0.03  # an actor that has not come back by then is asked for on the server
_BLOCKED_S = 3.0  # and by then it counts as blocked, whatever the server says
_STUCK_S = 60.0
_SPIN = 8  # as many commands of one or two kinds in a row are a wait
_RUN_MAX = 120  # and so are as many of any kind without a step of anybody else


class Player(CommandListener):
    """The listener of one actor's client, and the thread that acts. ``at``: the command that it stands before."""

    def __init__(self, name: str, changed: threading.Condition) -> None:
        self.name, self.app_name = name, f"statlib-explored-{name}"
        self.at: str | None = None
        self.done = True
        self.outcome: Any = None
        self._changed = changed
        self._let_go = False
        self._free = False
        self._ident: int | None = None
        self._recent: deque[str] = deque(maxlen=_SPIN)
        self._in_a_row = 0

    def begin(self, act: Callable[[], Any]) -> None:
        self.at, self.done, self.outcome, self._let_go, self._free = None, False, None, False, False
        self.calm()
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], Any]) -> None:
        self._ident = threading.get_ident()
        try:
            self.outcome = act()
        except Exception as error:  # judged by whoever looks at the outcome
            self.outcome = error
        finally:
            with self._changed:
                self._ident, self.at, self.done = None, None, True
                self._changed.notify_all()

    def started(self, event: CommandStartedEvent) -> None:
        if threading.get_ident() != self._ident or self._free:
            return
        with self._changed:
            self.at = command = f"{event.command_name} {event.command.get(event.command_name)}"
            self._recent.append(command)
            self._in_a_row += 1
            self._let_go = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._let_go or self._free, _STUCK_S)

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...

    @property
    def standing(self) -> bool:
        return self.done or self.at is not None

    @property
    def waits(self) -> bool:
        """Whether it has done nothing for a while but ask the same."""
        return self._in_a_row >= _RUN_MAX or (len(self._recent) == _SPIN and len(set(self._recent)) <= 2)

    def calm(self) -> None:
        """Somebody else has taken a step: asking again makes sense."""
        self._recent.clear()
        self._in_a_row = 0

    def go(self) -> None:
        self._let_go, self.at = True, None
        self._changed.notify_all()

    def run_free(self) -> None:
        with self._changed:
            self._free, self.at = True, None
            self._changed.notify_all()
        self._thread.join(_STUCK_S)
        assert not self._thread.is_alive(), f"{self.name} does not come to an end"


@dataclass(frozen=True, slots=True)
class Choice:
    """One step: who could have run, who did, and who had run before."""

    runnable: tuple[str, ...]
    taken: str
    before: str | None
    command: str

    @property
    def preempts(self) -> bool:
        return self.taken != self.before and self.before in self.runnable

    def would_preempt(self, other: str) -> bool:
        return other != self.before and self.before in self.runnable


@dataclass(frozen=True, slots=True)
class Played:
    """``blocked``: how often an actor was found to wait on the server. ``diverged``: it could not follow its
    schedule, since somebody stood elsewhere than when that was made."""

    choices: tuple[Choice, ...]
    outcomes: Mapping[str, Any]
    blocked: int = 0
    diverged: bool = False

    @property
    def preemptions(self) -> int:
        return sum(choice.preempts for choice in self.choices)

    def __str__(self) -> str:
        return "\n".join(f"{choice.taken:>10}  {choice.command}" for choice in self.choices)


class Stage:
    """Where orders are played. ``client`` is not one of the actors'."""

    def __init__(self, client: MongoClient[dict[str, Any]]) -> None:
        self.changed = threading.Condition()
        self.players: dict[str, Player] = {}
        self._admin = client.get_database("admin", read_concern=ReadConcern("local"))

    def player(self, name: str) -> Player:
        self.players[name] = Player(name, self.changed)
        return self.players[name]

    def play(self, acts: Mapping[str, Callable[[], Any]], follow: Follow) -> Played:
        """From the first command of each to the end of all."""
        cast = [self.players[name] for name in acts]
        for player in cast:
            player.begin(acts[player.name])
        choices: list[Choice] = []
        blocked = 0
        try:
            self._until_standing(cast, cast)
            before: str | None = None
            while not all(player.done for player in cast):
                runnable = self._runnable(cast)
                taken = follow(len(choices), runnable, before)
                player = self.players[taken]
                choices.append(Choice(runnable, taken, before, player.at or ""))
                with self.changed:
                    player.go()
                for other in cast:
                    if other is not player:
                        other.calm()
                blocked += self._until_standing([p for p in cast if not p.standing], cast)
                before = taken
        finally:
            for player in cast:
                player.run_free()
        return Played(tuple(choices), {player.name: player.outcome for player in cast}, blocked)

    def _runnable(self, cast: Sequence[Player]) -> tuple[str, ...]:
        """Those that stand before a command; of them those that only wait, if there is nobody else."""
        with self.changed:
            self.changed.wait_for(
                lambda: any(player.at is not None for player in cast) or all(p.done for p in cast), _STUCK_S
            )
            standing = [player for player in cast if player.at is not None]
        assert standing, "every actor waits on the server for another"
        return tuple(player.name for player in standing if not player.waits) or tuple(p.name for p in standing)

    def _until_standing(self, players: Sequence[Player], cast: Sequence[Player]) -> int:
        """Wait until each stands before its next command, has ended or is blocked. Returns how many are blocked."""
        blocked = 0
        for player in players:
            begun = time.monotonic()
            while not self._stands(player, _LOOK_S):
                somebody_else = any(other.at is not None for other in cast)
                waited_s = time.monotonic() - begun
                if somebody_else and (waited_s > _BLOCKED_S or self._is_blocked(player)):
                    blocked += 1
                    break
                assert waited_s < _STUCK_S, f"{player.name} is stuck"
        return blocked

    def _stands(self, player: Player, wait_s: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: player.standing, wait_s)

    def _is_blocked(self, player: Player) -> bool:
        """Whether the server keeps a command of it from writing: it repeats its conflicts, or waits for a lock."""
        pipeline: list[dict[str, Any]] = [
            {"$currentOp": {"allUsers": True}},
            {"$match": {"appName": player.app_name, "active": True}},
        ]
        return any(
            op.get("waitingForLock") or int(op.get("writeConflicts", 0)) >= 2 for op in self._admin.aggregate(pipeline)
        )


def going_on(runnable: tuple[str, ...], before: str | None) -> str:
    """The usual order: whoever ran goes on for as long as it can."""
    return before if before is not None and before in runnable else runnable[0]


def following(schedule: Schedule, diverged: list[int]) -> Follow:
    """The usual order but for ``schedule``. Steps at which that could not be followed go into ``diverged``."""
    leaves = dict(schedule)

    def follow(step: int, runnable: tuple[str, ...], before: str | None) -> str:
        if step in leaves:
            if leaves[step] in runnable:
                return leaves[step]
            diverged.append(step)
        return going_on(runnable, before)

    return follow


def at_random(seed: int, steps: int = 90) -> Follow:
    """Whoever ran goes on, but at one to six of so many ``steps``: what goes wrong takes few switches, far apart."""
    chance = random.Random(seed)
    switches = frozenset(chance.sample(range(1, steps), chance.randint(1, 6)))

    def follow(step: int, runnable: tuple[str, ...], before: str | None) -> str:
        if before not in runnable or step in switches:
            return chance.choice([name for name in runnable if name != before] or runnable)
        return before

    return follow


@dataclass(order=True)
class _Waiting:
    preemptions: int
    number: int
    schedule: Schedule = field(compare=False)


def orders(play: Callable[[Follow], Played], preemptions_max: int) -> Iterator[tuple[Schedule, Played]]:
    """Every order with so many pre-emptions at most, the fewest first, each once."""
    numbers = itertools.count()
    waiting = [_Waiting(0, next(numbers), ())]
    while waiting:
        one = heapq.heappop(waiting)
        diverged: list[int] = []
        played = play(following(one.schedule, diverged))
        yield one.schedule, Played(played.choices, played.outcomes, played.blocked, diverged=bool(diverged))
        first = one.schedule[-1][0] + 1 if one.schedule else 0
        for step, choice in list(enumerate(played.choices))[first:]:
            for other in choice.runnable:
                cost = one.preemptions + choice.would_preempt(other)
                if other != choice.taken and cost <= preemptions_max:
                    heapq.heappush(waiting, _Waiting(cost, next(numbers), (*one.schedule, (step, other))))
