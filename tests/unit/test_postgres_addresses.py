"""What a PostgreSQL address is refused for before anything is asked of a server, and what the worker's command says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import PostgresSettings, Settings
from statlib.postgres.connection import PostgresRole, address_of, connected
from statlib.postgres.reasons import PostgresReason


def at(url: str) -> Settings:
    return Settings(postgres=PostgresSettings(url=SecretStr(url), connect_timeout_s=1))


@pytest.mark.parametrize("role", PostgresRole)
def test_an_empty_address_is_refused_by_its_setting_s_name(role: PostgresRole) -> None:
    with pytest.raises(Refusal) as refused:
        address_of(Settings(), role)
    assert refused.value.reason is PostgresReason.PostgresNotConfigured
    assert "postgres." in refused.value.detail


def test_an_address_that_cannot_be_read_is_refused_without_showing_it() -> None:
    with pytest.raises(Refusal) as refused:
        address_of(at("postgresql://anna:geheim@host:port:port/x?y"), PostgresRole.RUNTIME)
    assert refused.value.reason is PostgresReason.PostgresAddressInvalid
    assert "geheim" not in str(refused.value)


def test_nobody_listening_is_refused_in_time() -> None:
    with pytest.raises(Refusal) as refused, connected(at("postgresql://anna@127.0.0.1:9/x")):
        pass
    assert refused.value.reason is PostgresReason.PostgresUnreachable


def test_the_worker_s_command_says_who_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_settings: Any, _registry: Any, _cancellation: Any, *, started: Any) -> None:
        started("me")

    monkeypatch.setattr("statlib.workers.backfills.run", run)
    told = CliRunner().invoke(main, ["worker", "backfills", "--json"])
    assert (told.exit_code, json.loads(told.stdout)) == (0, {"owner": "me", "metrics": None})
