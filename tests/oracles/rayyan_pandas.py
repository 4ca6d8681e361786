"""What the exporting platform itself says in the end, read with pandas from its articles file alone.

Imports nothing of statlib, and reads neither the log nor anything that the loaders make.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

STATES = {"Included": True, "Excluded": False, "Maybe": None}
FILE = "records_final_state.csv"


def final_states(folder: Path) -> dict[tuple[str, str], bool | None]:
    """{(article, reviewer): included, or None for a maybe} for every pair that the platform shows a state of."""
    articles = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    reviewers = [column for column in articles.columns if column.startswith("reviewer")]
    long = articles.melt(id_vars="article_id", value_vars=reviewers, var_name="reviewer", value_name="state")
    long = long[long["state"] != ""]
    return {
        (str(article), str(reviewer)): STATES[str(state)]
        for article, reviewer, state in zip(long["article_id"], long["reviewer"], long["state"], strict=True)
    }


def project_screening_of_final_states(
    folder: Path, *, min_screenings: int = 2, agreement_ratio: float = 0.66
) -> dict[str, int]:
    """The ProjectScreening counters of the final states. Zero counters are absent."""
    articles = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    states = articles.filter(regex="^reviewer")
    i = (states == "Included").sum(axis=1)
    n = i + (states == "Excluded").sum(axis=1)
    classes = pd.Series("Conflict", index=articles.index)
    classes[(n - i) / n.where(n > 0) >= agreement_ratio] = "Excluded"
    classes[i / n.where(n > 0) >= agreement_ratio] = "Included"
    classes[n < min_screenings] = "InProgress"
    classes[n == 0] = "Unscreened"
    counters = {
        "Studies": len(articles),
        "Decisions": int(n.sum()),
        "Inclusions": int(i.sum()),
        "Exclusions": int((n - i).sum()),
    }
    counters |= {f"Class/{name}": int(count) for name, count in classes.value_counts().items()}
    profiles = n.astype(str) + ":" + i.astype(str)
    counters |= {f"Profile/{profile}": int(count) for profile, count in profiles.value_counts().items()}
    return {key: count for key, count in counters.items() if count}
