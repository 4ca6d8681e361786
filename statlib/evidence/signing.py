"""Ed25519 signatures over the manifest: what still holds when somebody rewrites the whole folder consistently.

Invariant: the key inside an envelope proves nothing about who signed; only a key that the verifier brought along does.
This module alone needs the library ``cryptography``; an unsigned folder is verified without it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from statlib.evidence.envelope import (
    Envelope,
    EnvelopeSignature,
    TrustedKey,
    authenticated,
    from_base64,
    to_base64,
)
from statlib.evidence.json_values import encode
from statlib.evidence.reasons import EvidenceReason
from statlib.kernel.refusals import Refusal

PUBLIC_SUFFIX = ".pub"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """The private half, read from its file and never shown."""

    _key: Ed25519PrivateKey

    @property
    def key_id(self) -> str:
        return _key_id(self._key.public_key())

    def envelope(self, manifest: bytes) -> bytes:
        """The canonical bytes of ``manifest.dsse.json``."""
        public = self._key.public_key()
        signature = EnvelopeSignature(
            keyid=_key_id(public),
            public_key=to_base64(public.public_bytes_raw()),
            sig=to_base64(self._key.sign(authenticated(manifest))),
        )
        envelope = Envelope(payload=to_base64(manifest), signatures=(signature,))
        return encode(envelope.model_dump(mode="json", by_alias=True))


def generate_key(path: Path) -> SigningKey:
    """Write a new private key to ``path`` (mode 600) and its public half beside it (``.pub``).

    Refuses KeyExists: a key that signed before is never overwritten.
    """
    public = public_file(path)
    for existing in (path, public):
        if existing.exists():
            raise Refusal(EvidenceReason.KeyExists, str(existing))
    key = Ed25519PrivateKey.generate()
    private_pem = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public_pem = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, content, mode in ((path, private_pem, 0o600), (public, public_pem, 0o644)):
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    return SigningKey(key)


def public_file(path: Path) -> Path:
    """Where the public half of the private key at ``path`` is."""
    return path.with_name(path.name + PUBLIC_SUFFIX)


def read_signing_key(path: Path) -> SigningKey:
    """Refuses KeyUnusable: unreadable, open to others than its owner, or no Ed25519 private key."""
    try:
        shared = os.name == "posix" and path.stat().st_mode & _OTHERS
        key = forms.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        remedy = "" if path.exists() else f"`statlib evidence keygen {path}` makes one there."
        detail = f"{path} cannot be read as an unencrypted PEM key"
        raise Refusal(EvidenceReason.KeyUnusable, detail, remedy=remedy) from error
    if shared:
        detail = f"{path} is open to others than its owner"
        raise Refusal(EvidenceReason.KeyUnusable, detail, remedy=f"Close it to them: `chmod 600 {path}`.")
    if not isinstance(key, Ed25519PrivateKey):
        raise Refusal(EvidenceReason.KeyUnusable, f"{path} is no Ed25519 private key")
    return SigningKey(key)


def read_trusted_keys(files: Iterable[Path], folder: Path | None = None) -> Mapping[str, TrustedKey]:
    """Public keys by id: those of ``files``, and every ``*.pub`` of ``folder``. Refuses KeyUnusable."""
    if folder is not None and not folder.is_dir():
        raise Refusal(EvidenceReason.KeyUnusable, f"{folder} is no folder of public keys")
    paths = [*files, *(sorted(folder.glob(f"*{PUBLIC_SUFFIX}")) if folder is not None else ())]
    trusted = {}
    for path in paths:
        key_id = _key_id(_read_public(path))
        trusted[key_id] = TrustedKey(path.name.removesuffix(PUBLIC_SUFFIX), key_id)
    return trusted


def signature_problem(envelope: Envelope, manifest: bytes) -> str | None:
    """What is wrong with it by itself, whoever's key it is; None if it holds over ``manifest``."""
    signature = envelope.signatures[0]
    try:
        payload, raw, sig = (from_base64(text) for text in (envelope.payload, signature.public_key, signature.sig))
        key = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        return "holds what is no Base64 of a payload, a key and a signature"
    if payload != manifest:
        return "was made over another manifest"
    if signature.keyid != hashlib.sha256(raw).hexdigest():
        return "names another key id than its key has"
    try:
        key.verify(sig, authenticated(manifest))
    except InvalidSignature:
        return "holds a signature that was not made over this manifest with this key"
    return None


def _read_public(path: Path) -> Ed25519PublicKey:
    try:
        key = forms.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Refusal(EvidenceReason.KeyUnusable, f"{path} cannot be read as a PEM public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise Refusal(EvidenceReason.KeyUnusable, f"{path} is no Ed25519 public key")
    return key


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()
