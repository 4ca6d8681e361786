"""A signature is made once, over exactly the manifest, and counts only by a key that the reader brought along."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from statlib.cli.main import main
from statlib.evidence.bundle import Bundle
from statlib.evidence.envelope import Envelope, authenticated
from statlib.evidence.json_values import decode, encode
from statlib.evidence.reasons import EvidenceReason
from statlib.evidence.signing import SigningKey, generate_key, public_file, read_signing_key, read_trusted_keys
from statlib.evidence.verify import Assurance, Check, Requirement, Verification, verify
from statlib.kernel.refusals import Refusal
from tests.unit.evidence.soak_run import Story, leave_bundle

ENVELOPE = "manifest.dsse.json"
SIGNATURE = frozenset({Requirement.SIGNATURE})


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "release"
    generate_key(path)
    return path


@pytest.fixture(scope="session")
def original(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "run"
    return leave_bundle(folder, Story(), key=read_signing_key(key_file))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def told(found: Verification) -> str:
    return "\n".join(str(finding) for finding in found.findings)


def test_a_signed_run_is_signed_for_whoever_has_its_key(original: Path, key_file: Path) -> None:
    found = verify(original, trusted=read_trusted_keys([public_file(key_file)]), require=SIGNATURE)
    assert found.ok, told(found)
    assert found.assurance is Assurance.SIGNED
    assert found.signature.signer == "release"


def test_without_a_key_of_ones_own_the_signature_proves_nothing_more(original: Path) -> None:
    found = verify(original)
    assert found.ok, told(found)
    assert found.assurance is Assurance.UNDAMAGED
    assert "not that nobody rewrote" in found.assurance.meaning


def test_a_signature_by_another_key_is_refused_where_one_is_required(original: Path, tmp_path: Path) -> None:
    generate_key(tmp_path / "other")
    found = verify(original, trusted=read_trusted_keys([tmp_path / "other.pub"]), require=SIGNATURE)
    assert "which you do not trust" in told(found)


def test_an_unsigned_run_is_refused_where_a_signature_is_required(tmp_path: Path, key_file: Path) -> None:
    unsigned = leave_bundle(tmp_path, Story())
    trusted = read_trusted_keys([public_file(key_file)])
    assert verify(unsigned, trusted=trusted).ok
    assert told(verify(unsigned, trusted=trusted, require=SIGNATURE)) == (
        f"{ENVELOPE}: is required, and this folder is not signed"
    )


def test_every_flipped_byte_of_the_envelope_is_refused_even_without_a_key(folder: Path) -> None:
    path = folder / ENVELOPE
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert ENVELOPE in told(verify(folder)), place
    path.write_bytes(content)
    assert verify(folder).ok


def test_spare_bits_of_base64_are_no_place_to_hide_in(folder: Path) -> None:
    path = folder / ENVELOPE
    raw = decode(path.read_bytes())
    sig = raw["signatures"][0]["sig"]
    assert sig.endswith("==")
    other = sig[:-3] + chr(ord(sig[-3]) + 1) + "=="
    assert base64.b64decode(other) == base64.b64decode(sig)
    raw["signatures"][0]["sig"] = other
    path.write_bytes(encode(raw))
    assert f"{ENVELOPE}: holds what is no Base64" in told(verify(folder))


def test_a_signature_taken_from_another_run_is_refused(folder: Path, key_file: Path, tmp_path: Path) -> None:
    other = leave_bundle(tmp_path / "other", Story(apply=False), key=read_signing_key(key_file))
    shutil.copy(other / ENVELOPE, folder / ENVELOPE)
    assert told(verify(folder)) == f"{ENVELOPE}: was made over another manifest"


def test_a_signature_taken_away_is_missed_as_long_as_the_manifest_stands(folder: Path) -> None:
    (folder / ENVELOPE).unlink()
    assert f"{ENVELOPE}: is missing; the manifest says that the key" in told(verify(folder))


def test_a_signature_put_on_afterwards_by_another_is_refused(folder: Path, tmp_path: Path) -> None:
    key = generate_key(tmp_path / "forger")
    (folder / ENVELOPE).write_bytes(key.envelope(Bundle(folder).manifest.read_bytes()))
    assert told(verify(folder)) == f"{ENVELOPE}: is by another key than the manifest names"


def test_the_envelope_is_one_that_other_tools_read(original: Path, key_file: Path) -> None:
    """DSSE: the signature is over the pre-authentication encoding, spelt out here from the protocol."""
    envelope = Envelope.model_validate_json((original / ENVELOPE).read_bytes())
    manifest = Bundle(original).manifest.read_bytes()
    kind = b"application/vnd.in-toto+json"
    assert authenticated(manifest) == b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(manifest), manifest)
    assert base64.b64decode(envelope.payload) == manifest
    assert set(json.loads((original / ENVELOPE).read_bytes())) == {"payload", "payloadType", "signatures"}


def test_the_private_half_is_nowhere_in_the_folder(original: Path, key_file: Path) -> None:
    secret = key_file.read_bytes().splitlines()[1]
    assert not any(secret in path.read_bytes() for path in original.rglob("*") if path.is_file())
    assert secret.decode() not in repr(read_signing_key(key_file))


def test_the_private_half_is_its_owners_alone_and_never_overwritten(key_file: Path) -> None:
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    before = key_file.read_bytes()
    with pytest.raises(Refusal) as refused:
        generate_key(key_file)
    assert refused.value.reason is EvidenceReason.KeyExists
    assert key_file.read_bytes() == before


@pytest.mark.parametrize("damage", ["open", "missing", "text", "public"])
def test_a_key_that_cannot_be_used_is_refused(damage: str, key_file: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(public_file(key_file) if damage == "public" else key_file, tmp_path / "key"))
    path.chmod(0o640 if damage == "open" else 0o600)
    if damage == "missing":
        path.unlink()
    if damage == "text":
        path.write_text("no key")
    with pytest.raises(Refusal) as refused:
        read_signing_key(path)
    assert refused.value.reason is EvidenceReason.KeyUnusable
    own = {"open": f"`chmod 600 {path}`", "missing": f"`statlib evidence keygen {path}`"}
    assert own.get(damage, "`statlib evidence keygen`") in refused.value.remedy


def test_a_trust_folder_is_read_whole_and_must_be_there(key_file: Path, tmp_path: Path) -> None:
    (trusted,) = read_trusted_keys([], key_file.parent).values()
    assert trusted.name == "release"
    for wrong in (tmp_path / "none", key_file):
        with pytest.raises(Refusal):
            read_trusted_keys([], wrong)
    with pytest.raises(Refusal):
        read_trusted_keys([key_file])


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 0, "which you did not say that you trust"),
        (["--key", "{key}.pub"], 0, "by release, key"),
        (["--key", "{key}.pub", "--require", "signature"], 0, "Signed by a key that you trust"),
        (["--require", "signature"], 3, "which you do not trust"),
        (["--key", "{other}.pub"], 3, "which you do not trust"),
        (["--key", "{other}"], 2, "KeyUnusable"),
    ],
    ids=["no key", "key", "key required", "required without a key", "another key", "a private key"],
)
def test_the_command_says_which_it_had(
    options: list[str], code: int, says: str, original: Path, key_file: Path, tmp_path: Path
) -> None:
    generate_key(tmp_path / "other")
    filled = [option.format(key=key_file, other=tmp_path / "other") for option in options]
    result = CliRunner().invoke(main, ["evidence", "verify", str(original), *filled])
    assert result.exit_code == code, result.output
    assert says in result.output


def test_a_key_is_made_on_the_command_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["evidence", "keygen", str(tmp_path / "key"), "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    assert made["key_id"] == read_signing_key(tmp_path / "key").key_id
    assert isinstance(read_signing_key(tmp_path / "key"), SigningKey)
    again = CliRunner().invoke(main, ["evidence", "keygen", str(tmp_path / "key")])
    assert again.exit_code == 4
    assert "KeyExists" in again.output


def test_findings_about_signatures_have_a_line_of_their_own(folder: Path) -> None:
    (folder / ENVELOPE).write_bytes(b"{}")
    assert {finding.check for finding in verify(folder).findings} == {Check.SIGNATURE}
