"""Claims: conditional updates that whoever comes first wins, whatever the document's version.

A claim is one findAndModify: its filter alone decides, on the server, on the document as it is at that moment. Of two
rivals for the last place exactly one is admitted. Under statistics the same command runs inside the transaction that
keeps them, and is run again after every definite abort, so that a collision over statistics never decides a claim.
Where saves fold it is one command again, with one stage more, by which the document keeps what there is to fold.

There is no envelope: a repetition runs the filter again, which refuses whoever holds the place already. An unknown
result is resolved by looking whether the place is held, or whether a trail says that it was taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import pymongo
from pymongo import ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.errors import ConnectionFailure, ExecutionTimeout, PyMongoError
from pymongo.read_concern import ReadConcern

from statlib.kernel import telemetry
from statlib.kernel.digests import digest
from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off, transact
from statlib.statistics import queries
from statlib.statistics.arms import Arm, choose
from statlib.statistics.attempts import LOOK_AT_THE_CAUSE, may_have_applied
from statlib.statistics.bounds import CLAIM_ATTEMPTS_MAX, PRE_WRITE_DEADLINE_S, SAVE_ATTEMPTS_MAX
from statlib.statistics.catalogue import AnyCatalogue, Document, Pipeline
from statlib.statistics.claim_entries import ClaimTransition, pending_stage
from statlib.statistics.coordinator import leave_receipts
from statlib.statistics.documents import RECEIPT, Receipt, TrackingMode
from statlib.statistics.effects import Operation, Operations, record_change
from statlib.statistics.entries import Saver
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Cause, Committed, Saved
from statlib.statistics.pending import PENDING, pending_of
from statlib.statistics.reasons import SaveReason
from statlib.statistics.sources import Loaded, load, load_with_trail
from statlib.statistics.state import ProjectState, read_state
from statlib.statistics.submissions import Stream
from statlib.statistics.trail import Trail, trail_of
from statlib.statistics.unit import Overtaken, Unit

_LINEARIZABLE = ReadConcern("linearizable")


class Claim(Protocol):
    """What a domain's claim asks for and what it does. Its operation ids are the stream's name and the version that it
    met."""

    @property
    def stream(self) -> Stream: ...

    def admission(self, context: Document, tracking: TrackingMode) -> Mapping[str, Any]:
        """The filter that decides. Pure; may refuse, typed."""
        ...

    def stages(self, now: Any) -> Pipeline:
        """The update. ``now`` is the expression of the server's time. The version moves besides."""
        ...

    def transition(self) -> ClaimTransition:
        """What waits in the document until it is folded."""
        ...

    def held_in(self, source: Document) -> bool:
        """Whether the actor holds what is claimed."""
        ...


def claim(host: Host, catalogue: AnyCatalogue, wanted: Claim) -> Saved | None:
    """Take the place, or None where the filter does not admit it: then nothing was written.

    Raises Refusal: SourceNotFound, ProjectNotFound, GateSkew, AttemptsExhausted (nothing was written),
    StatisticsOperationUnresolved (nobody can know), and what the claim itself refuses.
    """
    host.require_open()
    return _Claiming(host, catalogue, wanted).run()


class _NotAdmitted(Exception):
    """Ends a transaction in which the filter said no."""


@dataclass
class _Unanswered:
    """A write without an answer, made ``onto`` a version. Single writes name none: ``since`` is the one that was there
    before, and they are made onto that or a later one."""

    arm: Arm
    since: int
    onto: int | None = None

    def may_land_on(self, version: int | None) -> bool:
        """Or has landed. A transaction cannot land on a document that has moved on without it."""
        return self.onto in {None, version}


@dataclass
class _Progress:
    """Which document the transaction was at, and the version that it met."""

    cause: Cause = Cause.STATISTICS
    version: int | None = None


@dataclass
class _Claiming:
    host: Host
    catalogue: AnyCatalogue
    wanted: Claim
    failed: list[Cause] = field(default_factory=list)
    unanswered: _Unanswered | None = None

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    @property
    def stream(self) -> Stream:
        return self.wanted.stream

    def run(self) -> Saved | None:
        while True:
            loaded = self._load()
            with self._turn(loaded):
                answer = self._once(loaded)
            if not isinstance(answer, Cause):
                return answer
            self.failed.append(answer)
            back_off(len(self.failed))

    def _turn(self, loaded: Loaded) -> AbstractContextManager[Any]:
        """Claims that fold, as saves that do, need no queue. A transaction reads anew what it decides by."""
        if self.host.includes(self.stream.project) and self._arm(loaded) is not Arm.FOLD:
            return self.host.turns.turn(self.stream.project)
        return nullcontext()

    def _arm(self, loaded: Loaded) -> Arm:
        folds = self.host.fold and self.catalogue.transitions is not None
        return choose(included=self.host.includes(self.stream.project), control=loaded.control, fold=folds)

    def _once(self, loaded: Loaded) -> Saved | Cause | None:
        if (landed := self._landed(loaded)) is not None:
            return landed
        with self._no_false_no(loaded):
            arm = self._arm(loaded)
            if self._exhausted:
                raise Refusal(SaveReason.AttemptsExhausted, self.stream.name)
            outcome = self._transactional(loaded) if arm is Arm.TRANSACTIONAL else self._single_write(loaded, arm)
        if isinstance(outcome, Cause):
            telemetry.count("claims.failed_attempts", cause=outcome, arm=arm)
            return outcome
        if outcome is None:
            return self._not_admitted(arm)
        return self._saved(arm, outcome.revision_after, leaves_receipt=outcome.leaves_receipt)

    def _not_admitted(self, arm: Arm) -> Saved | None:
        """A no of the filter, unless it was this claim's own unanswered write that it met, or may yet be overtaken by.

        What others read may lag behind what the filter saw: this look does not.
        """
        if self.unanswered is None:
            return None
        look = self.mongo.collection(self.catalogue.source_collection).with_options(read_concern=_LINEARIZABLE)
        with self._asking(), pymongo.timeout(PRE_WRITE_DEADLINE_S):
            source = look.find_one({"_id": self.stream.aggregate})
        if source is not None and self.wanted.held_in(source):
            taken = self._by_trail(trail_of(pending_of(source)), self.unanswered)
            return taken or self._saved(arm, source["Audit"]["Version"], leaves_receipt=arm is Arm.TRANSACTIONAL)
        if self.unanswered.may_land_on(source["Audit"]["Version"] if source else None):
            raise self._unresolved("neither held nor certain not to be")
        return None

    @property
    def _exhausted(self) -> bool:
        slow = sum(cause in {Cause.LATE, Cause.UNKNOWN} for cause in self.failed)  # each may take as long as a save
        return len(self.failed) >= CLAIM_ATTEMPTS_MAX or slow >= SAVE_ATTEMPTS_MAX

    def _landed(self, loaded: Loaded) -> Saved | None:
        """The outcome of an unanswered write, if what is stored proves it."""
        if self.unanswered is None:
            return None
        arm, onto = self.unanswered.arm, self.unanswered.onto
        if onto is not None and self._receipt_of(onto):
            return self._saved(arm, onto + 1, leaves_receipt=True)
        if loaded.trail is not None and (taken := self._by_trail(loaded.trail, self.unanswered)):
            return taken
        if not self.wanted.held_in(loaded.source):
            return None
        return self._saved(arm, loaded.version, leaves_receipt=arm is Arm.TRANSACTIONAL)

    def _by_trail(self, trail: Trail, unanswered: _Unanswered) -> Saved | None:
        """The claim that was folded, or waits for it, since the unanswered write: held still, or let go again."""
        met = trail.latest_of(self.stream.namespace, {self.stream.name})
        trace = trail.of((self.stream.namespace, f"{self.stream.name}:{met}"))
        if unanswered.arm is not Arm.FOLD or trace is None or met < unanswered.since:
            return None
        return self._saved(Arm.FOLD, met + 1, leaves_receipt=trace.leaves_receipt)

    def _receipt_of(self, version: int) -> bool:
        key = {
            "ProjectId": self.stream.project,
            "OperationNamespace": self.stream.namespace,
            "OperationId": f"{self.stream.name}:{version}",
        }
        with self._asking():
            return self.mongo.collection(RECEIPT).find_one(key, {"_id": 1}) is not None

    def _load(self) -> Loaded:
        project, aggregate = self.stream.project, self.stream.aggregate
        with self._asking():
            if self.unanswered is None or self.unanswered.arm is not Arm.FOLD:
                return load(self.mongo, self.catalogue, project, aggregate)
            streams = queries.Streams(self.stream.namespace, (self.stream.name,))
            return load_with_trail(self.mongo, self.catalogue, project, aggregate, streams)

    def _single_write(self, loaded: Loaded, arm: Arm) -> Committed | Cause | None:
        remaining_s = PRE_WRITE_DEADLINE_S - (self.mongo.clock.monotonic() - loaded.read_at)
        if remaining_s <= 0:
            return Cause.LATE
        now = self.mongo.clock.mongo_now()
        deadline = queries.before_deadline(loaded.now, PRE_WRITE_DEADLINE_S, now)
        wanted = self._filter(loaded.context, loaded.fleet.reviewer_tracking_mode, deadline)
        first = [self._pending_stage(loaded, now)] if arm is Arm.FOLD else []
        overflow = f"{PENDING}.Overflow"
        try:
            with pymongo.timeout(remaining_s):
                after = self.mongo.collection(self.catalogue.source_collection).find_one_and_update(
                    wanted,
                    [*first, *self._update(now)],
                    projection={"Audit.Version": 1, overflow: 1},
                    return_document=ReturnDocument.AFTER,
                )
        except PyMongoError as error:
            if not may_have_applied(error):
                raise Fault("the claim was not accepted by the server", remedy=LOOK_AT_THE_CAUSE) from error
            self.unanswered = _Unanswered(arm, since=loaded.version)
            return Cause.UNKNOWN
        if after is None:
            late = self.mongo.clock.monotonic() - loaded.read_at > PRE_WRITE_DEADLINE_S
            return Cause.LATE if late else None
        fitted = arm is Arm.FOLD and after[PENDING].get("Overflow") is None
        if arm is Arm.FOLD and not fitted:
            telemetry.count("pending_entries.overflowed")
        return Committed(after["Audit"]["Version"], leaves_receipt=fitted)

    def _pending_stage(self, loaded: Loaded, now: Any) -> dict[str, Any]:
        saver = Saver.of(self.catalogue, self.host.families, loaded.context, loaded.fleet)
        return pending_stage(saver, self.stream, self.wanted.transition(), now)

    def _transactional(self, loaded: Loaded) -> Committed | Cause | None:
        at = _Progress()
        try:
            with pymongo.timeout(PRE_WRITE_DEADLINE_S):
                return transact(self.mongo, lambda session: self._body(session, at), reruns_max=0)
        except _NotAdmitted:
            return None
        except Overtaken:
            return at.cause
        except Refusal as refusal:
            if refusal.reason is MongoReason.Contended:
                return at.cause
            if refusal.reason is MongoReason.CommitOutcomeUnknown:
                self.unanswered = _Unanswered(Arm.TRANSACTIONAL, since=loaded.version, onto=at.version)
                return Cause.UNKNOWN
            raise
        except PyMongoError as error:
            if isinstance(error, ConnectionFailure | ExecutionTimeout):
                return at.cause  # before the commit was sent: the transaction is not committed
            raise Fault("the claim was not accepted by the server", remedy=LOOK_AT_THE_CAUSE) from error

    def _body(self, session: ClientSession, at: _Progress) -> Committed:
        """The document first: whoever is not admitted has written nothing, and most are decided there."""
        stream = self.stream
        state = read_state(self.mongo, self.catalogue, session, stream.project, tuple(self.catalogue.families))
        if state is None:
            raise Overtaken
        documents = self.mongo.collection(self.catalogue.source_collection)
        at.cause = Cause.SOURCE
        before = documents.find_one_and_update(
            self._filter(state.context_document, state.fleet.reviewer_tracking_mode),
            self._update(self.mongo.clock.mongo_now()),
            return_document=ReturnDocument.BEFORE,
            session=session,
        )
        at.cause = Cause.STATISTICS
        if before is None:
            raise _NotAdmitted
        after = documents.find_one({"_id": stream.aggregate}, session=session)
        if after is None:
            raise AssertionError("a document written in this transaction is there")
        at.version = int(before["Audit"]["Version"])
        operation = Operation(stream.namespace, f"{stream.name}:{at.version}")
        unit = Unit(self.mongo, session, state)
        record_change(unit, self.host, self.catalogue, Operations(operation), before=before, after=after)
        leave_receipts(unit, [_receipt(stream, operation, at.version, state)])
        return Committed(revision_after=at.version + 1, leaves_receipt=True)

    def _filter(self, context: Document, tracking: TrackingMode, *further: Mapping[str, Any]) -> dict[str, Any]:
        identity = {"_id": self.stream.aggregate, "ProjectId": self.stream.project}
        return {"$and": [identity, self.wanted.admission(context, tracking), *further]}

    def _update(self, now: Any) -> Pipeline:
        return [*self.wanted.stages(now), *queries.source_update({}, now)]

    def _saved(self, arm: Arm, revision_after: int, *, leaves_receipt: bool) -> Saved:
        return Saved(
            operation_id=f"{self.stream.name}:{revision_after - 1}",
            namespace=self.stream.namespace,
            arm=arm,
            duplicate=False,
            leaves_receipt=leaves_receipt,
            revision_after=revision_after,
            failed_attempts=tuple(self.failed),
        )

    @contextmanager
    def _no_false_no(self, loaded: Loaded) -> Iterator[None]:
        """Nothing is refused as not taken while a write of this claim may be, or become, exactly that."""
        try:
            yield
        except Refusal as refusal:
            if self.unanswered is None or not self.unanswered.may_land_on(loaded.version):
                raise
            raise self._unresolved(refusal.reason.name) from refusal

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around reads: what became of an unanswered write is not known where they fail."""
        try:
            yield
        except (PyMongoError, Refusal) as error:
            if self.unanswered is not None:
                raise self._unresolved("the server cannot be asked what became of it") from error
            if isinstance(error, Refusal):
                raise
            raise Fault("the document cannot be read", remedy="Check that the replica set has a primary.") from error

    def _unresolved(self, why: str) -> Refusal:
        state = {"failedAttempts": [cause.value for cause in self.failed]}
        return Refusal(SaveReason.StatisticsOperationUnresolved, f"{self.stream.name}: {why}", state=state)


def _receipt(stream: Stream, operation: Operation, version: int, state: ProjectState) -> Receipt:
    """A claim submits nothing but itself: its digest is that of its id."""
    return Receipt(
        project_id=stream.project,
        operation_namespace=operation.namespace,
        operation_id=operation.operation_id,
        expected_source_revision=version,
        committed_source_before_revision=version,
        committed_source_after_revision=version + 1,
        source_digest=digest(operation.operation_id),
        source_aggregate_id=stream.aggregate,
        has_trusted_source_identity=True,
        created_at_utc=state.now,
        observed_at_utc=state.now,
    )
