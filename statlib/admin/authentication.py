"""From a request's credentials to a principal: the first provider that knows them answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from statlib.admin.json_web_tokens import JsonWebTokens
from statlib.admin.principals import Principal
from statlib.admin.reasons import AdminReason
from statlib.admin.tokens import TOKEN_FILE, Tokens
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings

CREDENTIALS_CHARACTERS_MAX = 8_192


class Provider(Protocol):
    """Knows the tokens of one authority."""

    def principal(self, token: str) -> Principal | None: ...


@dataclass(frozen=True, slots=True)
class Authentication:
    """The providers of a boundary, in the order in which they are asked."""

    providers: Sequence[Provider]

    def principal(self, authorization: str | None) -> Principal:
        """Who sent this ``Authorization`` header. Refuses Unauthenticated, AuthenticationUnavailable."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and 0 < len(token) <= CREDENTIALS_CHARACTERS_MAX:
            for provider in self.providers:
                if (found := provider.principal(token)) is not None:
                    return found
        raise Refusal(AdminReason.Unauthenticated)


def token_file(settings: Settings) -> Path:
    """Where this deployment's tokens are: as set, else in its data folder."""
    return settings.admin.token_file or settings.data_dir / TOKEN_FILE


def authentication_of(settings: Settings) -> Authentication:
    """The providers that the settings name: the token file always, JSON Web Tokens where configured."""
    providers: list[Provider] = [Tokens(token_file(settings))]
    if settings.admin.jwt.jwks_file is not None:
        providers.append(JsonWebTokens(settings.admin.jwt))
    return Authentication(tuple(providers))
