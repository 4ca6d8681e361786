"""Labels of a SYNERGY file, read with pandas alone. Imports nothing of statlib."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FILE = "labels.csv.gz"


def labels(folder: Path) -> dict[str, dict[str, bool]]:
    """{review: {row: label}} in file order"""
    records = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    return {
        str(review): dict(zip(group["row"], group["label_included"] == "1", strict=True))
        for review, group in records.groupby("review", sort=False)
    }


def identifiable(folder: Path) -> tuple[int, int]:
    """(records without an OpenAlex id, records whose id another record of the same review has too)"""
    records = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    named = records[records["openalex_id"] != ""]
    return len(records) - len(named), int(named.duplicated(["review", "openalex_id"], keep=False).sum())
