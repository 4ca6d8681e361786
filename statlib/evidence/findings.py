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
    SIGNATURE = "signature"
    ANCHOR = "anchor"


class Requirement(StrEnum):
    """What a reader may demand beyond an undamaged folder."""

    SIGNATURE = "signature"
    ANCHOR = "anchor"


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


class SignatureState(StrEnum):
    """``untrusted``: it holds, by a key that the verifier did not bring along, which may be a forger's own."""

    ABSENT = "absent"
    BAD = "bad"
    UNTRUSTED = "untrusted"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class Signature:
    """``signer`` is the name of the trusted key's file; empty unless trusted."""

    state: SignatureState
    key_id: str = ""
    signer: str = ""


class Assurance(StrEnum):
    """What an accepted bundle proves, and against whom."""

    UNDAMAGED = "undamaged"
    SIGNED = "signed"
    ANCHORED = "anchored"
    SIGNED_AND_ANCHORED = "signed and anchored"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]

    @classmethod
    def of(cls, signature: Signature, *, anchored: bool) -> Assurance:
        """Only a trusted signature counts, and only the anchor of the closed journal."""
        if signature.state is SignatureState.TRUSTED:
            return cls.SIGNED_AND_ANCHORED if anchored else cls.SIGNED
        return cls.ANCHORED if anchored else cls.UNDAMAGED


_MEANINGS = {
    Assurance.UNDAMAGED: "Neither signed nor anchored, as far as was checked: proves that nothing was damaged or "
    "edited since sealing, not that nobody rewrote and sealed the whole folder again.",
    Assurance.SIGNED: "Signed by a key that you trust: proves that its holder sealed exactly this folder.",
    Assurance.ANCHORED: "Anchored: the database's audit holds this journal's head, so that nobody without access to "
    "the database rewrote the run.",
    Assurance.SIGNED_AND_ANCHORED: "Signed by a key that you trust, and anchored in the database's audit.",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer. ``verdict`` and ``journal_head`` are the manifest's word, and only worth something if ``ok``.
    ``anchored``: the database holds the closed journal's head; None if it was not asked. ``looked_at``: the checks
    for which the folder held something; of the others an absence of findings says nothing."""

    folder: Path
    findings: tuple[Finding, ...]
    assurance: Assurance
    signature: Signature
    anchored: bool | None
    verdict: Verdict | None
    journal_head: str | None
    files: int
    entries: int
    looked_at: frozenset[Check]

    @property
    def ok(self) -> bool:
        return not self.findings
