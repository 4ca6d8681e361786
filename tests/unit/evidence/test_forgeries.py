"""Forgeries, from the clumsy to the consistent, against a folder that has a signature, an anchor, both or neither.

What is edited piecemeal is caught by the folder alone. What is rewritten with every hash made right is caught by the
signature or by the anchor; with neither it is accepted, and the answer says that nothing speaks against a rewriting.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from statlib.evidence.anchors import Anchor, AnchorPhase
from statlib.evidence.bundle import Bundle
from statlib.evidence.envelope import TrustedKey
from statlib.evidence.findings import Check
from statlib.evidence.journal import read_journal
from statlib.evidence.json_values import encode
from statlib.evidence.signing import SigningKey, generate_key, public_file, read_trusted_keys
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import Assurance, Requirement, Verification, verify
from tests.unit.evidence.soak_run import Raw, Story, leave_bundle, parity, write_report
from tests.unit.evidence.test_verify import rechain, reseal

JOURNAL = "evidence/journal.jsonl"
FAILED = Story(raw=replace(Raw(), parity=[parity(exact=False)] * 3))
"""What really happened; forgers would rather have passed."""


@dataclass(frozen=True)
class Kept:
    """The true folder, and what its reader has from elsewhere."""

    folder: Path
    trusted: Mapping[str, TrustedKey]
    anchors: Sequence[Anchor]


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    place = tmp_path_factory.mktemp("kept")
    key = generate_key(place / "release")
    folder = leave_bundle(place / "run", FAILED, key=key)
    return Kept(folder, read_trusted_keys([public_file(place / "release")]), anchors_of(folder))


@pytest.fixture
def folder(kept: Kept, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept.folder, tmp_path / "run"))


@pytest.fixture(scope="session")
def forgers_key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return generate_key(tmp_path_factory.mktemp("forger") / "key")


def anchors_of(folder: Path) -> tuple[Anchor, ...]:
    entries = read_journal(folder / JOURNAL)
    at = datetime(2026, 3, 9, tzinfo=UTC)
    return tuple(
        Anchor(
            run_id="0123",
            runbook="soak_evidence",
            phase=phase,
            head=entry.hash,
            entries=entry.seq,
            at=at,
            principal="p",
        )
        for phase, entry in ((AnchorPhase.STARTED, entries[0]), (AnchorPhase.CLOSED, entries[-1]))
    )


def told(found: Verification) -> str:
    return "\n".join(map(str, found.findings))


def test_the_true_folder_is_accepted_with_both(kept: Kept) -> None:
    both = frozenset(Requirement)
    found = verify(kept.folder, trusted=kept.trusted, anchors=kept.anchors, require=both)
    assert found.ok, told(found)
    assert (found.verdict, found.assurance) == (Verdict.FAILED, Assurance.SIGNED_AND_ANCHORED)


@pytest.mark.parametrize(
    "name",
    [
        "notebook.ipynb", "report.html", JOURNAL, "evidence/captures/parity.jsonl", "evidence/captures/window.json",
        "manifest.json", "manifest.sha256", "manifest.dsse.json",
    ],
)  # fmt: skip
def test_a_flipped_byte_is_refused_and_its_file_named(name: str, folder: Path) -> None:
    path = folder / name
    content = path.read_bytes()
    for place in {*range(0, len(content), max(1, len(content) // 16)), len(content) - 1}:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert name in told(verify(folder)), place


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.pop(4),
        lambda lines: lines.insert(4, lines[4]),
        lambda lines: lines.insert(3, lines.pop(6)),
    ],
    ids=["dropped", "duplicated", "reordered"],
)
def test_a_changed_journal_is_refused_by_its_chain(change: Callable[[list[bytes]], object], folder: Path) -> None:
    path = folder / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))
    reseal(folder)
    assert Check.JOURNAL in {finding.check for finding in verify(folder).findings}


def test_a_deleted_capture_is_missed(folder: Path) -> None:
    (folder / "evidence/captures/parity.jsonl").unlink()
    reseal(folder)
    assert "evidence/captures/parity.jsonl: is journaled and missing" in told(verify(folder))


def edit_output(folder: Path) -> None:
    """Outputs are no part of the journal: only the manifest holds them."""
    path = folder / "notebook.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][2]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "all exact"}]
    path.write_text(json.dumps(notebook))


def unexecute(folder: Path) -> None:
    """A cell that never ran is put into the notebook, with every hash made right."""
    path = folder / "notebook.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"].append({"id": "late", "cell_type": "code", "source": "prove()", "metadata": {}, "outputs": []})
    path.write_text(json.dumps(notebook))


def test_an_edited_output_is_refused_by_the_manifest(folder: Path) -> None:
    edit_output(folder)
    assert told(verify(folder)) == "notebook.ipynb: does not have the SHA-256 that the manifest gives"


def test_an_unexecuted_cell_is_refused_though_the_manifest_was_sealed_again(folder: Path) -> None:
    unexecute(folder)
    reseal(folder)
    assert "notebook.ipynb cell late: was not executed" in told(verify(folder))


def test_a_verdict_edited_with_hashes_recomputed_does_not_follow_from_the_captures(folder: Path) -> None:
    def pass_it(entries: list[dict[str, Any]]) -> None:
        entries[-1]["data"]["verdict"] = Verdict.REHEARSAL_PASSED.value

    head = rechain(folder, pass_it)
    write_report(folder / "report.html", Verdict.REHEARSAL_PASSED, head)
    reseal(folder, verdict=Verdict.REHEARSAL_PASSED.value, journal_head=head, signed_by=None)
    (folder / "manifest.dsse.json").unlink()
    assert f"gives the verdict {'rehearsal passed'!r}; it is 'failed'" in told(verify(folder))


def rewrite(folder: Path, key: SigningKey | None) -> None:
    """The whole run made anew, captures included, as it should have gone; signed by the forger or by nobody."""
    shutil.rmtree(folder)
    leave_bundle(folder, Story(), key=key)


def edit_output_consistently(folder: Path, key: SigningKey | None) -> None:
    """Only an output is changed; journal and head stay as they were, so that no anchor can speak against it."""
    edit_output(folder)
    bundle = Bundle(folder)
    reseal(folder, signed_by=key.key_id if key else None)
    bundle.signature.unlink()
    if key is not None:
        bundle.signature.write_bytes(key.envelope(bundle.manifest.read_bytes()))


@pytest.mark.parametrize("signs", [False, True], ids=["unsigned", "signed by the forger"])
@pytest.mark.parametrize("forge", [rewrite, edit_output_consistently])
def test_what_is_rewritten_consistently_is_caught_by_the_signature(
    forge: Callable[[Path, SigningKey | None], None], signs: bool, kept: Kept, folder: Path, forgers_key: SigningKey
) -> None:
    forge(folder, forgers_key if signs else None)
    found = verify(folder, trusted=kept.trusted, require=frozenset({Requirement.SIGNATURE}))
    assert {finding.check for finding in found.findings} == {Check.SIGNATURE}
    assert ("which you do not trust" if signs else "this folder is not signed") in told(found)


@pytest.mark.parametrize("signs", [False, True], ids=["unsigned", "signed by the forger"])
def test_a_rewritten_run_is_caught_by_the_anchor(
    signs: bool, kept: Kept, folder: Path, forgers_key: SigningKey
) -> None:
    rewrite(folder, forgers_key if signs else None)
    found = verify(folder, anchors=kept.anchors, require=frozenset({Requirement.ANCHOR}))
    assert {finding.check for finding in found.findings} == {Check.ANCHOR}


def test_an_anchor_vouches_for_the_journal_and_what_it_names_and_not_for_outputs(kept: Kept, folder: Path) -> None:
    """Stated here so that nobody believes otherwise: against edited outputs it takes the signature."""
    edit_output_consistently(folder, None)
    assert verify(folder, anchors=kept.anchors, require=frozenset({Requirement.ANCHOR})).ok


@pytest.mark.parametrize("signs", [False, True], ids=["unsigned", "signed by the forger"])
@pytest.mark.parametrize("forge", [rewrite, edit_output_consistently])
def test_with_neither_a_consistent_rewriting_is_accepted_and_said_to_be_possible(
    forge: Callable[[Path, SigningKey | None], None], signs: bool, folder: Path, forgers_key: SigningKey
) -> None:
    forge(folder, forgers_key if signs else None)
    found = verify(folder)
    assert found.ok, told(found)
    assert found.assurance is Assurance.UNDAMAGED
    assert "not that nobody rewrote and sealed the whole folder again" in found.assurance.meaning


def test_lines_put_behind_an_anchored_end_are_caught(kept: Kept, folder: Path) -> None:
    """A closing that was anchored is the journal's last line."""
    longer = Anchor.model_validate(
        kept.anchors[1].model_dump() | {"entries": 2, "head": read_journal(folder / JOURNAL)[1].hash}
    )
    assert "closed with 2" in told(verify(folder, anchors=[longer]))


def test_a_forgers_key_under_the_name_of_a_trusted_one_is_refused(
    kept: Kept, folder: Path, forgers_key: SigningKey
) -> None:
    """The envelope names the trusted key's id and carries the forger's key, with which its signature holds."""
    (trusted_id,) = kept.trusted
    edit_output(folder)
    bundle = Bundle(folder)
    reseal(folder, signed_by=trusted_id)
    envelope = json.loads(forgers_key.envelope(bundle.manifest.read_bytes()))
    envelope["signatures"][0]["keyid"] = trusted_id
    bundle.signature.write_bytes(encode(envelope))
    found = verify(folder, trusted=kept.trusted, require=frozenset({Requirement.SIGNATURE}))
    assert told(found) == "manifest.dsse.json: names another key id than its key has"
