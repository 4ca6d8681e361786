"""The report folder as one sealed thing: a manifest over every file, and the manifest's own hash.

    notebook.ipynb              as executed
    report.html                 as rendered; names the verdict and the journal's head in two <meta> elements
    evidence/journal.jsonl
    evidence/captures/*
    manifest.json               an in-toto Statement (v1) whose subjects are all files above, and any other
    manifest.dsse.json          of a signed run: the signature over the manifest (see ``envelope``)
    manifest.sha256             one line, as `sha256sum --check` reads it

Invariant: ``manifest.sha256`` is written last, so a folder that has it was sealed whole; a crash before that is
sealed again from the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from statlib import __version__
from statlib.evidence.entries import Entry, EntryKind, Sha256, open_steps
from statlib.evidence.journal import read_journal, sync_folder
from statlib.evidence.json_values import Json, decode, encode, sha256_of, sha256_of_file
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict
from statlib.kernel.refusals import Refusal

VERDICT_META = "statlib-verdict"
HEAD_META = "statlib-journal-head"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Digest(_Stored):
    sha256: Sha256


class Subject(_Stored):
    """One file; ``name`` is its path within the folder, with forward slashes."""

    name: str
    digest: Digest


class KeyFigure(_Stored):
    """One number that a run is remembered by. What the runbook said; verification does not derive it again."""

    label: str
    value: float
    unit: str = ""


class Signs(Protocol):
    """What seals with a signature (``signing.SigningKey``)."""

    @property
    def key_id(self) -> str: ...

    def envelope(self, manifest: bytes) -> bytes: ...


class RunEvidence(_Stored):
    """The predicate: what the files are evidence of."""

    runbook: str
    run_id: str
    verdict: Verdict
    journal_head: Sha256
    statlib_version: str
    parameters: dict[str, JsonValue]
    environment: dict[str, JsonValue]
    gates: tuple[GateResult, ...]
    signed_by: Sha256 | None = Field(default=None, description="id of the key that signs this manifest")
    highlights: tuple[KeyFigure, ...] = Field(default=(), description="numbers that the report's first screen shows")


class Statement(_Stored):
    """``manifest.json``."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default="https://in-toto.io/Statement/v1", alias="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:statlib:run-evidence:v1"] = Field(
        default="urn:statlib:run-evidence:v1", alias="predicateType"
    )
    predicate: RunEvidence


@dataclass(frozen=True, slots=True)
class Bundle:
    """Where things are in a report folder; nothing is read or made."""

    folder: Path

    @property
    def notebook(self) -> Path:
        return self.folder / "notebook.ipynb"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def journal(self) -> Path:
        return self.evidence / "journal.jsonl"

    @property
    def captures(self) -> Path:
        return self.evidence / "captures"

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"

    @property
    def manifest_digest(self) -> Path:
        return self.folder / "manifest.sha256"

    @property
    def signature(self) -> Path:
        return self.folder / "manifest.dsse.json"

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def files(self) -> Iterator[Path]:
        """Everything in the folder that is no folder, in no order, except the files of the manifest itself.
        Links are given as links and never followed."""
        for root, folders, names in os.walk(self.folder, followlinks=False):
            here = Path(root)
            linked = [name for name in folders if (here / name).is_symlink()]
            for path in (here / name for name in [*names, *linked]):
                if path not in {self.manifest, self.signature, self.manifest_digest}:
                    yield path


def seal(
    folder: Path,
    *,
    parameters: Mapping[str, Json],
    environment: Mapping[str, Json],
    verdict: Verdict,
    journal_head: str,
    highlights: Sequence[KeyFigure] = (),
    key: Signs | None = None,
) -> Statement:
    """Write the manifest over a finished run, signed if there is a key; gates are taken from the closed journal.

    Refuses AlreadySealed, RunNotClosed (journal open, or closed with another verdict or head than given),
    BundleIncomplete (no notebook, no report, or something that is no plain file), JournalDamaged.
    """
    bundle = Bundle(folder)
    if bundle.manifest_digest.exists():
        raise Refusal(EvidenceReason.AlreadySealed, str(folder))
    entries = read_journal(bundle.journal)
    _require_closed(entries, verdict, journal_head)
    _clear_leftovers(bundle)
    started = entries[0].data
    statement = Statement(
        subject=_subjects(bundle),
        predicate=RunEvidence(
            runbook=str(started["runbook"]),
            run_id=str(started["run_id"]),
            verdict=verdict,
            journal_head=journal_head,
            statlib_version=__version__,
            parameters=decode(encode(parameters)),
            environment=decode(encode(environment)),
            gates=journaled_gates(entries),
            signed_by=key.key_id if key is not None else None,
            highlights=tuple(highlights),
        ),
    )
    content = encode(statement.model_dump(mode="json", by_alias=True))
    _write(bundle.manifest, content)
    if key is not None:
        _write(bundle.signature, key.envelope(content))
    _write(bundle.manifest_digest, digest_line(content))
    return statement


def journaled_gates(entries: tuple[Entry, ...]) -> tuple[GateResult, ...]:
    """The gates as the run recorded them: the last record of each key, in the order of their first."""
    found: dict[str, GateResult] = {}
    for entry in entries:
        if entry.kind is EntryKind.GateDerived:
            gate = GateResult.model_validate(entry.data)
            found[gate.key] = gate
    return tuple(found.values())


def digest_line(manifest: bytes) -> bytes:
    """The whole content of ``manifest.sha256``."""
    return f"{sha256_of(manifest)}  manifest.json\n".encode()


def _require_closed(entries: tuple[Entry, ...], verdict: Verdict, head: str) -> None:
    if not entries or entries[0].kind is not EntryKind.RunStarted:
        raise Refusal(EvidenceReason.RunNotClosed, "the journal does not begin with RunStarted")
    last = entries[-1]
    if last.kind is not EntryKind.RunClosed:
        raise Refusal(EvidenceReason.RunNotClosed, f"the journal ends with {last.kind}")
    if still_open := open_steps(entries):
        raise Refusal(EvidenceReason.RunNotClosed, f"steps are still open: {', '.join(still_open)}")
    if last.data["verdict"] != verdict.value:
        raise Refusal(EvidenceReason.RunNotClosed, f"the journal closed with {last.data['verdict']!r}, not {verdict!s}")
    if last.hash != head:
        raise Refusal(EvidenceReason.RunNotClosed, f"the journal's head is {last.hash[:12]}…, not {head[:12]}…")


def _subjects(bundle: Bundle) -> tuple[Subject, ...]:
    for needed in (bundle.notebook, bundle.report):
        if not needed.is_file():
            raise Refusal(EvidenceReason.BundleIncomplete, f"{bundle.name_of(needed)} is missing")
    subjects = []
    for path in bundle.files():
        if path.is_symlink() or not path.is_file():
            raise Refusal(EvidenceReason.BundleIncomplete, f"{bundle.name_of(path)} is not a plain file")
        subjects.append(Subject(name=bundle.name_of(path), digest=Digest(sha256=sha256_of_file(path))))
    return tuple(sorted(subjects, key=lambda subject: subject.name))


def _clear_leftovers(bundle: Bundle) -> None:
    for target in (bundle.manifest, bundle.signature, bundle.manifest_digest):
        _temporary(target).unlink(missing_ok=True)
    bundle.signature.unlink(missing_ok=True)  # of a sealing that died; another key, or none, may sign now


def _write(path: Path, content: bytes) -> None:
    temporary = _temporary(path)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")
