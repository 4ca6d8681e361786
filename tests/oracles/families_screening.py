"""The screening families counted one study at a time over plain dictionaries: naive on purpose, sharing no code.

Each takes stored studies and the stored project, and returns counters per declared scope. Zero counters are absent.
Whether reservations count (``tracked``) makes no difference here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.oracles.project_screening import class_of, project_screening

Studies = Iterable[Mapping[str, Any]]
Scopes = dict[str, dict[str, int]]


def whole_project(studies: Studies, project: Mapping[str, Any], tracked: bool = True) -> Scopes:
    return {"project": project_screening(studies, project["AgreementThreshold"])}


def membership_screening(studies: Studies, project: Mapping[str, Any], tracked: bool = True) -> Scopes:
    threshold = project["AgreementThreshold"]
    counted: Scopes = {}
    studies = list(studies)
    for membership in project["Memberships"]:
        member = membership["InvestigatorId"]
        mine: dict[str, int] = {}
        for study in studies:
            decision = _decision_of(member, study)
            if decision is True:
                _one_more(mine, "Screened")
                _one_more(mine, "Included")
            elif decision is False:
                _one_more(mine, "Screened")
                _one_more(mine, "Excluded")
            elif _class_of(study, threshold) in {"Included", "Excluded"}:
                _one_more(mine, "Unavailable")
            else:
                _one_more(mine, "Available")
        counted["member/" + str(member)] = mine
    return counted


def reviewer_screening(studies: Studies, project: Mapping[str, Any], tracked: bool = True) -> Scopes:
    threshold = project["AgreementThreshold"]
    counted: Scopes = {}
    studies = list(studies)
    for membership in project["Memberships"]:
        member = membership["InvestigatorId"]
        mine: dict[str, int] = {}
        for study in studies:
            decision = _decision_of(member, study)
            if decision is None:
                continue
            said = "Included" if decision else "Excluded"
            outcome = _class_of(study, threshold)
            _one_more(mine, "Decisions")
            _one_more(mine, said)
            if outcome not in {"Included", "Excluded"}:
                _one_more(mine, "Open")
            elif outcome == said:
                _one_more(mine, "Agreed")
            else:
                _one_more(mine, "Overruled")
        counted["member/" + str(member)] = mine
    return counted


def search_population(studies: Studies, project: Mapping[str, Any], tracked: bool = True) -> Scopes:
    counted: Scopes = {}
    studies = list(studies)
    for search in project["Searches"]:
        mine: dict[str, int] = {}
        for study in studies:
            if study.get("SearchId") == search["Id"]:
                _one_more(mine, "Studies")
        counted["search/" + str(search["Id"])] = mine
    return counted


ORACLES: dict[str, Callable[..., Scopes]] = {
    "ProjectScreening": whole_project,
    "MembershipScreening": membership_screening,
    "ReviewerScreening": reviewer_screening,
    "SearchPopulation": search_population,
}


def _one_more(counters: dict[str, int], key: str) -> None:
    counters[key] = counters.get(key, 0) + 1


def _decision_of(person: Any, study: Mapping[str, Any]) -> bool | None:
    for screening in study.get("Screenings") or []:
        if screening["InvestigatorId"] == person:
            return bool(screening["Included"])
    return None


def _class_of(study: Mapping[str, Any], threshold: Mapping[str, Any]) -> str:
    n = 0
    i = 0
    for screening in study.get("Screenings") or []:
        n = n + 1
        if screening["Included"]:
            i = i + 1
    return class_of(n, i, threshold["MinScreenings"], threshold["AgreementRatio"])
