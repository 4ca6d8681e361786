"""A review in two sheets, read with pandas alone. Imports nothing of statlib."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FIRST, SECOND = "tiab_screening.csv", "full_text_screening.csv"


def first_stage(folder: Path) -> dict[tuple[str, str], bool]:
    """{(id, reviewer): included} of the titles and abstracts"""
    sheet = pd.read_csv(folder / FIRST, dtype=str, keep_default_na=False)
    columns = {"R1_decision": "R1", "R2_decision": "R2", "R3_arbitration": "R3"}
    long = sheet.rename(columns=columns).melt("ID", list(columns.values()), "who", "cell")
    long = long[long["cell"] != ""]
    return dict(zip(zip(long["ID"], long["who"], strict=True), long["cell"] == "1", strict=True))


def second_stage(folder: Path) -> pd.DataFrame:
    """One line per full text: ``ID``, ``R1``, ``R2``, ``settled`` (a third decision was needed), ``included``"""
    sheet = pd.read_csv(folder / SECOND, dtype=str, keep_default_na=False)
    one, two = sheet["R1_full_text_response"] == "1", sheet["R2_full_text_response"] == "1"
    return pd.DataFrame(
        {"ID": sheet["ID"], "R1": one, "R2": two, "settled": one != two, "included": sheet["final_decision"] == "1"}
    )


def lost_between(folder: Path) -> set[str]:
    """Ids that the first stage included and the second never saw: the arbiter's word, else both reviewers'."""
    sheet = pd.read_csv(folder / FIRST, dtype=str, keep_default_na=False)
    last = sheet["R3_arbitration"].where(sheet["R3_arbitration"] != "", sheet["R1_decision"])
    return set(sheet["ID"][last == "1"]) - set(second_stage(folder)["ID"])
