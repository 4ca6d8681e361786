"""Ten people at once, on two hosts, while families are rebuilt in a loop and operations cycle through their fences.

At every pause all that would be served is what a naive count says; every refusal on the way was a typed one.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.transactions import snapshot
from statlib.review.annotation_writer import SessionAct
from statlib.review.catalogue import REVIEW
from statlib.review.documents import StageKind
from statlib.review.screening import Decision
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.backfill import backfill_together
from statlib.statistics.documents import FenceKind
from statlib.statistics.fences import Asked, admit, finish
from statlib.statistics.reader import authoritative_values, closed_gate, read_moment
from tests.acts import REFUSED_AMONG_OTHERS, Acts, stages_and_questions
from tests.reviews import ALL_FAMILIES, Review, host_of, review

PEOPLE, ROUNDS, ACTS_EACH = 10, 3, 12


@dataclass
class Crowd:
    """What everybody does, and what came of it."""

    review: Review
    hosts: list[Acts]
    outcomes: Counter[str] = field(default_factory=Counter)
    quiet: threading.Event = field(default_factory=threading.Event)

    def attempt(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Refusal as refusal:
            if refusal.reason not in REFUSED_AMONG_OTHERS:
                raise
            self.outcomes[refusal.reason.name] += 1
        else:
            self.outcomes["done"] += 1

    def person(self, number: int, round_: int) -> None:
        chance, acts = random.Random(f"{number} {round_}"), self.hosts[number % len(self.hosts)]
        for _ in range(ACTS_EACH):
            self.attempt(any_act(chance, acts))

    def rebuild(self) -> None:
        chance = random.Random("rebuilds")
        while not self.quiet.is_set():
            families = chance.sample(ALL_FAMILIES, chance.randint(1, len(ALL_FAMILIES)))
            self.attempt(lambda chosen=families: backfill_together(  # type: ignore[misc]
                self.review.host, REVIEW, self.review.project, chosen
            ))  # fmt: skip

    def cycle_fences(self) -> None:
        chance, acts = random.Random("fences"), self.hosts[-1]
        while not self.quiet.is_set():
            kind = chance.choice([FenceKind.BULK_STUDY_UPDATE, FenceKind.SEARCH_IMPORT])
            families = frozenset(chance.sample(ALL_FAMILIES, 3))
            self.attempt(lambda k=kind, f=families: finish(  # type: ignore[misc]
                admit(acts.host, REVIEW, acts.project, Asked(k, f, {"id": str(uuid4())}))
            ))  # fmt: skip
            self.quiet.wait(chance.uniform(0.2, 0.6))
            self.attempt(lambda: acts.set_the_threshold(chance.randint(1, 3), 0.66))
            self.quiet.wait(chance.uniform(0.2, 0.6))

    def one_round(self, round_: int) -> None:
        self.quiet.clear()
        with ThreadPoolExecutor(PEOPLE + 2) as pool:
            background = [pool.submit(self.rebuild), pool.submit(self.cycle_fences)]
            people = [pool.submit(self.person, number, round_) for number in range(PEOPLE)]
            try:
                for person in people:
                    person.result(timeout=240)
            finally:
                self.quiet.set()
            for one in background:
                one.result(timeout=120)


def any_act(chance: random.Random, acts: Acts) -> Callable[[], object]:
    study, person, stage, number = (chance.randrange(100) for _ in range(4))
    yes = chance.random() < 0.5
    return chance.choices(
        [
            lambda: acts.screen(study, person, chance.choice(list(Decision)), on_stage=yes),
            lambda: acts.annotate(
                study, person, stage, chance.choice(list(SessionAct)), None, reconciliation=chance.random() < 0.2
            ),
            lambda: acts.claim(study, person, stage),
            lambda: acts.release(study, person, stage),
            lambda: acts.come_or_go(person, joins=yes),
            lambda: acts.set_target(stage, 1 + number % 3),
            lambda: acts.add_or_remove_a_stage(StageKind.ANNOTATION, there=yes),
            lambda: acts.update_in_bulk([(study, person, Decision.INCLUDE), (number, person, Decision.EXCLUDE)]),
            lambda: acts.import_a_search(number % 3),
            lambda: acts.rename_an_option(number, chance.choice(["x/y", "z.z", "a.b/c"])),
        ],
        weights=[8, 8, 4, 3, 1, 1, 0.5, 0.5, 0.5, 0.5],
    )[0]


@pytest.fixture
def crowd(emptied: Settings) -> Iterator[Crowd]:
    stages, questions = stages_and_questions()
    with ExitStack() as opened:
        made = opened.enter_context(
            review(emptied, studies=6, families=ALL_FAMILIES, members=4, searches=2, stages=stages, questions=questions)
        )
        made.backfill_all()
        other = opened.enter_context(host_of(made.mongo.settings))
        strangers = (uuid4(), uuid4())
        hosts = [Acts(made, host, strangers) for host in (made.host, other)]
        yield Crowd(made, hosts)


def require_exact(of: Review) -> int:
    """Every scope that a reader would be served, against the naive count; how many these were."""
    truth, asked = of.whole_truth(), dict.fromkeys(ALL_FAMILIES)
    with snapshot(of.mongo) as session:
        reads = PinnedReads(of.mongo, session)
        moment = read_moment(of.host, reads, REVIEW, of.project, asked)
        scopes = moment.configuration.declared(asked)
        assert authoritative_values(reads, REVIEW, of.project, moment.context, scopes) == truth
    served = 0
    for family, names in scopes.items():
        for scope in names:
            if closed_gate(of.host, REVIEW, of.project, moment, {family: (scope,)}) is None:
                values = {key: value for key, value in moment.rows[family, scope].values.items() if value}
                assert values == truth[family][scope], (family, scope)
                served += 1
    return served


@pytest.mark.timeout(900)
def test_at_every_pause_what_is_served_is_what_a_naive_count_says(crowd: Crowd) -> None:
    for round_ in range(ROUNDS):
        crowd.one_round(round_)
        require_exact(crowd.review)
        with suppress(Refusal):  # an interrupted operation may hide the source; nothing is served then
            backfill_together(crowd.review.host, REVIEW, crowd.review.project, ALL_FAMILIES)
        declared_scopes = sum(len(scopes) for scopes in crowd.review.whole_truth().values())
        assert require_exact(crowd.review) == declared_scopes
        assert crowd.review.read_all().reason is None
    assert crowd.outcomes["done"] > PEOPLE * ROUNDS
