"""Tokens: hashed, private, rotated without a gap, and safe from two minters at once."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from statlib.admin import tokens as module
from statlib.admin.principals import Capability
from statlib.admin.reasons import AdminReason, TokenReason
from statlib.admin.tokens import Tokens, embedded_token
from statlib.kernel.refusals import Fault, Refusal

AUDITOR = frozenset({Capability.AUDITOR})
EVERYTHING = frozenset(Capability)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "private" / "tokens.json")


def test_a_token_resolves_to_its_principal_and_is_kept_only_as_a_hash(tokens: Tokens) -> None:
    token = tokens.mint("anna", AUDITOR)
    found = tokens.principal(token)
    assert found is not None
    assert (found.name, found.capabilities, found.authority) == ("anna", AUDITOR, "token")
    assert tokens.principal(token[:-1]) is None
    assert token not in tokens.path.read_text(encoding="utf-8")
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


def test_rotation_leaves_two_live_tokens_and_a_third_replaces_the_oldest(tokens: Tokens) -> None:
    first, second = tokens.mint("anna", AUDITOR), tokens.mint("anna", EVERYTHING)
    other = tokens.mint("bert", AUDITOR)
    assert None not in {tokens.principal(first), tokens.principal(second)}
    third = tokens.mint("anna", AUDITOR)
    assert tokens.principal(first) is None
    assert None not in {tokens.principal(one) for one in (second, third, other)}
    made = [one.created_at_utc for one in tokens.listed()]
    assert made == sorted(made)


def test_a_revoked_token_is_nobody_s_at_once(tokens: Tokens) -> None:
    old, new = tokens.mint("anna", AUDITOR), tokens.mint("anna", AUDITOR)
    tokens.revoke("anna", id_=tokens.listed()[0].id)
    assert (tokens.principal(old), tokens.principal(new) is None) == (None, False)
    tokens.revoke("anna")
    assert tokens.listed() == ()


@pytest.mark.parametrize("id_", [None, "00000000"])
def test_revoking_what_is_not_there_is_refused(tokens: Tokens, id_: str | None) -> None:
    tokens.mint("bert", AUDITOR)
    with pytest.raises(Refusal) as refused:
        tokens.revoke("anna" if id_ is None else "bert", id_=id_)
    assert refused.value.reason is TokenReason.TokenUnknown


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [("", AUDITOR), ("jwt:jo", AUDITOR), ("a b", AUDITOR), ("x" * 81, AUDITOR), ("anna", frozenset())],
)
def test_a_token_without_a_plain_name_or_capability_is_refused(
    tokens: Tokens, name: str, capabilities: frozenset[Capability]
) -> None:
    with pytest.raises(Refusal) as refused:
        tokens.mint(name, capabilities)
    assert refused.value.reason is TokenReason.TokenInvalid
    assert not tokens.path.exists()


def test_minters_at_once_lose_nothing(tokens: Tokens) -> None:
    start, made = threading.Barrier(8), list[str]()

    def mint(number: int) -> None:
        start.wait(timeout=20)
        made.append(tokens.mint(f"operator-{number}", AUDITOR))

    minters = [threading.Thread(target=mint, args=(number,)) for number in range(8)]
    for minter in minters:
        minter.start()
    for minter in minters:
        minter.join(timeout=60)
        assert not minter.is_alive()
    assert len(made) == 8
    assert all(tokens.principal(token) is not None for token in made)


def test_a_lock_that_is_never_given_back_is_refused(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.mint("anna", AUDITOR)
    monkeypatch.setattr(module, "LOCK_PATIENCE_S", 0.05)
    with FileLock(f"{tokens.path}.lock"), pytest.raises(Refusal) as refused:
        tokens.mint("bert", AUDITOR)
    assert refused.value.reason is TokenReason.TokenFileBusy


def test_a_damaged_file_believes_nobody_and_says_so(tokens: Tokens) -> None:
    token = tokens.mint("anna", AUDITOR)
    tokens.path.write_text("{", encoding="utf-8")
    with pytest.raises(Refusal) as refused:
        tokens.principal(token)
    assert refused.value.reason is AdminReason.AuthenticationUnavailable
    with pytest.raises(Fault, match="damaged"):
        tokens.listed()


def test_a_file_of_before_ids_and_times_is_still_believed(tokens: Tokens) -> None:
    token = tokens.mint("anna", AUDITOR)
    (stored,) = tokens.listed()
    kept = f'{{"tokens": [{{"name": "anna", "sha256": "{stored.sha256}", "capabilities": ["auditor"]}}]}}'
    tokens.path.write_text(kept, encoding="utf-8")
    assert tokens.principal(token) is not None


def test_the_embedded_token_is_kept_until_it_is_withdrawn_or_allows_too_little(tmp_path: Path) -> None:
    first = embedded_token(tmp_path)
    assert embedded_token(tmp_path) == first
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.revoke("operator")
    second = embedded_token(tmp_path)
    assert second != first
    found = tokens.principal(second)
    assert found is not None
    assert found.capabilities == EVERYTHING
    kept = json.loads(tokens.path.read_text(encoding="utf-8"))
    kept["tokens"][0]["capabilities"].remove("auditor")
    tokens.path.write_text(json.dumps(kept), encoding="utf-8")
    assert embedded_token(tmp_path) != second
