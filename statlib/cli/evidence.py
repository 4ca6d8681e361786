"""``statlib evidence``: hold a report folder to its word, and make the keys that sign one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from statlib.cli.output import answer, json_option
from statlib.kernel.installation import install_command
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault, Refusal, SettingsReason
from statlib.kernel.settings import load_settings

if TYPE_CHECKING:
    from statlib.evidence.anchors import Anchor
    from statlib.evidence.envelope import TrustedKey
    from statlib.evidence.verify import Verification

EXIT_EVIDENCE_REFUSED = 3


@click.group()
def evidence() -> None:
    """Check the evidence that a run left behind."""


@evidence.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A public key that you trust; the folder must then be signed by one given. Repeatable.",
)
@click.option("--anchor", is_flag=True, help="Ask the boundary for the run's anchors; the folder must then have one.")
@click.option(
    "--require",
    "required",
    multiple=True,
    type=click.Choice(["signature", "anchor"]),
    help="Refuse a folder without it. Repeatable.",
)
@json_option
@click.pass_context
def verify(
    context: click.Context, path: Path, keys: tuple[Path, ...], anchor: bool, required: tuple[str, ...]
) -> None:  # fmt: skip
    """Verify the report folder PATH, using nothing else unless asked to.

    Recomputes every hash and the journal's chain, checks that each cell executed and each step closed, derives
    each gate and the verdict from the raw captures, and names what does not fit. A bad signature is always refused;
    keys in the folder that evidence.trusted_keys_folder names are trusted as well.

    Exit codes: 0 accepted, 3 refused, 2 no such folder or key.
    """
    from statlib.evidence.verify import Requirement, verify  # noqa: PLC0415  (keeps --help fast)

    if path.is_file():
        raise Refusal(SettingsReason.InputUnreadable, f"{path} is a file of a report; give its folder, {path.parent}")
    demanded = {Requirement(name) for name in required}
    demanded |= {Requirement.SIGNATURE} if keys else set()
    demanded |= {Requirement.ANCHOR} if anchor else set()
    found = verify(
        path,
        trusted=_trusted(keys, demanded=Requirement.SIGNATURE in demanded),
        anchors=_anchors(path) if Requirement.ANCHOR in demanded else None,
        require=frozenset(demanded),
    )
    answer(
        {
            "ok": found.ok,
            "folder": found.folder,
            "verdict": found.verdict,
            "journal_head": found.journal_head,
            "files": found.files,
            "entries": found.entries,
            "assurance": found.assurance,
            "signature": found.signature,
            "anchored": found.anchored,
            "findings": found.findings,
        },
        list(_lines(found)),
    )
    if not found.ok:
        context.exit(EXIT_EVIDENCE_REFUSED)


@evidence.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def keygen(path: Path) -> None:
    """Make an Ed25519 key: the private half at PATH (mode 600), the public half at PATH.pub.

    Name the private half in evidence.signing_key_file, and give the public half to whoever verifies.
    """
    _need_cryptography()
    from statlib.evidence.signing import generate_key, public_file  # noqa: PLC0415

    key = generate_key(path)
    answer(
        {"key_id": key.key_id, "private": path, "public": public_file(path)},
        [
            f"key       {key.key_id}",
            f"private   {path} (keep it from everybody; set evidence.signing_key_file to it)",
            f"public    {public_file(path)} (verify with --key {public_file(path)})",
        ],
    )


def _trusted(keys: Sequence[Path], *, demanded: bool) -> Mapping[str, TrustedKey]:
    folder = load_settings().evidence.trusted_keys_folder
    if not keys and folder is None:
        return {}
    if demanded:
        _need_cryptography()
    elif importlib.util.find_spec("cryptography") is None:
        return {}
    from statlib.evidence.signing import read_trusted_keys  # noqa: PLC0415 - the library is an extra

    return read_trusted_keys(keys, folder)


def _anchors(path: Path) -> Sequence[Anchor]:
    """Of the run that the folder says it is; a folder that says none has none."""
    from statlib.evidence.bundle import Bundle  # noqa: PLC0415
    from statlib.evidence.checks.files import read_manifest  # noqa: PLC0415
    from statlib.runbook.anchoring import anchors_of  # noqa: PLC0415

    statement, _ = read_manifest(Bundle(path))
    return anchors_of(statement.predicate.run_id, load_settings()) if statement is not None else ()


def _need_cryptography() -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise Fault("signatures need the library cryptography", remedy=install_command("evidence"))


def _lines(found: Verification) -> Iterator[str]:
    from statlib.evidence.verify import Check  # noqa: PLC0415

    for check in Check:
        wrong = [finding for finding in found.findings if finding.check is check]
        yield f"{check:<9} {f'{len(wrong)} wrong' if wrong else _said(found, check)}"
        yield from (f"          {finding}" for finding in wrong)
    yield ""
    if not found.ok:
        yield f"Refused: {plural(len(found.findings), 'finding')}"
        yield "Do not rely on this folder; keep it as it is, and run again."
        return
    counted = f"{plural(found.files, 'file')}, {plural(found.entries, 'journal entry', 'journal entries')}"
    yield f"Report intact. Verdict of the run: {found.verdict}; {counted}, head {found.journal_head}"
    yield found.assurance.meaning


def _said(found: Verification, check: str) -> str:
    """What there was of the two proofs that a folder need not have; of all else, that it is in order, or that there
    was nothing of it to look at."""
    if check == "signature":
        signature = found.signature
        return {
            "absent": "none",
            "untrusted": f"holds, by the key {signature.key_id}, which you did not say that you trust",
            "trusted": f"by {signature.signer}, key {signature.key_id}",
        }.get(signature.state.value, signature.state.value)
    if check == "anchor":
        return {None: "not asked for", True: "as the database recorded it", False: "none"}[found.anchored]
    return "ok" if check in found.looked_at else "not looked at"
