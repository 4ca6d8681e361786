"""JSON Web Tokens: only what the issuer signed, for us, in time, with a key that is for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from statlib.admin.json_web_tokens import JsonWebTokens
from statlib.admin.principals import Capability
from statlib.admin.reasons import AdminReason
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import JwtSettings

ISSUER, AUDIENCE = "https://issuer.example", "statlib"
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    public = key.public_key()
    algorithm: Any = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }[
        next(
            base
            for base in (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)
            if isinstance(key, base)
        )
    ]
    described: dict[str, Any] = json.loads(algorithm.to_jwk(public))
    return described | more


KEYS = [jwk(RSA, kid="rsa"), jwk(CURVE, kid="curve"), jwk(EDWARDS, kid="edwards")]


def write(path: Path, keys: list[dict[str, Any]]) -> None:
    """Replaces the file, as an issuer's agent does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"keys": keys}), encoding="utf-8")
    fresh.replace(path)


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    write(path, KEYS)
    return path


@pytest.fixture
def provider(jwks: Path) -> JsonWebTokens:
    return JsonWebTokens(JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=jwks, leeway_s=5))


def claims(**changed: Any) -> dict[str, Any]:
    stated = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "jo@example.org",
        "exp": in_s(60),
        "capabilities": ["auditor"],
    }
    return {key: value for key, value in (stated | changed).items() if value is not None}


def in_s(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def sign(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers={"kid": kid} if kid else {})


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA, "RS256", "rsa"), (CURVE, "ES256", "curve"), (EDWARDS, "EdDSA", "edwards")]
)
def test_what_the_issuer_signed_is_believed(provider: JsonWebTokens, key: Any, algorithm: str, kid: str) -> None:
    found = provider.principal(sign(key, algorithm, kid))
    assert found is not None
    assert (found.name, found.authority) == ("jwt:jo@example.org", "jwt")
    assert found.capabilities == {Capability.AUDITOR}


@pytest.mark.parametrize(
    ("claimed", "granted"),
    [
        (["auditor", "deployment-operator"], {Capability.AUDITOR, Capability.DEPLOYMENT_OPERATOR}),
        ("auditor source-operator", {Capability.AUDITOR, Capability.SOURCE_OPERATOR}),
        (["root", 7, "auditor"], {Capability.AUDITOR}),
        ({"auditor": True}, set()),
        (None, set()),
    ],
)
def test_only_known_capabilities_are_granted(
    provider: JsonWebTokens, claimed: object, granted: set[Capability]
) -> None:
    found = provider.principal(sign(capabilities=claimed))
    assert found is not None
    assert found.capabilities == granted


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": timedelta(seconds=-30)},
        {"exp": None},
        {"nbf": timedelta(seconds=30)},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "job:repair"},
    ],
    ids=lambda changed: " ".join(f"{key}={value}" for key, value in changed.items())[:24],
)
def test_a_token_for_others_or_out_of_time_is_nobody_s(provider: JsonWebTokens, changed: dict[str, Any]) -> None:
    # Times are told from now, not from when the tests were collected: that may be half an hour ago.
    given: dict[str, Any] = {k: in_s(v.total_seconds()) if isinstance(v, timedelta) else v for k, v in changed.items()}
    assert provider.principal(sign(**given)) is None


def test_a_clock_may_be_off_by_the_leeway(provider: JsonWebTokens) -> None:
    assert provider.principal(sign(exp=in_s(-2), nbf=in_s(2))) is not None


def unsigned() -> str:
    return jwt.encode(claims(), "", algorithm="none", headers={"kid": "rsa"})


def confused() -> str:
    """HS256 under the text of the public key: what a library verifies that takes the algorithm from the token."""
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "rsa"}, json.loads(json.dumps(claims(exp=4_000_000_000)))]
    signed = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    proof = base64.urlsafe_b64encode(hmac.new(pem, signed, hashlib.sha256).digest()).rstrip(b"=")
    return (signed + b"." + proof).decode()


@pytest.mark.parametrize(
    "token",
    [
        unsigned(),
        confused(),
        sign(STRANGER),
        sign(RSA, "RS512"),
        sign(RSA, kid="curve"),
        sign(RSA, kid="unknown"),
        sign(RSA, kid=None),
        sign()[:-4],
        "a.b.c",
        "é.é.é",
        "",
    ],
    ids=["none", "HS256", "stranger", "RS512", "wrong kid", "unknown kid", "no kid", "cut", "noise", "é", "empty"],
)
def test_what_the_issuer_did_not_sign_is_nobody_s(provider: JsonWebTokens, token: str) -> None:
    assert provider.principal(token) is None


def test_a_single_key_needs_no_id(provider: JsonWebTokens, jwks: Path) -> None:
    write(jwks, [jwk(RSA)])
    assert provider.principal(sign(kid=None)) is not None


def test_keys_are_read_again_when_the_file_changes(provider: JsonWebTokens, jwks: Path) -> None:
    stranger = sign(STRANGER, kid="next")
    assert (provider.principal(sign()) is None, provider.principal(stranger)) == (False, None)
    write(jwks, [jwk(STRANGER, kid="next")])
    assert (provider.principal(sign()), provider.principal(stranger) is None) == (None, False)


def test_keys_for_other_uses_are_passed_over(provider: JsonWebTokens, jwks: Path) -> None:
    write(jwks, [jwk(RSA, kid="sealing", use="enc"), jwk(RSA, kid="long", alg="RS512"), *KEYS])
    assert provider.principal(sign()) is not None
    assert provider.principal(sign(kid="sealing")) is None
    assert provider.principal(sign(RSA, "RS512", "long")) is None


SECRET = {"kty": "oct", "kid": "rsa", "k": "c2VjcmV0"}
PRIVATE = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": [1]}', json.dumps({"keys": [SECRET]}), json.dumps({"keys": [PRIVATE]})]
)
def test_a_file_that_is_no_set_of_public_keys_believes_nobody_and_says_so(
    provider: JsonWebTokens, jwks: Path, text: str
) -> None:
    jwks.write_text(text, encoding="utf-8")
    with pytest.raises(Refusal) as refused:
        provider.principal(sign())
    assert refused.value.reason is AdminReason.AuthenticationUnavailable


def test_settings_name_all_of_it_or_nothing(jwks: Path) -> None:
    wanted: list[Callable[[], JwtSettings]] = [
        lambda: JwtSettings(issuer=ISSUER, audience=AUDIENCE),
        lambda: JwtSettings(jwks_file=jwks),
        lambda: JwtSettings(issuer=ISSUER, jwks_file=jwks),
    ]
    for build in wanted:
        with pytest.raises(ValueError, match="together"):
            build()
    with pytest.raises(ValueError, match="not configured"):
        JsonWebTokens(JwtSettings())
