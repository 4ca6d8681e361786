"""The envelope that a signature over the manifest comes in, as it is stored.

``manifest.dsse.json`` is a DSSE envelope (https://github.com/secure-systems-lab/dsse, protocol v1) around the exact
bytes of ``manifest.json``, so that other in-toto tools can check it. Beside the protocol's ``keyid`` and ``sig`` a
signature carries its ``publicKey``: damage is then found without knowing the signer.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from statlib.evidence.entries import Sha256

PAYLOAD_TYPE: Literal["application/vnd.in-toto+json"] = "application/vnd.in-toto+json"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class EnvelopeSignature(_Stored):
    """``keyid`` is the SHA-256 of the 32 bytes of ``publicKey``; all but it are Base64."""

    keyid: Sha256
    public_key: str = Field(alias="publicKey")
    sig: str


class Envelope(_Stored):
    """``manifest.dsse.json``."""

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = Field(default=PAYLOAD_TYPE, alias="payloadType")
    signatures: tuple[EnvelopeSignature, ...] = Field(min_length=1, max_length=1)


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key that the verifier brought along; ``name`` is what its file is called."""

    name: str
    key_id: str


def authenticated(manifest: bytes) -> bytes:
    """What is signed, DSSE's pre-authentication encoding: type and lengths are bound to the payload."""
    kind = PAYLOAD_TYPE.encode()
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(manifest)).encode(), manifest])


def to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def from_base64(text: str) -> bytes:
    """Raises ValueError unless ``text`` is exactly what ``to_base64`` gives: spare bits are no place to hide in."""
    content = base64.b64decode(text, validate=True)
    if to_base64(content) != text:
        raise ValueError("not the one Base64 text of its bytes")
    return content
