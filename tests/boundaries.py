"""A served boundary for tests: the real app on a loopback port, a library behind it, and credentials of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI

from statlib.admin.app import create_app
from statlib.admin.authentication import authentication_of, token_file
from statlib.admin.client import AdminClient
from statlib.admin.principals import Capability
from statlib.admin.routes import PREFIX
from statlib.admin.serving import in_background
from statlib.admin.tokens import Tokens
from statlib.backfills.service import Backfills
from statlib.kernel.settings import JwtSettings, Settings
from statlib.passes.audit import AUDIT
from statlib.postgres.transactions import transact
from tests.domain import LIBRARY, Library, library

ISSUER = "https://issuer.example"
AUDIENCE = "statlib-tests"


class Issuer:
    """Signs tokens with ES256, and keeps its public key where the boundary looks for it."""

    def __init__(self, folder: Path) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.jwks = folder / "jwks.json"
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.jwks.write_text(json.dumps({"keys": [public | {"kid": "one", "use": "sig"}]}), encoding="utf-8")

    @property
    def settings(self) -> JwtSettings:
        return JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=self.jwks)

    def sign(self, *capabilities: Capability, lives_s: float = 300, **claims: Any) -> str:
        stated = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "jo",
            "exp": datetime.now(UTC) + timedelta(seconds=lives_s),
            "capabilities": [capability.value for capability in capabilities],
        }
        return jwt.encode(stated | claims, self.key, algorithm="ES256", headers={"kid": "one"})


@dataclass(frozen=True)
class Boundary:
    """A boundary that listens, and what is behind it."""

    library: Library
    app: FastAPI
    url: str
    tokens: Tokens
    issuer: Issuer
    backfills: Backfills | None = None

    def on_record(self) -> int:
        """How many audit records there are, in every database."""
        kept = int(self.library.mongo.collection(AUDIT).estimated_document_count())
        if self.backfills is None:
            return kept
        counting = "SELECT count(*) AS kept FROM statlib_backfill_audit"
        return kept + int(transact(self.backfills.postgres, lambda session: session.required(counting))["kept"])

    def http(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def token(self, *capabilities: Capability, name: str = "anna") -> str:
        return self.tokens.mint(name, frozenset(capabilities))

    def client(self, *capabilities: Capability, name: str = "olga", run: str = "") -> AdminClient:
        """Of an operator who may do everything, unless capabilities are named."""
        return AdminClient(self.url, self.token(*(capabilities or tuple(Capability)), name=name), run=run)

    def audits(self, **wanted: Any) -> list[dict[str, Any]]:
        return list(self.library.mongo.collection(AUDIT).find(wanted).sort([("ObservedAtUtc", 1), ("_id", 1)]))

    def path(self, rest: str) -> str:
        return PREFIX + rest


@contextmanager
def boundary_of(base: Settings, *, backfills: Backfills | None = None, **options: Any) -> Iterator[Boundary]:
    """A library, not yet backfilled, behind a boundary of its own; data backfills too, if there are any."""
    base.data_dir.mkdir(parents=True, exist_ok=True)
    issuer = Issuer(base.data_dir)
    settings = base.model_copy(update={"admin": base.admin.model_copy(update={"jwt": issuer.settings})})
    with library(settings, **options) as opened:
        app = create_app(opened.host, LIBRARY, authentication_of(opened.mongo.settings), backfills)
        with in_background(app) as url:
            yield Boundary(opened, app, url, Tokens(token_file(opened.mongo.settings)), issuer, backfills)


def new_request_id() -> dict[str, str]:
    return {"X-Request-Id": str(uuid4())}
