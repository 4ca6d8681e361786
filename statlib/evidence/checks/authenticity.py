"""Signature and anchor: the two things that a rewritten folder cannot bring along by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from statlib.evidence.anchors import Anchor, AnchorPhase, closing
from statlib.evidence.bundle import Bundle, Statement
from statlib.evidence.entries import Entry
from statlib.evidence.envelope import Envelope, TrustedKey
from statlib.evidence.findings import Check, Finding, Requirement, Signature, SignatureState
from statlib.evidence.json_values import decode, encode
from statlib.kernel.installation import install_command
from statlib.kernel.refusals import Fault


def read_signature(
    bundle: Bundle, statement: Statement | None, trusted: Mapping[str, TrustedKey]
) -> tuple[Signature, list[Finding]]:
    """Whose signature the folder carries, and what is wrong with it.

    A missing one is a finding only where the manifest says that there was to be one. Faults if there is a signature
    and the library that checks it is not installed: an unchecked signature is no answer.
    """
    name = bundle.name_of(bundle.signature)
    due = statement.predicate.signed_by if statement is not None else None
    try:
        content = bundle.signature.read_bytes()
    except FileNotFoundError:
        missing = Finding(Check.SIGNATURE, name, f"is missing; the manifest says that the key {due} signed it")
        return Signature(SignatureState.ABSENT), [missing] if due else []
    except OSError as error:
        return Signature(SignatureState.BAD), [Finding(Check.SIGNATURE, name, f"cannot be read: {error.strerror}")]
    problem, envelope = _problem(bundle, content)
    if envelope is None or problem is not None:
        return Signature(SignatureState.BAD), [Finding(Check.SIGNATURE, name, problem or "cannot be read")]
    key_id = envelope.signatures[0].keyid
    findings = [] if due == key_id else [Finding(Check.SIGNATURE, name, "is by another key than the manifest names")]
    if (key := trusted.get(key_id)) is not None:
        return Signature(SignatureState.TRUSTED, key_id, key.name), findings
    return Signature(SignatureState.UNTRUSTED, key_id), findings


def check_anchors(bundle: Bundle, entries: Sequence[Entry], anchors: Sequence[Anchor]) -> Iterator[Finding]:
    """Each anchor agrees with the journal as it lies in the folder; the closed one with its last line."""
    name = bundle.name_of(bundle.journal)
    by_line = {entry.seq: entry.hash for entry in entries}
    for anchor in anchors:
        recorded = f"the database recorded {anchor.head[:12]}… at {anchor.at:%Y-%m-%d %H:%M:%S} UTC"
        if by_line.get(anchor.entries) != anchor.head:
            yield Finding(
                Check.ANCHOR, f"{name} line {anchor.entries}", f"is not the line that was anchored: {recorded}"
            )
        elif anchor.phase is AnchorPhase.CLOSED and anchor.entries != len(entries):
            yield Finding(Check.ANCHOR, name, f"has {len(entries)} lines; closed with {anchor.entries}: {recorded}")


def check_requirements(
    bundle: Bundle, required: frozenset[Requirement], signature: Signature, anchors: Sequence[Anchor] | None
) -> Iterator[Finding]:
    """What was demanded is there. A signature counts only by a key that the verifier brought along."""
    name = bundle.name_of(bundle.signature)
    if Requirement.SIGNATURE in required:
        match signature.state:
            case SignatureState.ABSENT:
                yield Finding(Check.SIGNATURE, name, "is required, and this folder is not signed")
            case SignatureState.UNTRUSTED:
                yield Finding(Check.SIGNATURE, name, f"is by the key {signature.key_id}, which you do not trust")
    if Requirement.ANCHOR in required and (not anchors or closing(anchors) is None):
        asked = "was not asked for" if anchors is None else "is not in the database's audit"
        yield Finding(Check.ANCHOR, bundle.name_of(bundle.journal), f"the closed run's anchor is required, and {asked}")


def _problem(bundle: Bundle, content: bytes) -> tuple[str | None, Envelope | None]:
    try:
        raw = decode(content)
        envelope = Envelope.model_validate(raw)
        if encode(raw) != content:
            return "is not in canonical form", None
        manifest = bundle.manifest.read_bytes()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"is no envelope: {'.'.join(map(str, first['loc']))}: {first['msg']}", None
    except (ValueError, Fault) as error:
        return f"is not JSON: {error}", None
    except OSError as error:
        return f"has no manifest to be held against: {error.strerror}", None
    try:
        from statlib.evidence.signing import signature_problem  # noqa: PLC0415 - the library is an extra
    except ModuleNotFoundError as error:
        raise Fault(
            "this folder is signed, and the library that checks signatures is not installed",
            remedy=install_command("evidence"),
        ) from error
    return signature_problem(envelope, manifest), envelope
