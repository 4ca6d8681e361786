"""The manifest against its hash, and every file against the manifest: none changed, missing, added or linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import ValidationError

from statlib.evidence.bundle import Bundle, Statement, digest_line
from statlib.evidence.findings import Check, Finding
from statlib.evidence.json_values import decode, encode, sha256_of_file
from statlib.kernel.refusals import Fault


def read_manifest(bundle: Bundle) -> tuple[Statement | None, list[Finding]]:
    """The manifest if it can be read at all, and what is wrong with it or with its hash."""
    name, digest_name = bundle.name_of(bundle.manifest), bundle.name_of(bundle.manifest_digest)
    try:
        content = bundle.manifest.read_bytes()
    except OSError as error:
        return None, [Finding(Check.MANIFEST, name, f"cannot be read: {error.strerror}")]
    findings = []
    try:
        if bundle.manifest_digest.read_bytes() != digest_line(content):
            findings.append(Finding(Check.MANIFEST, digest_name, f"is not the SHA-256 of {name}; one of them changed"))
    except OSError as error:
        findings.append(Finding(Check.MANIFEST, digest_name, f"cannot be read: {error.strerror}"))
    try:
        raw = decode(content)
        Statement.model_validate_json(content, strict=True)
        statement = Statement.model_validate(raw)  # the strict reader alone would turn large floats into integers
        if encode(raw) != content:
            findings.append(Finding(Check.MANIFEST, name, "is not in canonical form"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return None, [*findings, Finding(Check.MANIFEST, name, f"is no statement: {where}: {first['msg']}")]
    except (ValueError, Fault) as error:
        return None, [*findings, Finding(Check.MANIFEST, name, f"is not JSON: {error}")]
    return statement, findings


def check_files(bundle: Bundle, statement: Statement) -> Iterator[Finding]:
    """Each subject's hash, and that subjects and files are the same set."""
    times = Counter(subject.name for subject in statement.subject)
    for name in (name for name, count in times.items() if count > 1):
        yield Finding(Check.FILES, name, "is listed more than once in the manifest")
    listed = {subject.name: subject.digest.sha256 for subject in statement.subject}
    present = {bundle.name_of(path): path for path in bundle.files()}
    for name in sorted(listed.keys() - present.keys()):
        yield Finding(Check.FILES, name, "is in the manifest and missing from the folder")
    for name in sorted(present.keys() - listed.keys()):
        yield Finding(Check.FILES, name, "is in the folder and not in the manifest")
    for name in sorted(present.keys() & listed.keys()):
        path = present[name]
        if path.is_symlink() or not path.is_file():
            yield Finding(Check.FILES, name, "is not a plain file")
            continue
        try:
            if sha256_of_file(path) != listed[name]:
                yield Finding(Check.FILES, name, "does not have the SHA-256 that the manifest gives")
        except OSError as error:
            yield Finding(Check.FILES, name, f"cannot be read: {error.strerror}")
