"""Gates and verdict, derived once more from the captures and held against every place that states them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

from pydantic import ValidationError

from statlib.evidence.bundle import HEAD_META, VERDICT_META, Bundle, Statement, journaled_gates
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.derivation import Derivation, derive
from statlib.evidence.entries import Entry, EntryKind, StepOutcome
from statlib.evidence.findings import Check, Finding
from statlib.evidence.results import GateResult
from statlib.evidence.soak_captures import THRESHOLDS
from statlib.evidence.verdicts import Verdict, verdict


def declared_verdict(entries: Sequence[Entry]) -> Verdict | None:
    """The verdict that the run closed with; None if it did not close, or with a word that is no verdict."""
    if not entries or entries[-1].kind is not EntryKind.RunClosed:
        return None
    word = entries[-1].data["verdict"]
    return Verdict(word) if word in set(Verdict) else None


def check_outcome(bundle: Bundle, entries: tuple[Entry, ...], statement: Statement | None) -> Iterator[Finding]:
    """Derived gates equal the journal's and the manifest's; the verdict follows from them."""
    journal, manifest = bundle.name_of(bundle.journal), bundle.name_of(bundle.manifest)
    declared = declared_verdict(entries)
    if declared is None and entries and entries[-1].kind is EntryKind.RunClosed:
        yield Finding(Check.VERDICT, journal, f"closes with {entries[-1].data['verdict']!r}, which is no verdict")
    captures = CaptureReader(bundle.evidence, entries)
    derived = derive(captures, entries)
    if derived.why_none and (declared is None or declared.by_gates):
        yield Finding(Check.GATES, f"evidence/captures/{THRESHOLDS}.json", f"no gate is derived: {derived.why_none}")
    try:
        recorded = journaled_gates(entries)
    except ValidationError:
        recorded = ()
        yield Finding(Check.GATES, journal, "holds a GateDerived entry that is no gate")
    if recorded or declared is None or declared.by_gates:
        yield from _differences(derived.gates, recorded, journal)
    if statement is not None:
        yield from _differences(recorded, statement.predicate.gates, manifest)
        if declared is not None and statement.predicate.verdict is not declared:
            yield _stated(manifest, statement.predicate.verdict, declared)
    if declared is not None:
        yield from _unfounded(entries, declared, derived, journal)


def check_report(bundle: Bundle, statement: Statement | None, declared: Verdict | None) -> Iterator[Finding]:
    """The report names the verdict and the journal's head, each exactly once and rightly."""
    name = bundle.name_of(bundle.report)
    try:
        text = bundle.report.read_bytes().decode("utf-8")
    except OSError as error:
        yield Finding(Check.REPORT, name, f"cannot be read: {error.strerror}")
        return
    except UnicodeDecodeError:
        yield Finding(Check.REPORT, name, "is not UTF-8")
        return
    metas = _Metas()
    metas.feed(text)
    metas.close()
    head = statement.predicate.journal_head if statement is not None else None
    for meta, due in ((VERDICT_META, declared), (HEAD_META, head)):
        said = metas.found.get(meta, [])
        if len(said) != 1:
            yield Finding(Check.REPORT, name, f"has {len(said)} <meta name={meta!r}> where one is due")
        elif due is not None and said[0] != str(due):
            yield Finding(Check.REPORT, name, f"its {meta} is {said[0]!r}, not {str(due)!r}")


def _differences(due: Sequence[GateResult], stated: Sequence[GateResult], where: str) -> Iterator[Finding]:
    by_key = {gate.key: gate for gate in stated}
    if len(by_key) != len(stated):
        yield Finding(Check.GATES, where, "states a gate twice")
    for gate in due:
        other = by_key.pop(gate.key, None)
        if other is None:
            yield Finding(Check.GATES, f"gate {gate.key}", f"is missing from {where}")
        elif other != gate:
            says, is_due = other.model_dump(mode="json"), gate.model_dump(mode="json")
            wrong = ", ".join(
                f"{field} is {says[field]!r}, derived {is_due[field]!r}"
                for field in is_due
                if says[field] != is_due[field]
            )
            yield Finding(Check.GATES, f"gate {gate.key}", f"differs in {where}: {wrong}")
    for key in by_key:
        yield Finding(Check.GATES, f"gate {key}", f"is stated in {where} and cannot be derived")


def _unfounded(entries: Sequence[Entry], declared: Verdict, derived: Derivation, where: str) -> Iterator[Finding]:
    applied = bool(entries[0].data.get("apply"))
    if declared.by_gates or declared is Verdict.DRY_RUN_ONLY:
        due = verdict(derived.gates, rehearsal=derived.rehearsal, applied=applied, soak=derived.soak)
        if due is not declared:
            yield _stated(where, declared, due)
    elif declared is Verdict.REFUSED and not _refused(entries):
        yield Finding(Check.VERDICT, where, "closes as refused, and records no refusal")
    elif declared is Verdict.INTERRUPTED and not any(e.kind is EntryKind.Interrupted for e in entries):
        yield Finding(Check.VERDICT, where, "closes as interrupted, and records no interruption")


def _refused(entries: Sequence[Entry]) -> bool:
    return any(
        entry.kind is EntryKind.Refused or entry.data.get("outcome") == StepOutcome.REFUSED.value for entry in entries
    )


def _stated(where: str, stated: Verdict, due: Verdict) -> Finding:
    return Finding(Check.VERDICT, where, f"gives the verdict {str(stated)!r}; it is {str(due)!r}")


class _Metas(HTMLParser):
    """Collects the content of named <meta> elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (name := given.get("name")):
            self.found.setdefault(name, []).append(given.get("content") or "")
