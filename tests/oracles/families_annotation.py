"""The annotation families counted one study at a time over plain dictionaries: naive on purpose, sharing no code.

Each takes stored studies and the stored project, and returns counters per declared scope. Zero counters are absent.
``tracked``: whether reservations count towards the allocation of a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.oracles.project_screening import class_of

Document = Mapping[str, Any]
Studies = Iterable[Document]
Scopes = dict[str, dict[str, int]]


def stage_annotation(studies: Studies, project: Document, tracked: bool = True) -> Scopes:
    counted: Scopes = {}
    studies = list(studies)
    for stage in project["Stages"]:
        mine: dict[str, int] = {}
        for study in studies:
            c = _inclusion_of(study, project)
            _more(mine, "Population/" + c)
            tally = _tally_on(stage["Id"], study)
            if tally is None:
                continue
            _more(mine, "Tally/" + c + "/" + str(tally["NCS"]) + ":" + str(tally["NCCS"]))
            if tally["NCS"] >= 1:
                _more(mine, "Sessioned/" + c + "/Started")
            if tally["NCCS"] >= 1:
                _more(mine, "Sessioned/" + c + "/Completed")
            if tally["RS"]:
                _more(mine, "Sessioned/" + c + "/ReconciliationStarted")
            if tally["RC"]:
                _more(mine, "Sessioned/" + c + "/ReconciliationCompleted")
            if tally["Reservations"] >= 1:
                _more(mine, "Reserved/" + c)
                _more(mine, "Reservations/" + c, tally["Reservations"])
        counted["stage/" + str(stage["Id"])] = mine
    return counted


def membership_stage_annotation(studies: Studies, project: Document, tracked: bool = True) -> Scopes:
    members = [membership["InvestigatorId"] for membership in project["Memberships"]]
    return annotation_of_people(studies, project, members)


def annotation_of_people(studies: Studies, project: Document, people: Iterable[Any]) -> Scopes:
    """What MembershipStageAnnotation counts of anybody, member or not, on the project's stages."""
    counted: Scopes = {}
    studies, people = list(studies), list(people)
    for stage in project["Stages"]:
        for person in people:
            mine: dict[str, int] = {}
            for study in studies:
                c = _inclusion_of(study, project)
                candidates = _sessions_of(person, stage["Id"], study, reconciliation=False)
                reconciliations = _sessions_of(person, stage["Id"], study, reconciliation=True)
                if candidates:
                    _more(mine, c + "/Started")
                if "Completed" in candidates:
                    _more(mine, c + "/Completed")
                if reconciliations:
                    _more(mine, c + "/ReconciliationStarted")
                if "Completed" in reconciliations:
                    _more(mine, c + "/ReconciliationCompleted")
                for reservation in study.get("SlotReservations") or []:
                    if reservation["StageId"] == stage["Id"] and reservation["InvestigatorId"] == person:
                        _more(mine, c + "/Reserved")
                        break
            counted["stage/" + str(stage["Id"]) + "/member/" + str(person)] = mine
    return counted


def domain_reconciliation(studies: Studies, project: Document, tracked: bool = True) -> Scopes:
    counted: Scopes = {}
    studies = list(studies)
    for stage in project["Stages"]:
        mine: dict[str, int] = {}
        for study in studies:
            tally = _tally_on(stage["Id"], study)
            if tally is None:
                continue
            if tally["RC"]:
                state = "Reconciled"
            elif tally["RS"]:
                state = "InProgress"
            elif tally["NCCS"] >= stage["SessionCountTarget"]:
                state = "Awaiting"
            else:
                state = "NotReady"
            _more(mine, _inclusion_of(study, project) + "/" + state)
        counted["stage/" + str(stage["Id"])] = mine
    return counted


def reviewer_annotation(studies: Studies, project: Document, tracked: bool = True) -> Scopes:
    counted: Scopes = {}
    studies = list(studies)
    for stage in project["Stages"]:
        for membership in project["Memberships"]:
            member = membership["InvestigatorId"]
            mine: dict[str, int] = {}
            for study in studies:
                if _inclusion_of(study, project) != "Included":
                    continue
                own = _sessions_of(member, stage["Id"], study, reconciliation=False)
                if "Completed" in own:
                    _more(mine, "Completed")
                elif own:
                    _more(mine, "InProgress")
                elif _allocation_on(stage["Id"], study, tracked) >= stage["SessionCountTarget"]:
                    _more(mine, "Unavailable")
                else:
                    _more(mine, "Available")
            counted["stage/" + str(stage["Id"]) + "/member/" + str(member)] = mine
    return counted


def question_answers(studies: Studies, project: Document, tracked: bool = True) -> Scopes:
    mine: dict[str, int] = {}
    for study in studies:
        for session in study.get("Sessions") or []:
            if session["Status"] == "Completed":
                for answer in session["Answers"]:
                    question = str(answer["QuestionId"])
                    _more(mine, question + "/Answered")
                    if answer["Key"] is None:
                        _more(mine, question + "/Text")
                    else:
                        _more(mine, question + "/Value/" + answer["Key"])
    return {"project": mine}


ORACLES: dict[str, Callable[[Studies, Document, bool], Scopes]] = {
    "StageAnnotation": stage_annotation,
    "MembershipStageAnnotation": membership_stage_annotation,
    "DomainReconciliation": domain_reconciliation,
    "ReviewerAnnotation": reviewer_annotation,
    "QuestionAnswers": question_answers,
}


def tally_of(stage: Any, study: Document) -> dict[str, Any]:
    """The tally that a study must hold of a stage, recounted from its sessions and reservations."""
    tally = {"StageId": stage, "NCS": 0, "NCCS": 0, "RS": False, "RC": False, "Reservations": 0}
    for session in study["Sessions"]:
        if session["StageId"] == stage:
            done = session["Status"] == "Completed"
            if session["Reconciliation"]:
                tally["RS"] = True
                tally["RC"] = tally["RC"] or done
            else:
                tally["NCS"] += 1
                tally["NCCS"] += 1 if done else 0
    for reservation in study["SlotReservations"]:
        if reservation["StageId"] == stage:
            tally["Reservations"] += 1
    tally["TotalAllocated"] = tally["NCS"] + tally["Reservations"]
    tally["TotalEngaged"] = tally["TotalAllocated"] + (1 if tally["RS"] else 0)
    return tally


def _more(counters: dict[str, int], key: str, weight: int = 1) -> None:
    counters[key] = counters.get(key, 0) + weight


def _inclusion_of(study: Document, project: Document) -> str:
    n = 0
    i = 0
    for screening in study.get("Screenings") or []:
        n = n + 1
        if screening["Included"]:
            i = i + 1
    threshold = project["AgreementThreshold"]
    found = class_of(n, i, threshold["MinScreenings"], threshold["AgreementRatio"])
    return found if found in {"Included", "Excluded"} else "Undecided"


def _tally_on(stage: Any, study: Document) -> Document | None:
    tallies: list[Document] = study.get("Tallies") or []
    for tally in tallies:
        if tally["StageId"] == stage:
            return tally
    return None


def _allocation_on(stage: Any, study: Document, tracked: bool) -> int:
    tally = _tally_on(stage, study)
    if tally is None:
        return 0
    return int(tally["TotalAllocated"] if tracked else tally["NCS"])


def _sessions_of(person: Any, stage: Any, study: Document, *, reconciliation: bool) -> list[str]:
    """The statuses of the person's sessions of one sort on a stage."""
    return [
        session["Status"]
        for session in study.get("Sessions") or []
        if session["InvestigatorId"] == person
        and session["StageId"] == stage
        and session["Reconciliation"] == reconciliation
    ]
