"""One save, whatever its arm: attempt, look, decide, at most three times.

What the caller hears is one of: saved (by this delivery or an earlier one), a typed no that wrote nothing, or
StatisticsOperationUnresolved where neither can be proved. An unknown result is always resolved by a fresh,
majority read before anything is written again, and resolving is not an attempt; nor is what a fold alone undid.
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
from statlib.statistics.bounds import FREE_RETRIES_MAX, PRE_WRITE_DEADLINE_S, SAVE_ATTEMPTS_MAX
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.coordinator import Attempt, Preempted, Progress, commit
from statlib.statistics.documents import Mode
from statlib.statistics.entries import Saver, entries_of
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.idempotency import Answer, Evidence, Position, Situation, decide
from statlib.statistics.outcomes import Cause, Committed, Saved, SourceChange, SourceWrite
from statlib.statistics.pending import FOLD_SEQUENCE, PENDING, Entry, appended
from statlib.statistics.reasons import SaveReason
from statlib.statistics.sources import Loaded, further_trail, load_again
from statlib.statistics.unit import Overtaken

_CODEC = bson.codec_options.CodecOptions[dict[str, Any]](
    uuid_representation=bson.binary.UuidRepresentation.STANDARD, tz_aware=True
)


_CONFLICTS = frozenset({Cause.SOURCE, Cause.STATISTICS})

LOOK_AT_THE_CAUSE = "Nothing was saved. Look at the cause; the same may be delivered again."


def save(host: Host, catalogue: AnyCatalogue, envelope: Envelope, change: SourceChange) -> Saved:
    """Deliver ``change`` under ``envelope``. Raises Refusal with a SaveReason, or what ``change.apply`` refuses."""
    host.require_open()
    return _Delivery(host, catalogue, envelope, change, envelope.digest(change.intent)).run()


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A write whose result is unknown, made ``onto`` a revision. ``evidenced``: it would have left evidence.
    ``image``: the document that one without would have left; None if that is what was there before, since then
    somebody else's empty save looks the same."""

    onto: int
    evidenced: bool
    image: Mapping[str, Any] | None = None

    def shows_in(self, loaded: Loaded) -> bool:
        return self.image is not None and _same_image(self.image, loaded.source)

    def may_have_landed(self, loaded: Loaded) -> bool:
        """Or may land yet. One with evidence would be found, and cannot land on a document that has moved on."""
        return not self.evidenced or loaded.version == self.onto


@dataclass
class _Delivery:
    """``unanswered``: the last write of this delivery that got no answer. ``looked``: what it read last."""

    host: Host
    catalogue: AnyCatalogue
    envelope: Envelope
    change: SourceChange
    digest: str
    failed: list[Cause] = field(default_factory=list)
    unanswered: _Unanswered | None = None
    looked: Loaded | None = None
    last_arm: Arm = Arm.SOURCE_ONLY

    @property
    def mongo(self) -> Mongo:
        return self.host.mongo

    def run(self) -> Saved:
        loaded = self.looked = self.envelope.loaded
        while True:
            with self._turn() as waited:
                if loaded is None or waited:  # what was read before a wait, the one ahead may have changed
                    loaded = self._load_again()
                self._settle(loaded)
                answer = self._once(loaded)
            if isinstance(answer, Saved):
                return answer
            self.failed.append(answer)
            back_off(len(self.failed))
            loaded = None

    def _turn(self) -> AbstractContextManager[bool]:
        """Saves that fold do not collide over anything of the project: they need no queue."""
        last = self.looked.control if self.looked else None
        if (
            self.host.includes(self.envelope.project)
            and choose(included=True, control=last, fold=self._folds) is not Arm.FOLD
        ):
            return self.host.turns.turn(self.envelope.project)
        return nullcontext(False)

    @property
    def _folds(self) -> bool:
        return self.host.fold and self.catalogue.transitions is not None

    def _settle(self, loaded: Loaded) -> None:
        """Name what undid the last attempt, now that there was another look: a fold's doing is not charged."""
        before, self.looked = self.looked, loaded
        if not self.failed:
            return
        folded = before is not None and loaded.fold_sequence > before.fold_sequence
        if folded and self.failed[-1] in _CONFLICTS and self.failed.count(Cause.FOLD) < FREE_RETRIES_MAX:
            self.failed[-1] = Cause.FOLD
        telemetry.count("saves.failed_attempts", cause=self.failed[-1], arm=self.last_arm)

    def _once(self, loaded: Loaded) -> Saved | Cause:
        """Look, decide, and write if that is the answer. Raises Refusal for every other answer than saved."""
        with self._no_false_no(loaded):
            included = self.host.includes(self.envelope.project)
            arm = self.last_arm = choose(included=included, control=loaded.control, fold=self._folds)
        answer = decide(self._situation(arm, loaded))
        if answer is Answer.SAVED:
            return self._found(arm, loaded)
        if answer is not Answer.WRITE:
            raise self._refusal(answer, loaded)
        with self._no_false_no(loaded):
            if len(self.failed) - self.failed.count(Cause.FOLD) >= SAVE_ATTEMPTS_MAX:
                raise Refusal(SaveReason.AttemptsExhausted, self.envelope.operation_id, state=self._state(loaded))
            outcome = self._attempt(arm, loaded)
        if isinstance(outcome, Committed):
            return self._saved(arm, outcome)
        return outcome

    def _situation(self, arm: Arm, loaded: Loaded) -> Situation:
        return Situation(
            arm=arm,
            position=self._position(loaded),
            evidenced=self._evidenced(loaded),
            evidence=self._evidence(loaded),
            unknown=self.unanswered is not None,
            image_matches=self.unanswered is not None and self.unanswered.shows_in(loaded),
        )

    def _position(self, loaded: Loaded) -> Position:
        if loaded.version < self.envelope.expected:
            return Position.OLDER
        opened_at = self.envelope.fold_sequence
        folds = 0 if opened_at is None else loaded.fold_sequence - opened_at
        return Position.EXPECTED if loaded.version - self.envelope.expected == folds else Position.NEWER

    def _evidence(self, loaded: Loaded) -> Evidence:
        found = loaded.trail.evidence(self.envelope, self.digest) if loaded.trail else Evidence.NONE
        incomplete = loaded.control is not None and loaded.control.fold_quarantine_incomplete_since_utc is not None
        may_be_done = self.unanswered is not None or self.envelope.loaded is None
        if found is Evidence.NONE and incomplete and may_be_done:
            return Evidence.HIDDEN
        return found

    def _evidenced(self, loaded: Loaded) -> bool:
        """While the gate is open, every host that may save leaves evidence; behind a closed one, not every host does.

        Where saves fold, one that would change nothing counted leaves none, and a repeat may meet a document on which
        it would: so of this submission it must be known that it changed something, as it was opened.
        """
        control = loaded.control
        if control is None or control.mode is not Mode.ENABLED or loaded.opening != self.envelope.opening:
            return False
        if self.unanswered is not None and not self.unanswered.evidenced:
            return False
        return not control.fold_ever_enabled or self._has_effect_as_opened()

    def _has_effect_as_opened(self) -> bool:
        opened = self.envelope.loaded
        if opened is None or self.catalogue.transitions is None:
            return False
        try:
            write = self.change.apply(opened.source, opened.context, self.envelope)
        except Refusal:
            return True  # whoever delivered it then has heard the same, and nothing was saved
        return bool(self._entries(opened, write))

    def _entries(self, loaded: Loaded, write: SourceWrite) -> list[Entry]:
        saver = Saver.of(self.catalogue, self.host.families, loaded.context, loaded.fleet)
        return entries_of(saver, self.envelope, self.digest, loaded, write)

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
            match arm:
                case Arm.SOURCE_ONLY:
                    write = self.change.apply(loaded.source, loaded.context, self.envelope)
                    return self._write_document(loaded, write.fields, evidenced=False)
                case Arm.FOLD:
                    return self._write_folding(loaded)
                case Arm.TRANSACTIONAL:
                    return self._write_with_statistics(loaded)

    def _write_folding(self, loaded: Loaded) -> Committed | Cause:
        write = self.change.apply(loaded.source, loaded.context, self.envelope)
        entries = self._entries(loaded, write)
        rebased = self._position(loaded) is not Position.EXPECTED
        if rebased and (not entries or self._preempted(loaded, write)):
            raise self._refusal(Answer.VERSION_STALE, loaded)
        if not entries:
            return self._write_document(loaded, write.fields, evidenced=False)
        pending = appended(loaded.pending, entries, loaded.now)
        outcome = self._write_document(loaded, {**write.fields, PENDING: pending}, evidenced=True)
        if isinstance(outcome, Cause):
            return outcome
        fitted = pending["Overflow"] is None
        if not fitted:
            telemetry.count("pending_entries.overflowed", len(entries))
        return Committed(outcome.revision_after, write.further, leaves_receipt=fitted)

    def _preempted(self, loaded: Loaded, write: SourceWrite) -> bool:
        """Whether a further operation of this write has been done by itself since: then nothing can be saved under this
        envelope any more."""
        keys = [(one.namespace, one.operation_id) for one in write.further]
        if not keys:
            return False
        with self._asking():
            trail = further_trail(self.mongo, self.catalogue, self.envelope, loaded.pending, keys)
        return trail.any_of(keys) or self.envelope.expected <= max(trail.retired_through, trail.hidden_through)

    def _write_document(self, loaded: Loaded, fields: Mapping[str, Any], *, evidenced: bool) -> Committed | Cause:
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
            self.unanswered = _Unanswered(loaded.version, evidenced, None if evidenced else _image(loaded, fields))
            return Cause.UNKNOWN
        return Committed(loaded.version + 1) if written else Cause.SOURCE

    def _write_with_statistics(self, loaded: Loaded) -> Committed | Cause:
        rebased = self._position(loaded) is not Position.EXPECTED
        if rebased and loaded.control is not None and loaded.control.fold_ever_enabled:
            write = self.change.apply(loaded.source, loaded.context, self.envelope)
            if self._preempted(loaded, write):  # what is pending yet, the transaction's own receipts do not meet
                raise self._refusal(Answer.VERSION_STALE, loaded)
        attempt = Attempt(self.envelope, self.change, loaded.source, self.digest, rebased)
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
                self.unanswered = _Unanswered(loaded.version, evidenced=True)
                return Cause.UNKNOWN
            raise
        except PyMongoError as error:
            if isinstance(error, ConnectionFailure | ExecutionTimeout):
                return progress.cause  # before the commit was sent: the transaction is not committed
            raise Fault("the save was not accepted by the server", remedy=LOOK_AT_THE_CAUSE) from error

    def _load_again(self) -> Loaded:
        with self._asking():
            return load_again(self.mongo, self.catalogue, self.envelope)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around reads: what became of an unanswered write is not known where they fail."""
        try:
            yield
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
            leaves_receipt=committed.leaves_receipt,
            revision_after=committed.revision_after,
            failed_attempts=tuple(self.failed),
            further=committed.further,
        )

    def _found(self, arm: Arm, loaded: Loaded) -> Saved:
        """Committed before this look: by this delivery if its result was unknown, by an earlier one otherwise."""
        trace = loaded.trail.of((self.envelope.namespace, self.envelope.operation_id)) if loaded.trail else None
        after = trace.revision_after if trace else None
        return Saved(
            operation_id=self.envelope.operation_id,
            namespace=self.envelope.namespace,
            arm=arm,
            duplicate=self.unanswered is None,
            leaves_receipt=trace is not None and trace.leaves_receipt,
            revision_after=loaded.version if after is None else after,
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
    """Equal but for the time of writing, which only the server knows, and for what folds did."""
    normal: dict[str, Any] = bson.decode(bson.encode(image, codec_options=_CODEC), codec_options=_CODEC)
    return _as_saved(normal) == _as_saved(stored)


def _as_saved(document: Mapping[str, Any]) -> dict[str, Any]:
    audit = {key: value for key, value in document["Audit"].items() if key != "LastModified"}
    saves = document["Audit"]["Version"] - document.get(FOLD_SEQUENCE, 0)
    saved = {name: value for name, value in document.items() if name not in {PENDING, FOLD_SEQUENCE}}
    return {**saved, "Audit": {**audit, "Version": saves}}
