"""A real annotation export cut down to a few articles, so that replaying it takes seconds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from statlib.examples import transparency_export

SEARCHES = ("field_wide", "prominent")


def few_articles(export: Path, folder: Path, articles: int) -> Path:
    """The raw rows of a few articles of either search that were annotated twice and reconciled, and of nothing else."""
    folder.mkdir()
    per_article = pd.read_csv(export / "sessions.csv", dtype=str).groupby("article_id", sort=False).size()
    reconciled = transparency_export.reconciled_articles(export)
    whole = [article for article, sessions in per_article.items() if sessions == 2 and article in reconciled]
    searches = [set(pd.read_csv(export / f"search_{name}.csv", dtype=str)["article_id"]) for name in SEARCHES]
    halves = [[article for article in whole if article in found][: articles // 2] for found in searches]
    wanted = {article for half in halves for article in half}
    for path in export.glob("*.csv*"):
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
        if "article_id" in rows:
            rows = rows[rows["article_id"].isin(wanted)]
        rows.to_csv(folder / path.name, index=False)
    return folder
