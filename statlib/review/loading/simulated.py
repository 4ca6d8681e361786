"""The embedded default: a review made up from a seed, so that everything runs without anybody's data.

Invariant: equal parameters give equal documents and events, in every process and on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statlib.kernel.refusals import Refusal
from statlib.review.documents import Provenance
from statlib.review.loading.recording import THRESHOLD_DEFAULT, Recorder
from statlib.review.loading.review import LoadedReview, LoadReason, Naming
from statlib.review.loading.simulated_annotation import QUESTIONS, STAGES, AnnotationCourse, SimulatedSession
from statlib.review.loading.simulation import SHARE_WHOLE, STARTED_AT, Act, Course, Habits, panel
from statlib.review.loading.titles import SEARCHES, title

FORMAT = "simulated"
STUDIES_MAX = 1_000_000
REVIEWERS_MAX = 1_000
EVENTS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class SimulatedReview:
    """Parameters of a simulated review. Shares are per thousand decisions (records, for ``relevant_share``).

    ``events``: exactly so many decision events; None: until every record is decided. Fewer leave records unscreened;
    more go on with corrections, retractions and repetitions. ``sessions``: at most so many acts on annotation sessions
    come besides, on two stages that there are only then. Refuses SimulationInvalid out of range.
    """

    studies: int = 1_000
    reviewers: int = 5
    seed: int = 20_240_108
    events: int | None = None
    relevant_share: int = 120
    resubmitted_share: int = 55
    corrected_share: int = 40
    retracted_share: int = 15
    sessions: int = 0
    name: str | None = None

    def __post_init__(self) -> None:
        habits = (self.resubmitted_share, self.corrected_share, self.retracted_share)
        rules: Mapping[str, bool] = {
            f"studies must be 1 to {STUDIES_MAX:,}": 1 <= self.studies <= STUDIES_MAX,
            f"reviewers must be 3 (a third settles conflicts) to {REVIEWERS_MAX:,}": (
                3 <= self.reviewers <= REVIEWERS_MAX
            ),
            f"events must be 0 to {EVENTS_MAX:,}": self.events is None or 0 <= self.events <= EVENTS_MAX,
            f"sessions must be 0 to {EVENTS_MAX:,}": 0 <= self.sessions <= EVENTS_MAX,
            "shares must be 0 to 1000": all(0 <= share <= SHARE_WHOLE for share in (self.relevant_share, *habits)),
            "resubmitted, corrected and retracted shares must leave 100 or more for first decisions": (
                sum(habits) <= SHARE_WHOLE - 100
            ),
            "without a number of events, retracted must stay 100 or more below what is left for first decisions, "
            "or the review never ends": (
                self.events is not None or self.retracted_share + 100 <= SHARE_WHOLE - sum(habits)
            ),
        }
        for rule, kept in rules.items():
            if not kept:
                raise Refusal(LoadReason.SimulationInvalid, rule)

    @property
    def format(self) -> str:
        return "simulated review"

    @property
    def project_name(self) -> str:
        """The given name, else one made of size and seed; the project's id depends on it alone."""
        size = f"{self.studies:,} records, {self.reviewers} reviewers"
        events = "" if self.events is None else f", {self.events:,} events"
        sessions = f", {self.sessions:,} acts on sessions" if self.sessions else ""
        return self.name or f"Simulated review: {size}{events}{sessions}, seed {self.seed}"

    def load(self) -> LoadedReview:
        """Make the review up. Nothing in it is recorded, and its provenance says so."""
        chance = random.Random(self.seed)  # noqa: S311 - reproducible, not secret
        recorder = Recorder(Naming(FORMAT, self.project_name))
        reviewers = panel(chance, self.reviewers)
        for reviewer in reviewers:
            recorder.join(reviewer.name, STARTED_AT)
        keys = [f"sim-{number:06}" for number in range(1, self.studies + 1)]
        for key in keys:
            year = str(chance.randrange(1990, 2024))
            recorder.record(key, title(chance), search=chance.choice(SEARCHES), extra={"year": year})
        relevant = [chance.randrange(SHARE_WHOLE) < self.relevant_share for _ in keys]
        habits = Habits(self.resubmitted_share, self.corrected_share, self.retracted_share)
        acts = list(Course(chance, reviewers, relevant, habits).acts(self.events))
        # drawn by themselves, so that the decisions are those of the review without sessions
        sessions = self._sessions(acts, random.Random(f"{self.seed} sessions"))  # noqa: S311 - reproducible, not secret
        names = [reviewer.name for reviewer in reviewers]
        self._record(recorder, keys, names, acts, sessions)
        return recorder.finish(self._provenance(), THRESHOLD_DEFAULT)

    def _sessions(self, decisions: Sequence[Act], chance: random.Random) -> list[SimulatedSession]:
        if not self.sessions:
            return []
        return list(AnnotationCourse(chance, self.reviewers, THRESHOLD_DEFAULT).acts(decisions, self.sessions))

    def _record(
        self,
        recorder: Recorder,
        keys: Sequence[str],
        names: Sequence[str],
        decisions: Sequence[Act],
        sessions: Sequence[SimulatedSession],
    ) -> None:
        """Decisions keep their numbers where there is nothing beside them."""
        if not self.sessions:
            for decision in decisions:
                recorder.decide(
                    decision.seq, keys[decision.study], names[decision.reviewer], decision.decision, decision.at
                )
            return
        for stage in STAGES:
            recorder.annotation_stage(stage)
        for question in QUESTIONS:
            recorder.ask(question.key, question.stage, question.text, question.kind, question.options)
        due: list[tuple[int, int, Act | SimulatedSession]] = [(decision.seq, 0, decision) for decision in decisions]
        due += [(session.after, 1, session) for session in sessions]
        in_order = sorted(due, key=lambda one: one[:2])
        for seq, (_, _, act) in enumerate(in_order, start=1):
            if isinstance(act, Act):
                recorder.decide(seq, keys[act.study], names[act.reviewer], act.decision, act.at)
            else:
                recorder.annotate(
                    seq,
                    keys[act.study],
                    names[act.reviewer],
                    act.act,
                    stage=act.stage,
                    at=act.at,
                    answers=act.answers,
                    reconciliation=act.reconciliation,
                )

    def _provenance(self) -> Provenance:
        shares = (self.relevant_share, self.resubmitted_share, self.corrected_share, self.retracted_share)
        return Provenance(
            source=(
                f"statlib simulation 1: {self.studies} records, {self.reviewers} reviewers, "
                f"events {'to the end' if self.events is None else self.events}, "
                f"{f'acts on sessions {self.sessions} at most, ' if self.sessions else ''}"
                "per thousand {} relevant, {} resubmitted, {} corrected, {} retracted".format(*shares)
            ),
            simulated=(
                f"Everything: records, titles, reviewers, decisions"
                f"{', stages, questions, sessions, answers, reconciliations' if self.sessions else ''} "
                f"and times are made up from seed {self.seed}. "
                "No real review is in this project."
            ),
            seed=self.seed,
        )
