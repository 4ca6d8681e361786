"""What verification found: each finding names the thing and says what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from statlib.evidence.verdicts import Verdict


class Check(StrEnum):
    """What is checked, in this order."""

    MANIFEST = "manifest"
    FILES = "files"
    JOURNAL = "journal"
    STEPS = "steps"
    CELLS = "cells"
    CAPTURES = "captures"
    GATES = "gates"
    VERDICT = "verdict"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Finding:
    """``subject`` names the file, the journal line, the cell, the step or the gate. Both texts may quote what the
    folder says; what cannot be printed is escaped, so that a hostile name cannot steer a terminal."""

    check: Check
    subject: str
    problem: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", _printable(self.subject))
        object.__setattr__(self, "problem", _printable(self.problem))

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}"


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


class Assurance(StrEnum):
    """What an accepted bundle proves, and against whom."""

    UNDAMAGED = "undamaged"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Assurance.UNDAMAGED: "Neither signed nor anchored: proves that nothing was damaged or edited since sealing, "
    "not that nobody rewrote and sealed the whole folder again.",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer. ``verdict`` and ``journal_head`` are the manifest's word, and only worth something if ``ok``."""

    folder: Path
    findings: tuple[Finding, ...]
    assurance: Assurance
    verdict: Verdict | None
    journal_head: str | None
    files: int
    entries: int

    @property
    def ok(self) -> bool:
        return not self.findings
