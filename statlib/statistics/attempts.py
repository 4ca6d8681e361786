"""One save, whatever its arm: attempt, look, decide, at most three times.

What the caller hears is one of: saved (by this delivery or an earlier one), a typed no that wrote nothing, or
StatisticsOperationUnresolved where neither can be proved. An unknown result is always resolved by a fresh,
majority read before anything is written again, and resolving is not an attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import bson
import pymongo
from pymongo import ReturnDocument
from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    PyMongoError,
    WriteConcernError,
)

from statlib.kernel import telemetry
from statlib.kernel.refusals import Fault, Refusal
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.mongo.transactions import back_off, transact
from statlib.statistics import queries
from statlib.statistics.arms import Arm, choose
from statlib.statistics.bounds import PRE_WRITE_DEADLINE_S, SAVE_ATTEMPTS_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.coordinator import Attempt, Preempted, Progress, commit
from statlib.statistics.documents import Mode
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.idempotency import Answer, Evidence, Position, Situation, decide
from statlib.statistics.outcomes import Cause, Committed, Saved, SourceChange
from statlib.statistics.reasons import SaveReason
from statlib.statistics.sources import Loaded, load_again
from statlib.statistics.unit import Overtaken

_CODEC = bson.codec_options.CodecOptions[dict[str, Any]](
    uuid_representation=bson.binary.UuidRepresentation.STANDARD, tz_aware=True
)


LOOK_AT_THE_CAUSE = "Nothing was saved. Look at the cause; the same may be delivered again."


def save(host: Host, catalogue: AnyCatalogue, envelope: Envelope, change: SourceChange) -> Saved:
    """Deliver ``change`` under ``envelope``. Raises Refusal with a SaveReason, or what ``change.apply`` refuses."""
    host.require_open()
    return _Delivery(host, catalogue, envelope, change, envelope.digest(change.intent)).run()


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A write whose result is unknown, made ``onto`` a revision. ``image``: the document that a source-only one would
    have left; None if that is what was there before, since then somebody else's empty save looks the same."""

    arm: Arm
    onto: int
    image: Mapping[str, Any] | None = None

    def shows_in(self, loaded: Loaded) -> bool:
        return self.image is not None and _same_image(self.image, loaded.source)

    def may_have_landed(self, loaded: Loaded) -> bool:
        """Or may land yet. A transaction leaves a receipt, and cannot land on a document that has moved on."""
        return self.arm is Arm.SOURCE_ONLY or loaded.version == self.onto


@dataclass
class _Delivery:
    """``unanswered``: the last write of this delivery that got no answer."""

    host: Host
    catalogue: AnyCatalogue
    envelope: Envelope
    change: SourceChange
    digest: str
    failed: list[Cause] = field(default_factory=list)
    unanswered: _Unanswered | None = None

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    def run(self) -> Saved:
        loaded = self.envelope.loaded
        while True:
            with self._turn() as waited:
                if loaded is None or waited:  # what was read before a wait, the one ahead may have changed
                    loaded = self._load_again()
                answer = self._once(loaded)
            if isinstance(answer, Saved):
                return answer
            self.failed.append(answer)
            back_off(len(self.failed))
            loaded = None

    def _turn(self) -> AbstractContextManager[bool]:
        if self.host.includes(self.envelope.project):
            return self.host.turns.turn(self.envelope.project)
        return nullcontext(False)

    def _once(self, loaded: Loaded) -> Saved | Cause:
        """Look, decide, and write if that is the answer. Raises Refusal for every other answer than saved."""
        with self._no_false_no(loaded):
            arm = choose(included=self.host.includes(self.envelope.project), control=loaded.control)
        answer = decide(self._situation(arm, loaded))
        if answer is Answer.SAVED:
            return self._found(arm, loaded)
        if answer is not Answer.WRITE:
            raise self._refusal(answer, loaded)
        with self._no_false_no(loaded):
            if len(self.failed) >= SAVE_ATTEMPTS_MAX:
                raise Refusal(SaveReason.AttemptsExhausted, self.envelope.operation_id, state=self._state(loaded))
            outcome = self._attempt(arm, loaded)
        if isinstance(outcome, Committed):
            return self._saved(arm, outcome)
        telemetry.count("saves.failed_attempts", cause=outcome, arm=arm)
        return outcome

    def _situation(self, arm: Arm, loaded: Loaded) -> Situation:
        if loaded.version == self.envelope.expected:
            position = Position.EXPECTED
        else:
            position = Position.NEWER if loaded.version > self.envelope.expected else Position.OLDER
        # While the gate is open, every host that may save leaves a receipt; behind a closed one, not every host does.
        gate_open = loaded.control is not None and loaded.control.mode is Mode.ENABLED
        return Situation(
            arm=arm,
            position=position,
            evidenced=gate_open and loaded.opening == self.envelope.opening,
            evidence=loaded.trail.evidence(self.envelope, self.digest) if loaded.trail else Evidence.NONE,
            unknown=self.unanswered is not None,
            image_matches=self.unanswered is not None and self.unanswered.shows_in(loaded),
        )

    @contextmanager
    def _no_false_no(self, loaded: Loaded) -> Iterator[None]:
        """Nothing is refused as not saved while a write of this delivery may be, or become, exactly that save."""
        try:
            yield
        except Refusal as refusal:
            if self.unanswered is None or not self.unanswered.may_have_landed(loaded):
                raise
            raise self._refusal(Answer.UNRESOLVED, loaded) from refusal

    def _attempt(self, arm: Arm, loaded: Loaded) -> Committed | Cause:
        remaining_s = PRE_WRITE_DEADLINE_S - (self.mongo.clock.monotonic() - loaded.read_at)
        if remaining_s <= 0:
            return Cause.LATE
        with pymongo.timeout(remaining_s):
            if arm is Arm.SOURCE_ONLY:
                return self._write_source(loaded)
            return self._write_with_statistics(loaded)

    def _write_source(self, loaded: Loaded) -> Committed | Cause:
        fields = self.change.apply(loaded.source, loaded.context, self.envelope).fields
        now = self.mongo.clock.mongo_now()
        try:
            written = self.mongo.collection(self.catalogue.source_collection).find_one_and_update(
                queries.source_guard(self.envelope, loaded.version)
                | queries.before_deadline(loaded.now, PRE_WRITE_DEADLINE_S, now),
                queries.source_update(fields, now),
                projection={"Audit.Version": 1},
                return_document=ReturnDocument.AFTER,
            )
        except PyMongoError as error:
            if not may_have_applied(error):
                raise Fault("the save was not accepted by the server", remedy=LOOK_AT_THE_CAUSE) from error
            self.unanswered = _Unanswered(Arm.SOURCE_ONLY, loaded.version, _image(loaded, fields))
            return Cause.UNKNOWN
        return Committed(loaded.version + 1) if written else Cause.SOURCE

    def _write_with_statistics(self, loaded: Loaded) -> Committed | Cause:
        attempt = Attempt(self.envelope, self.change, loaded.source, self.digest)
        progress = Progress()
        try:
            return transact(
                self.mongo,
                lambda session: commit(self.host, self.catalogue, session, attempt, progress),
                reruns_max=0,  # every rerun is an attempt: the document must be looked at again first
            )
        except Preempted as preempted:
            raise self._refusal(Answer.VERSION_STALE, loaded) from preempted
        except Overtaken:
            return progress.cause
        except Refusal as refusal:
            if refusal.reason is MongoReason.Contended:
                return progress.cause
            if refusal.reason is MongoReason.CommitOutcomeUnknown:
                self.unanswered = _Unanswered(Arm.TRANSACTIONAL, loaded.version)
                return Cause.UNKNOWN
            raise
        except PyMongoError as error:
            if isinstance(error, ConnectionFailure | ExecutionTimeout):
                return progress.cause  # before the commit was sent: the transaction is not committed
            raise Fault("the save was not accepted by the server", remedy=LOOK_AT_THE_CAUSE) from error

    def _load_again(self) -> Loaded:
        try:
            return load_again(self.mongo, self.catalogue, self.envelope)
        except (PyMongoError, Refusal) as error:
            if self.unanswered is not None:
                raise Refusal(
                    SaveReason.StatisticsOperationUnresolved, "the server cannot be asked what became of the write"
                ) from error
            if isinstance(error, Refusal):
                raise
            raise Fault("the document cannot be read", remedy="Check that the replica set has a primary.") from error

    def _saved(self, arm: Arm, committed: Committed) -> Saved:
        return Saved(
            operation_id=self.envelope.operation_id,
            namespace=self.envelope.namespace,
            arm=arm,
            duplicate=False,
            leaves_receipt=arm is Arm.TRANSACTIONAL,
            revision_after=committed.revision_after,
            failed_attempts=tuple(self.failed),
            further=committed.further,
        )

    def _found(self, arm: Arm, loaded: Loaded) -> Saved:
        """Committed before this look: by this delivery if its result was unknown, by an earlier one otherwise."""
        receipt = loaded.trail.receipt_of(self.envelope) if loaded.trail else None
        return Saved(
            operation_id=self.envelope.operation_id,
            namespace=self.envelope.namespace,
            arm=arm,
            duplicate=self.unanswered is None,
            leaves_receipt=receipt is not None,
            revision_after=receipt.committed_source_after_revision if receipt else loaded.version,
            failed_attempts=tuple(self.failed),
            further=None,
        )

    def _refusal(self, answer: Answer, loaded: Loaded) -> Refusal:
        reason = {
            Answer.DIGEST_MISMATCH: SaveReason.DigestMismatch,
            Answer.VERSION_STALE: SaveReason.VersionStale,
            Answer.UNRESOLVED: SaveReason.StatisticsOperationUnresolved,
        }[answer]
        return Refusal(reason, self.envelope.operation_id, state=self._state(loaded))

    def _state(self, loaded: Loaded) -> dict[str, Any]:
        return {
            "expected": self.envelope.expected,
            "revision": loaded.version,
            "failedAttempts": [cause.value for cause in self.failed],
        }


def may_have_applied(error: PyMongoError) -> bool:
    """Whether a single write that ended so may have been, or may yet be, applied."""
    return error.timeout or isinstance(error, ConnectionFailure | WriteConcernError | ExecutionTimeout)


def _image(loaded: Loaded, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if _same_image({**loaded.source, **fields}, loaded.source):
        return None
    return {**loaded.source, **fields, "Audit": {**loaded.source["Audit"], "Version": loaded.version + 1}}


def _same_image(image: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Equal but for the time of writing, which only the server knows."""
    normal: dict[str, Any] = bson.decode(bson.encode(image, codec_options=_CODEC), codec_options=_CODEC)
    return _without_time(normal) == _without_time(stored)


def _without_time(document: Mapping[str, Any]) -> dict[str, Any]:
    audit = {key: value for key, value in document["Audit"].items() if key != "LastModified"}
    return {**document, "Audit": audit}
