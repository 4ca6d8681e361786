"""Whoever acts on a project whose saves fold, for the explorer of interleavings; and what must hold after each order.

One small review, in which something is pending from the start, is set back to how it began before each order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from pymongo import DeleteOne, InsertOne, ReplaceOne, WriteConcern

from statlib.kernel.refusals import Reason, Refusal
from statlib.kernel.settings import Settings
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import snapshot
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter
from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import admission, storage
from statlib.statistics.authoritative import PinnedReads
from statlib.statistics.backfill import backfill_together
from statlib.statistics.bounds import FOLD_WRITER_GRACE_S
from statlib.statistics.counters import without_zeros
from statlib.statistics.documents import FOLD_QUARANTINE, MEMBER
from statlib.statistics.fold.turn import Folded, Stopped, fold_project
from statlib.statistics.fold_modes import disable_fold
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved
from statlib.statistics.pending import PENDING, Poison
from statlib.statistics.reader import authoritative_values, judged, read_moment
from statlib.statistics.reasons import OperateReason, SaveReason
from statlib.statistics.rebuild import RebuiltTogether, rebuild_together
from statlib.statistics.trail import Kept, Key
from tests.acts import stages_and_questions
from tests.exploring import Follow, Played, Stage
from tests.folding import fold_on, pending
from tests.interruptions import host_with
from tests.kept import Places, places
from tests.reviews import ALL_FAMILIES, Review, action, review

ACTORS = ("save", "claim", "fold", "rebuild", "read", "disable")
REBUILT = ("ProjectScreening", "StageAnnotation")
ASKED = dict.fromkeys(ALL_FAMILIES)
_COLLECTIONS = (*(name for name in storage.COLLECTIONS if name != MEMBER), PROJECTS, STUDIES)
_SOON = WriteConcern(w=1)  # a last write waits for the majority of all of them

REFUSED: Mapping[str, frozenset[Reason]] = {
    "save": frozenset({SaveReason.AttemptsExhausted, SaveReason.VersionStale}),
    "claim": frozenset({SaveReason.AttemptsExhausted}),
    "fold": frozenset({MongoReason.Contended}),
    "rebuild": frozenset(
        {
            MongoReason.LeaseHeld, MongoReason.LeaseLost, MongoReason.Contended,
            OperateReason.PublicationRaceLost, OperateReason.PendingNotDrained,
        }
    ),
    "read": frozenset(),
    "disable": frozenset({MongoReason.Contended}),
}  # fmt: skip
"""What an actor may be told, so that it must come again. Nothing else may come of any order."""


@dataclass
class Met:
    """What was met in the orders so far: scopes compared as served, outcomes of each actor."""

    served: int = 0
    fallen_back: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class World:
    """The review and its actors' hosts."""

    def __init__(self, opened: Review, stage: Stage, hosts: Mapping[str, Host]) -> None:
        self.review, self.stage, self.hosts, self.met = opened, stage, hosts, Met()
        self._acts: dict[str, Callable[[], Any]] = {
            "save": self._save,
            "claim": self._claim,
            "fold": lambda: fold_project(hosts["fold"], REVIEW, opened.project, min_age_s=0.0),
            "rebuild": self._rebuild,
            "read": lambda: inexact(opened, hosts["read"], self.met),
            "disable": self._disable,
        }
        self._began: dict[str, dict[str, dict[str, Any]]] = {}
        self._began_at = datetime.min
        self._offset = ""
        self._known: frozenset[Key] = frozenset()

    # --- actors ---

    def _save(self) -> Saved:
        """The decision with which the study is no longer included; then nobody may claim a place in it."""
        writer = ScreeningWriter(self.hosts["save"], self.review.project)
        return writer.submit(self.review.studies[0], self.review.members[1], Decision.EXCLUDE)

    def _claim(self) -> Saved | None:
        writer = ClaimWriter(self.hosts["claim"], self.review.project)
        return writer.claim(self.review.studies[0], self.review.members[2], self.review.stages[1])

    def _rebuild(self) -> RebuiltTogether:
        families = dict.fromkeys(REBUILT)
        return rebuild_together(self.hosts["rebuild"], REVIEW, self.review.project, families, force=True)

    def _disable(self) -> Folded:
        """Begun, waited out and ended, in one: whoever is in the middle of something has been so for minutes then."""
        host = self.hosts["disable"]
        disable_fold(host, REVIEW, self.review.project, action("disable"))
        host.mongo.clock.advance(FOLD_WRITER_GRACE_S + 1)
        return fold_project(host, REVIEW, self.review.project, min_age_s=0.0)

    # --- orders ---

    def play(self, names: tuple[str, ...], follow: Follow) -> Played:
        self.set_back()
        return self.stage.play({name: self._acts[name] for name in names}, follow)

    def keep(self) -> None:
        """Remember how it is now, for every order to begin so."""
        self._began = self._stored()
        self._began_at = self.review.mongo.clock.local_utc()
        self._offset = self._offset_file.read_text() if self._offset_file.exists() else "0"
        self._known = places(self.review).all

    def set_back(self) -> None:
        """As it was kept, but that what is pending is as young as it was then."""
        self._offset_file.write_text(self._offset)
        later = self.review.mongo.clock.local_utc() - self._began_at
        now = self._stored()
        for name in _COLLECTIONS:
            writes = _writes(now[name], {key: _later(document, later) for key, document in self._began[name].items()})
            if writes:
                self.review.mongo.collection(name).with_options(write_concern=_SOON).bulk_write(writes, ordered=False)
        self.review.mongo.collection("testOrders").update_one({"_id": 0}, {"$inc": {"Played": 1}}, upsert=True)

    def _stored(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Every document by collection and id, in one command."""
        found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _COLLECTIONS}
        pipeline = [*_tagged(_COLLECTIONS[0])]
        pipeline += [{"$unionWith": {"coll": name, "pipeline": _tagged(name)}} for name in _COLLECTIONS[1:]]
        for one in self.review.mongo.collection(_COLLECTIONS[0]).aggregate(pipeline):
            found[one["Name"]][repr(one["Document"]["_id"])] = one["Document"]
        return found

    @property
    def _offset_file(self) -> Any:
        return self.review.mongo.clock.offset_file

    # --- what must hold ---

    def violations(self, played: Played) -> list[str]:
        """Of what must hold after any order: what does not."""
        ends = "disable" in played.outcomes
        outcomes = played.outcomes.items()
        found = [text for name, outcome in outcomes for text in self._of_outcome(name, outcome, ends_folding=ends)]
        done = {key for outcome in played.outcomes.values() for key in _operations(outcome)} | self._known
        found += _of_places(places(self.review), done)
        found += inexact(self.review, self.review.host, self.met)
        found += self._of_source(played)
        folded = self._drained()
        if folded.stopped is not Stopped.DRAINED or pending(self.review.mongo, self.review.project):
            found.append(f"it does not drain: {folded}")
        now = places(self.review)
        found += _of_places(now, done)
        missing = done - set(now.of[Kept.RECEIPT])
        if any(self._reason_of(key) != Poison.LIVELOCKED for key in missing):
            found.append(f"no receipt of {sorted(missing)}")
        return found + inexact(self.review, self.review.host, self.met)

    def _drained(self) -> Folded:
        for _ in range(3):
            folded = fold_project(self.review.host, REVIEW, self.review.project, min_age_s=0.0)
            if folded.stopped is Stopped.DRAINED:
                break
        return folded

    def _of_outcome(self, name: str, outcome: Any, *, ends_folding: bool) -> Iterator[str]:
        """Only a save that meets the end of fold mode, and so is transactional, may try in vain."""
        self.met.outcomes[f"{name}: {_called(outcome)}"] += 1
        if name == "read" and isinstance(outcome, list):
            yield from outcome
        elif isinstance(outcome, Refusal):
            exhausted = outcome.reason is SaveReason.AttemptsExhausted and not ends_folding
            if outcome.reason not in REFUSED[name] or exhausted:
                yield f"{name} was refused {outcome}"
        elif isinstance(outcome, Exception):
            yield f"{name} failed: {outcome!r}"
        elif isinstance(outcome, RebuiltTogether):
            for family, refusal in outcome.lost.items():
                if refusal.reason not in REFUSED["rebuild"]:
                    yield f"rebuild of {family} was refused {refusal}"

    def _of_source(self, played: Played) -> Iterator[str]:
        """What was answered is what was done, once."""
        study = self.review.study(self.review.studies[0])
        saved = self.review.members[1] in self.review.decisions(self.review.studies[0])
        claimed = any(r["InvestigatorId"] == self.review.members[2] for r in study["SlotReservations"])
        for name, there in (("save", saved), ("claim", claimed)):
            if there != isinstance(played.outcomes.get(name), Saved):
                yield f"{name} was answered {_called(played.outcomes.get(name))}, and the source says {there}"

    def _reason_of(self, key: Key) -> str | None:
        found = self.review.mongo.collection(FOLD_QUARANTINE).find_one(
            {"ProjectId": self.review.project, "OperationNamespace": key[0], "OperationId": key[1]}
        )
        return found["Reason"] if found else None


def _of_places(now: Places, done: set[Key]) -> Iterator[str]:
    if now.repeated:
        yield f"in two places: {sorted(now.repeated)}"
    if lost := {key for key in done - now.all if not now.hides(key)}:
        yield f"lost: {sorted(lost)}"
    if uncalled := now.all - done:
        yield f"kept, though nobody was told that it was done: {sorted(uncalled)}"


def inexact(opened: Review, host: Host, met: Met) -> list[str]:
    """Every scope that is served now, and not what the source says in the same snapshot."""
    with snapshot(host.mongo) as session:
        reads = PinnedReads(host.mongo, session)
        moment = read_moment(host, reads, REVIEW, opened.project, ASKED)
        scopes = moment.configuration.declared(ASKED)
        truth = authoritative_values(reads, REVIEW, opened.project, moment.context, scopes)
    wrong: list[str] = []
    for family, names in scopes.items():
        for scope in names:
            verdict = judged(host, REVIEW, opened.project, moment, {family: (scope,)})
            if verdict.reason is not None:
                met.fallen_back += 1
                continue
            met.served += 1
            value = without_zeros(verdict.value_of(moment, family, scope))
            if value != without_zeros(truth[family][scope]):
                wrong.append(f"{family} {scope} is served as {value}, not {truth[family][scope]}")
    return wrong


@contextmanager
def world(settings: Settings) -> Iterator[World]:
    """A review whose rows are exact, with a screening decision pending in each study, and a host for each actor."""
    stages, questions = stages_and_questions()
    with (
        ExitStack() as stack,
        review(
            settings, studies=2, families=ALL_FAMILIES, members=5, searches=1, stages=stages, questions=questions,
            fold=True,
        ) as opened,
        mock.patch.object(admission, "_POLL_S", 0.001),
    ):  # fmt: skip
        first, second = opened.studies
        for member in opened.members[3:]:
            opened.writer.submit(first, member, Decision.INCLUDE)
        backfill_together(opened.host, REVIEW, opened.project, ALL_FAMILIES)
        fold_on(opened.mongo, opened.project)
        for study in (first, second):
            opened.writer.submit(study, opened.members[0], Decision.EXCLUDE)
        stage = Stage(opened.mongo.client)
        hosts = {}
        for name in ACTORS:
            player = stage.player(name)
            hosts[name] = stack.enter_context(host_with(opened.mongo.settings, player, app_name=player.app_name))
            hosts[name].folding_seen.add(opened.project)
        made = World(opened, stage, hosts)
        made.keep()
        assert len(pending(opened.mongo, opened.project)) == 2
        bundle = opened.read_all()
        assert bundle.reason is None, (bundle.reason, bundle.detail)
        yield made


def _operations(outcome: Any) -> Iterator[Key]:
    if isinstance(outcome, Saved):
        yield outcome.namespace, outcome.operation_id
        for further in outcome.further or ():
            yield further.namespace, further.operation_id


def _called(outcome: Any) -> str:
    if isinstance(outcome, Refusal):
        return outcome.reason.name
    if isinstance(outcome, Folded):
        return outcome.stopped.value
    if isinstance(outcome, RebuiltTogether):
        return f"{len(outcome.rebuilt)} families published"
    return type(outcome).__name__


def _tagged(name: str) -> list[dict[str, Any]]:
    return [{"$project": {"_id": 0, "Name": {"$literal": name}, "Document": "$$ROOT"}}]


def _writes(
    there: Mapping[str, dict[str, Any]], wanted: Mapping[str, dict[str, Any]]
) -> list[InsertOne[dict[str, Any]] | ReplaceOne[dict[str, Any]] | DeleteOne]:
    gone = [DeleteOne({"_id": there[key]["_id"]}) for key in there.keys() - wanted.keys()]
    changed = [
        ReplaceOne({"_id": document["_id"]}, document) if key in there else InsertOne(document)
        for key, document in wanted.items()
        if there.get(key) != document
    ]
    return [*gone, *changed]


def _later(document: dict[str, Any], by: timedelta) -> dict[str, Any]:
    """With the times of what is pending moved, so that it does not grow too old to be overlaid while orders are
    played."""
    if PENDING not in document:
        return document
    moved = deepcopy(document)
    waiting = moved[PENDING]
    waiting["OldestAtUtc"] += by
    for entry in waiting["Entries"]:
        entry["CreatedAtUtc"] += by
    return moved
