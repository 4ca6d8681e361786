"""One public annotation export (``hardwicke2023_transparency``), counted from its raw files with pandas alone.

Invariant: nothing of statlib is imported, loaders least of all, so that an agreement of the two says something. Which
reconciled column belongs to which question is written down here by hand, from the export's own codebook. The notebook
``statistics_explorer`` and the tests hold served counters against ``families``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

COLUMNS = {
    "open_access_status": "Q01", "eligible_empirical": "Q03", "research_design": "Q04", "prereg_statement": "Q05",
    "prereg_access_method": "Q08", "prereg_access_status": "Q09", "data_statement": "Q10", "data_access_method": "Q13",
    "data_access_status": "Q14", "materials_statement": "Q15", "materials_access_method": "Q18",
    "materials_access_status": "Q19", "analysis_statement": "Q20", "analysis_access_method": "Q23",
    "analysis_access_status": "Q24", "funding_statement": "Q25", "coi_statement": "Q28",
}  # fmt: skip
DASH = r"\s*—\s*"  # the reconciled file has a space for it
STAGE = "stage/Annotation"
INCLUDERS = ("Simulated reviewer 1", "Simulated reviewer 2")  # who include every annotated article, by simulation
RECONCILER = "Reconciler (not named)"
TARGET = 2  # candidate sessions that an article wants
FILES = (
    "answers_long.csv.gz",
    "reconciled_wide.csv",
    "search_field_wide.csv",
    "search_prominent.csv",
    "sessions.csv",
)
"""Everything that is read."""
FREE_TEXT = ("Q06", "Q11", "Q16", "Q21", "Q26", "Q29", "Q31")
TRUTH = {"yes": "true", "no": "false"}


def filed(folder: Path) -> pd.DataFrame:
    """Every session as filed: ``session_id``, ``at``, ``coder``, ``article_id``"""
    sessions = pd.read_csv(folder / "sessions.csv", dtype=str, keep_default_na=False)
    return sessions.assign(at=pd.to_datetime(sessions["submitted_at"], format="%m/%d/%Y %H:%M:%S", utc=True))


def standing(folder: Path) -> pd.DataFrame:
    """The sessions that count: not excluded, and of a coder's several on one article the last"""
    sessions = filed(folder)
    counted = sessions[~sessions["coder"].str.contains("exclude")].sort_values("at")
    return counted.drop_duplicates(["coder", "article_id"], keep="last")


def candidate_answers(folder: Path) -> pd.DataFrame:
    """``article_id``, ``coder``, ``question_id``, ``answer`` of the sessions that count"""
    answers = pd.read_csv(folder / "answers_long.csv.gz", dtype=str, keep_default_na=False)
    answers = answers[answers["session_id"].isin(standing(folder)["session_id"])]
    return answers.assign(answer=answers["answer"].str.strip())[["article_id", "coder", "question_id", "answer"]]


def reconciled_answers(folder: Path) -> pd.DataFrame:
    """``article_id``, ``question_id``, ``answer`` that were agreed on, spelt as the coders spelt them"""
    wide = pd.read_csv(folder / "reconciled_wide.csv", dtype=str, keep_default_na=False)
    renamed = wide.rename(columns={f"{name}_agreed": question for name, question in COLUMNS.items()})
    long = renamed.melt("article_id", list(COLUMNS.values()), "question_id", "answer")
    long = long[~long["answer"].isin(["", "NA"])]
    dashed = candidate_answers(folder)[["question_id", "answer"]].drop_duplicates()
    dashed = dashed[dashed["answer"].str.contains(DASH)]
    dashed["lost"] = dashed["answer"].str.replace(DASH, " ", regex=True)
    merged = long.merge(dashed, left_on=["question_id", "answer"], right_on=["question_id", "lost"], how="left")
    return merged.assign(answer=merged["answer_y"].fillna(merged["answer_x"]))[["article_id", "question_id", "answer"]]


def reconciled_articles(folder: Path) -> set[str]:
    return set(pd.read_csv(folder / "reconciled_wide.csv", dtype=str)["article_id"])


def articles(folder: Path) -> set[str]:
    """Every article that a search found or a coder annotated"""
    files = ("search_field_wide.csv", "search_prominent.csv", "sessions.csv")
    return {str(article) for name in files for article in pd.read_csv(folder / name, dtype=str)["article_id"]}


def question_answers(folder: Path) -> dict[str, int]:
    """What the family QuestionAnswers counts, by question of the export. Zero counters are absent."""
    every = pd.concat([candidate_answers(folder), reconciled_answers(folder)])
    counters = {f"{question}/Answered": int(n) for question, n in every["question_id"].value_counts().items()}
    spelt = every["answer"].str.lower().isin(TRUTH)
    yes_or_no = spelt.groupby(every["question_id"]).all()
    every["answer"] = every["answer"].where(~every["question_id"].map(yes_or_no), every["answer"].str.lower())
    same = every.groupby(["question_id", "answer"]).size().reset_index(name="n")
    for question, answer, n in zip(same["question_id"], same["answer"], same["n"], strict=True):
        if question in FREE_TEXT:
            key = f"{question}/Text"
        elif yes_or_no[question]:
            key = f"{question}/Value/{TRUTH[answer]}"
        else:
            key = f"{question}/Value/{answer}"
        counters[key] = counters.get(key, 0) + int(n)
    return counters


Scopes = dict[str, dict[str, int]]


def families(folder: Path) -> dict[str, Scopes]:
    """{family: {scope: counters}} of the whole review in the end. People, searches, stage and questions by name."""
    candidates = standing(folder)
    per_article = candidates.groupby("article_id").size()
    reconciled = reconciled_articles(folder)
    included, studies = len(per_article), len(articles(folder))
    members = [*sorted(candidates["coder"].unique()), RECONCILER, *INCLUDERS]
    started = candidates["coder"].value_counts()
    enough = set(per_article.index[per_article >= TARGET])
    counted: dict[str, Scopes] = {
        "ProjectScreening": {
            "project": {
                "Studies": studies,
                "Profile/2:2": included,
                "Profile/0:0": studies - included,
                "Class/Included": included,
                "Class/Unscreened": studies - included,
                "Decisions": 2 * included,
                "Inclusions": 2 * included,
            }
        },
        "MembershipScreening": {
            f"member/{who}": {
                "Available": studies - included,
                **({"Screened": included, "Included": included} if who in INCLUDERS else {"Unavailable": included}),
            }
            for who in members
        },
        "ReviewerScreening": {
            f"member/{who}": dict.fromkeys(("Decisions", "Included", "Agreed"), included) if who in INCLUDERS else {}
            for who in members
        },
        "StageAnnotation": {
            STAGE: {
                "Population/Included": included,
                "Population/Undecided": studies - included,
                **{f"Tally/Included/{n}:{n}": int(number) for n, number in per_article.value_counts().items()},
                "Sessioned/Included/Started": included,
                "Sessioned/Included/Completed": included,
                "Sessioned/Included/ReconciliationStarted": len(reconciled),
                "Sessioned/Included/ReconciliationCompleted": len(reconciled),
            }
        },
        "MembershipStageAnnotation": {
            f"{STAGE}/member/{who}": _done(int(started.get(who, 0)), len(reconciled) if who == RECONCILER else 0)
            for who in members
        },
        "DomainReconciliation": {
            STAGE: {
                "Included/Reconciled": len(reconciled),
                "Included/Awaiting": len(enough - reconciled),
                "Included/NotReady": len(set(per_article.index) - enough - reconciled),
            }
        },
        "ReviewerAnnotation": {
            f"{STAGE}/member/{who}": _left(set(candidates["article_id"][candidates["coder"] == who]), enough, included)
            for who in members
        },
        "QuestionAnswers": {"project": question_answers(folder)},
        "SearchPopulation": _searches(folder),
    }
    return {family: {scope: _filled(of) for scope, of in scopes.items()} for family, scopes in counted.items()}


def _done(sessions: int, reconciliations: int) -> dict[str, int]:
    return {
        "Included/Started": sessions,
        "Included/Completed": sessions,
        "Included/ReconciliationStarted": reconciliations,
        "Included/ReconciliationCompleted": reconciliations,
    }


def _left(own: set[str], enough: set[str], included: int) -> dict[str, int]:
    unavailable = len(enough - own)
    return {"Completed": len(own), "Unavailable": unavailable, "Available": included - len(own) - unavailable}


def _searches(folder: Path) -> Scopes:
    """An article that both searches found is the first one's."""
    found: set[str] = set()
    counted: Scopes = {}
    for name in ("search_field_wide", "search_prominent"):
        ids = set(pd.read_csv(folder / f"{name}.csv", dtype=str)["article_id"])
        counted[f"search/{name}"] = {"Studies": len(ids - found)}
        found |= ids
    return counted


def _filled(counters: dict[str, int]) -> dict[str, int]:
    return {key: value for key, value in counters.items() if value}
