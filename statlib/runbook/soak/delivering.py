"""One delivery of one piece of work, through the writer that it belongs to, and what the work amounts to."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from statlib.kernel.refusals import Reason, Refusal, RefusalKind
from statlib.review.annotation_writer import SessionChange
from statlib.review.catalogue import REVIEW
from statlib.review.claims import ClaimWriter, PlaceClaim
from statlib.review.loading.replay import EventWriter
from statlib.review.loading.review import AnnotationEvent, DecisionEvent
from statlib.review.namespaces import ANNOTATION_NAMESPACE, SCREENING_NAMESPACE
from statlib.review.reservation_writer import ReservationWriter
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningChange
from statlib.runbook.soak.work import Act, PlaceAct
from statlib.statistics import queries
from statlib.statistics.arms import Arm
from statlib.statistics.envelopes import Envelope
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import FurtherOperation, Saved, SourceChange, SourceWrite
from statlib.statistics.sources import load_with_trail
from statlib.statistics.trail import Kept, Trail


class SoakReason(Reason):
    """Why the soak submits something again that its writer did not refuse."""

    NotAdmitted = (RefusalKind.CONFLICT, "The soak asks again: the study's class or its places change with its edits.")


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Opens and delivers the work of one project through ``host``."""

    host: Host
    project: UUID

    def open(self, act: Act) -> Envelope | None:
        """The envelope of one submission; a claim has none. Refuses as the writers do."""
        if not isinstance(act, PlaceAct):
            return EventWriter(self.host, self.project).open(act)
        if act.taken:
            return None
        return ReservationWriter(self.host, self.project).open(act.study_id, act.investigator_id, act.stage_id)

    def deliver(self, act: Act, envelope: Envelope | None, *, again: bool) -> Saved:
        """Deliver, any number of times. ``again``: an earlier delivery of a claim got no answer.

        Refuses NotAdmitted, a claim that was not, and as the writers do.
        """
        if envelope is None:
            if not isinstance(act, PlaceAct):
                raise ValueError("only claims are delivered without an envelope")
            return self._claim(act, again=again)
        if isinstance(act, PlaceAct):
            return ReservationWriter(self.host, self.project).save(envelope)
        return EventWriter(self.host, self.project).save(envelope, act)

    def _claim(self, act: PlaceAct, *, again: bool) -> Saved:
        writer = ClaimWriter(self.host, self.project)
        taken = writer.claim(act.study_id, act.investigator_id, act.stage_id, enforce_capacity=act.enforce_capacity)
        taken = taken or (self._claimed_before(act) if again else None)
        if taken is None:
            raise Refusal(SoakReason.NotAdmitted, f"{act.investigator_id} on study {act.study_id}")
        return taken

    def _claimed_before(self, act: PlaceAct) -> Saved | None:
        """The claim whose answer was lost, by its trail. A later one of the same place is only made after a release,
        which waits for this one."""
        stream = PlaceClaim(self.project, act.study_id, act.investigator_id, act.stage_id).stream
        streams = queries.Streams(stream.namespace, (stream.name,))
        trail = load_with_trail(self.host.mongo, REVIEW, self.project, act.study_id, streams).trail or Trail()
        met = trail.latest_of(stream.namespace, streams.names)
        trace = trail.of((stream.namespace, f"{stream.name}:{met}"))
        if trace is None:
            return None
        arm = Arm.TRANSACTIONAL if trace.kept is Kept.RECEIPT else Arm.FOLD
        return Saved(trace.operation_id, stream.namespace, arm, True, trace.leaves_receipt, met + 1, ())


def namespace_of(act: Act) -> str:
    return SCREENING_NAMESPACE if isinstance(act, DecisionEvent) else ANNOTATION_NAMESPACE


def changes_nothing(act: Act, envelope: Envelope | None) -> bool:
    """Whether the study, as it was opened, already says what is asked for."""
    if envelope is None or envelope.loaded is None:
        return False
    source = envelope.loaded.source
    if isinstance(act, DecisionEvent):
        own = next((s["Included"] for s in source["Screenings"] if s["InvestigatorId"] == act.investigator_id), None)
        return bool(own == (None if act.decision is Decision.RETRACT else act.decision is Decision.INCLUDE))
    write = _write_of(act, envelope)
    return write is not None and all(source.get(name) == value for name, value in write.fields.items())


def further_of(act: Act, envelope: Envelope | None, saved: Saved) -> tuple[FurtherOperation, ...]:
    """What the same write did besides. Where an earlier delivery did it, what it would do to the study as opened."""
    if saved.further is not None:
        return saved.further
    write = _write_of(act, envelope)
    return () if write is None else write.further


def _write_of(act: Act, envelope: Envelope | None) -> SourceWrite | None:
    if envelope is None or envelope.loaded is None:
        return None
    change: SourceChange
    if isinstance(act, DecisionEvent):
        change = ScreeningChange(act.decision, act.at)
    elif isinstance(act, AnnotationEvent) and envelope.part is not None:
        change = SessionChange(act.act, envelope.part, act.answers, act.at)
    else:
        return None
    try:
        return change.apply(envelope.loaded.source, envelope.loaded.context, envelope)
    except Refusal:
        return None
