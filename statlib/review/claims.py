"""Claiming a place on a stage of a study: who is admitted, and what the update does. Pure, and the writer of it.

The update mirrors ``annotation.tallies_after`` on the claimed stage, in the server's language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from statlib.review.catalogue import REVIEW
from statlib.review.documents import InclusionClass, Project, SessionStatus, Stage, StageKind, Study, Tally
from statlib.review.namespaces import ANNOTATION_NAMESPACE
from statlib.review.stages import stage_of
from statlib.review.transitions import Kind
from statlib.statistics.catalogue import Document, Pipeline
from statlib.statistics.claim_entries import ClaimTransition
from statlib.statistics.claims import claim
from statlib.statistics.documents import TrackingMode
from statlib.statistics.hosts import Host
from statlib.statistics.outcomes import Saved
from statlib.statistics.submissions import Stream


@dataclass(frozen=True, slots=True)
class PlaceClaim:
    """One investigator's claim of a place on one stage of one study. ``enforce_capacity``: not beyond its target."""

    project: UUID
    study: UUID
    investigator: UUID
    stage: UUID
    enforce_capacity: bool = True

    @property
    def stream(self) -> Stream:
        name = f"claim:{self.study}:{self.investigator}:{self.stage}"
        return Stream(ANNOTATION_NAMESPACE, name, self.project, self.study, self.investigator, self.stage)

    def admission(self, context: Document, tracking: TrackingMode) -> Mapping[str, Any]:
        """Refuses StageUnknown."""
        stage = stage_of(Project.from_bson(context), self.stage)
        conditions: list[dict[str, Any]] = [self._nothing_of_ones_own(stage)]
        if stage.kind is StageKind.ANNOTATION:
            conditions.append({"InclusionInfo.Class": InclusionClass.INCLUDED.value})
        if self.enforce_capacity:
            conditions.append({"$expr": {"$lt": [allocated(stage, tracking), stage.session_count_target]}})
        return {"$and": conditions}

    def _nothing_of_ones_own(self, stage: Stage) -> dict[str, Any]:
        own = {"StageId": self.stage, "InvestigatorId": self.investigator}
        conditions: dict[str, Any] = {
            "Sessions": {"$not": {"$elemMatch": own}},
            "SlotReservations": {"$not": {"$elemMatch": own}},
        }
        if stage.kind is StageKind.SCREENING:
            conditions["Screenings"] = {"$not": {"$elemMatch": {"InvestigatorId": self.investigator}}}
        return conditions

    def stages(self, now: Any) -> Pipeline:
        """Reserve; give the stage a tally if it has none; count it anew."""
        place = {"StageId": self.stage, "InvestigatorId": self.investigator, "AtUtc": now}
        tallies, none_yet = _array("$Tallies"), {"$literal": [Tally(stage_id=self.stage).to_bson()]}
        with_one = {
            "$concatArrays": [tallies, {"$cond": [{"$in": [self.stage, _array("$Tallies.StageId")]}, [], none_yet]}]
        }
        counted = {"$cond": [_is_of(self.stage), {"$mergeObjects": ["$$this", tally(self.stage)]}, "$$this"]}
        return [
            {"$set": {"SlotReservations": {"$concatArrays": [_array("$SlotReservations"), [place]]}}},
            {"$set": {"Tallies": with_one}},
            {"$set": {"Tallies": {"$map": {"input": "$Tallies", "in": counted}}}},
        ]

    def transition(self) -> ClaimTransition:
        """Of the study as the claim meets it: its profile, and the stage. Reads nothing that may be absent or of
        another type without asking first."""
        tally = {"$first": {"$filter": {"input": _list("$Tallies"), "cond": _is_of(self.stage)}}}
        sessions = {"$filter": {"input": _list("$Sessions"), "cond": _is_of(self.stage)}}
        reservations = {"$filter": {"input": _list("$SlotReservations"), "cond": _is_of(self.stage)}}
        included = {"$filter": {"input": _list("$Screenings"), "cond": {"$eq": ["$$this.Included", True]}}}
        return ClaimTransition(
            Kind.ANNOTATION_RESERVATION_CLAIM,
            {
                "N": {"$size": _list("$Screenings")},
                "I": {"$size": included},
                "StageId": {"$literal": self.stage},
                "InvestigatorId": {"$literal": self.investigator},
                "Tally": {"$let": {"vars": {"tally": tally}, "in": {"$cond": ["$$tally", _counts("$$tally"), None]}}},
                "Sessions": {"$map": {"input": sessions, "in": _profile("$$this")}},
                "Reservations": {"$map": {"input": reservations, "in": "$$this.InvestigatorId"}},
            },
        )

    def held_in(self, source: Document) -> bool:
        own = (self.stage, self.investigator)
        return any((r.stage_id, r.investigator_id) == own for r in Study.from_bson(source).slot_reservations)


def allocated(stage: Stage, tracking: TrackingMode) -> dict[str, Any]:
    """Places taken on a stage of a study: as its tally says, if it has one, and on a screening stage its decisions."""
    taken = "TotalAllocated" if tracking is TrackingMode.TRACKED else "NCS"
    known = {"$first": {"$filter": {"input": _array("$Tallies"), "cond": _is_of(stage.id)}}}
    places = {"$let": {"vars": {"tally": known}, "in": {"$ifNull": [f"$$tally.{taken}", 0]}}}
    decisions = {"$size": _array("$Screenings")} if stage.kind is StageKind.SCREENING else 0
    return {"$add": [places, decisions]}


def tally(stage: UUID) -> dict[str, Any]:
    """``annotation.tally_of`` as an expression, over the sessions and reservations of the document."""
    here = {"$filter": {"input": _array("$Sessions"), "cond": _is_of(stage)}}
    candidates = {"$filter": {"input": "$$here", "cond": {"$not": ["$$this.Reconciliation"]}}}
    reconciliations = {"$filter": {"input": "$$here", "cond": "$$this.Reconciliation"}}
    reserved = {"$size": {"$filter": {"input": _array("$SlotReservations"), "cond": _is_of(stage)}}}
    counted = {
        "NCS": {"$size": "$$candidates"},
        "NCCS": {"$size": _completed("$$candidates")},
        "RS": {"$gt": [{"$size": "$$reconciliations"}, 0]},
        "RC": {"$gt": [{"$size": _completed("$$reconciliations")}, 0]},
        "Reservations": "$$reserved",
        "TotalAllocated": {"$add": [{"$size": "$$candidates"}, "$$reserved"]},
        "TotalEngaged": {
            "$add": [{"$size": "$$candidates"}, "$$reserved", {"$min": [1, {"$size": "$$reconciliations"}]}]
        },
    }
    sorted_out = {"candidates": candidates, "reconciliations": reconciliations, "reserved": reserved}
    return {"$let": {"vars": {"here": here}, "in": {"$let": {"vars": sorted_out, "in": counted}}}}


def _completed(sessions: str) -> dict[str, Any]:
    return {"$filter": {"input": sessions, "cond": {"$eq": ["$$this.Status", SessionStatus.COMPLETED.value]}}}


def _is_of(stage: UUID) -> dict[str, Any]:
    return {"$eq": ["$$this.StageId", stage]}


def _counts(tally: str) -> dict[str, str]:
    return {name: f"{tally}.{name}" for name in ("NCS", "NCCS", "RS", "RC", "Reservations")}


def _profile(session: str) -> dict[str, Any]:
    return {
        "Id": f"{session}.Id",
        "InvestigatorId": f"{session}.InvestigatorId",
        "Completed": {"$eq": [f"{session}.Status", SessionStatus.COMPLETED.value]},
        "Reconciliation": {"$eq": [f"{session}.Reconciliation", True]},
    }


def _list(path: str) -> dict[str, Any]:
    return {"$cond": [{"$isArray": path}, path, []]}


def _array(path: str) -> dict[str, Any]:
    return {"$ifNull": [path, []]}


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Takes places on stages in one project, through ``host``. They are let go by ``ReservationWriter``, and by the
    holder's own save on the stage."""

    host: Host
    project: UUID

    def claim(self, study: UUID, investigator: UUID, stage: UUID, *, enforce_capacity: bool = True) -> Saved | None:
        """Take a place, or None: the investigator has a session, a place or (on a screening stage) a decision there
        already, the study is not included (on an annotation stage), or no place is left. Then nothing was written.

        Of two who claim the last place at once exactly one gets it. Raises Refusal: SourceNotFound, ProjectNotFound,
        StageUnknown, GateSkew, AttemptsExhausted (nothing was written), StatisticsOperationUnresolved (nobody can
        know: open the study and look).
        """
        wanted = PlaceClaim(self.project, study, investigator, stage, enforce_capacity)
        return claim(self.host, REVIEW, wanted)
