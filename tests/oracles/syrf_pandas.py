"""What a SyRF screening export without ids says, read with pandas alone. Imports nothing of statlib."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FILE = "screening.csv"
SPELT = {"Included": True, "Excluded": False, "Exluded": False}


def decisions(folder: Path) -> dict[tuple[str, int], bool]:
    """{(study, position from 1): included}"""
    studies = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    long = studies.assign(cell=studies["InvestigatorDecisions"].str.split(";")).explode("cell")
    long["position"] = long.groupby("StudyId").cumcount() + 1
    return {
        (str(study), int(position)): SPELT[str(cell)]
        for study, position, cell in zip(long["StudyId"], long["position"], long["cell"], strict=True)
    }


def verdicts(folder: Path) -> dict[str, str]:
    """{study: what the platform says it ended as}"""
    studies = pd.read_csv(folder / FILE, dtype=str, keep_default_na=False)
    return dict(zip(studies["StudyId"], studies["ScreeningDecision"], strict=True))
