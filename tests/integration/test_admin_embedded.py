"""The embedded boundary: the whole app for the length of a block, and nothing of it afterwards; and its commands."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from statlib.admin.embedded import boundary, serve
from statlib.admin.principals import Capability
from statlib.admin.reasons import TokenReason
from statlib.admin.serving import Address
from statlib.admin.tokens import TOKEN_FILE, Tokens
from statlib.cli.main import main
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import AdminSettings, Settings
from statlib.review.catalogue import REVIEW
from statlib.statistics.documents import MEMBER
from tests.boundaries import boundary_of
from tests.children import _as_environment
from tests.domain import LIBRARY, SHELVES
from tests.reviews import FAMILY, Review, review


def listening() -> set[Any]:
    return {one.laddr for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN}


def test_nothing_of_an_embedded_boundary_outlives_its_block(settings: Settings) -> None:
    with review(settings) as opened:
        mongo = opened.mongo
        mongo.collection(MEMBER).find_one()
        threads, sockets, hosts = set(threading.enumerate()), listening(), mongo.collection(MEMBER).count_documents({})
        for _ in range(3):
            with boundary(mongo.settings, REVIEW) as client:
                assert client.status(opened.project).project == opened.project
                assert mongo.collection(MEMBER).count_documents({}) == hosts + 1
                assert len(listening()) == len(sockets) + 1
        for thread in set(threading.enumerate()) - threads:
            thread.join(timeout=20)
        left = {thread.name for thread in set(threading.enumerate()) - threads}
        assert left <= {"pymongo_kill_cursors_thread", "pymongo_server_monitor_thread", "pymongo_server_rtt_thread"}
        assert listening() == sockets
        assert mongo.collection(MEMBER).count_documents({}) == hosts


def test_a_failure_inside_the_block_takes_the_boundary_down_too(settings: Settings) -> None:
    with review(settings) as opened:
        hosts = opened.mongo.collection(MEMBER).count_documents({})
        urls: list[str] = []
        with pytest.raises(KeyError):
            _fail_inside(opened, urls)
        assert opened.mongo.collection(MEMBER).count_documents({}) == hosts
        port = int(urls[0].rsplit(":", 1)[1].rstrip("/"))
        with socket.socket() as probing:
            assert probing.connect_ex(("127.0.0.1", port)) != 0


def _fail_inside(opened: Review, urls: list[str]) -> None:
    with boundary(opened.mongo.settings, REVIEW) as client:
        urls.append(str(client._http.base_url))
        raise KeyError


def test_a_deployment_s_own_boundary_is_used_where_the_settings_name_one(settings: Settings) -> None:
    with boundary_of(settings) as remote:
        admin = AdminSettings(url=remote.url, token=SecretStr(remote.token(*Capability)))
        chosen = remote.library.mongo.settings.model_copy(update={"admin": admin})
        hosts = remote.library.mongo.collection(MEMBER).count_documents({})
        with boundary(chosen, LIBRARY, run="run-7") as client:
            client.backfill(remote.library.project, SHELVES)
            assert remote.library.mongo.collection(MEMBER).count_documents({}) == hosts
        assert {record["RunId"] for record in remote.audits(Action="postBackfill")} == {"run-7"}


def test_a_public_address_without_tls_is_refused_before_anything_is_opened(settings: Settings) -> None:
    with pytest.raises(Refusal) as refused:
        serve(settings, REVIEW, Address("0.0.0.0"), listening=pytest.fail)
    assert refused.value.reason is TokenReason.PublicWithoutTls


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Review]:
    with review(settings) as found:
        for name, value in _as_environment(found.mongo.settings).items():
            monkeypatch.setenv(name, value)
        yield found


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_an_operator_asks_why_backfills_compares_and_turns_gates(opened: Review) -> None:
    project = opened.project
    asked = run("why", project, "--family", FAMILY)
    assert asked.exit_code == 0, asked.output
    assert "served from the source: GuardNotFresh" in asked.stdout
    assert "Backfill the family." in asked.stdout
    assert run("parity", project, "--family", FAMILY).exit_code == 3
    done = run("backfill", project, FAMILY)
    assert f"{FAMILY}: 1 scope published" in done.stdout
    assert json.loads(run("why", project, "--json", "--family", FAMILY).stdout)["served"] is True
    compared = run("parity", project, "--family", FAMILY)
    assert (compared.exit_code, "exact" in compared.stdout) == (0, True)
    closed = json.loads(run("gate", "close", project, "--json", "--request-id", "the-request").stdout)
    assert closed["mode"] == "Disabled"
    assert json.loads(run("gate", "close", project, "--json", "--request-id", "the-request").stdout) == closed
    assert run("gate", "open", project).stdout.startswith(f"project {project}: open, opened ")
    assert run("fleet", "close").stdout.startswith("fleet: closed, mode epoch ")
    assert "closed: FleetDisabled" in " ".join(run("why", project).stdout.replace("CLOSED", "closed").split())
    assert run("fleet", "open").stdout.startswith("fleet: open, mode epoch ")


def test_several_families_or_all_that_are_kept_are_backfilled_by_one_command(opened: Review) -> None:
    project, kept = opened.project, sorted(opened.mongo.settings.statistics.families)
    (alone,) = json.loads(run("backfill", project, "--all", "--json").stdout)["families"]
    assert (alone["parity"]["family"], alone["parity"]["exact"], kept) == (FAMILY, True, [FAMILY])
    refused = run("backfill", project, FAMILY, "SearchPopulation")
    assert (refused.exit_code, "SettingsExclude: SearchPopulation" in refused.stderr) == (4, True)
    for words in ((), (FAMILY, "--all")):
        usage = run("backfill", project, *words)
        assert (usage.exit_code, "Name one family or more, or give --all." in usage.stderr) == (2, True)


@pytest.mark.parametrize("words", [("why",), ("backfill", FAMILY), ("parity",), ("gate open",)])
def test_an_unknown_project_is_said_to_be_unknown_before_anything_else(opened: Review, words: tuple[str, ...]) -> None:
    command, *others = words
    result = run(*command.split(), "00000000-0000-0000-0000-000000000009", *others)
    assert result.exit_code == 4
    assert result.stderr.startswith("refused: ProjectNotFound: project 00000000")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("why", "00000000-0000-0000-0000-000000000009"), 4),
        (("backfill", "00000000-0000-0000-0000-000000000009", FAMILY), 4),
        (("why", "no-id"), 2),
        (("admin", "serve", "--host", "0.0.0.0"), 2),
        (("admin", "token", "revoke", "nobody"), 4),
        (("admin", "token", "new", "a b", "--capability", "auditor"), 2),
        (("admin", "token", "new", "anna"), 2),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_remedy(opened: Review, words: tuple[str, ...], code: int) -> None:
    assert run(*words).exit_code == code


def test_tokens_are_made_listed_and_withdrawn(opened: Review) -> None:
    folder: Path = opened.mongo.settings.data_dir
    made = run("admin", "token", "new", "anna", "--capability", "auditor")
    token = made.stdout.strip()
    assert Tokens(folder / TOKEN_FILE).principal(token) is not None
    listed = run("admin", "token", "list").stdout
    assert "anna" in listed
    assert token not in listed
    (shown,) = json.loads(run("admin", "token", "list", "--json").stdout)["tokens"]
    assert run("admin", "token", "revoke", "anna", "--id", shown["id"]).exit_code == 0
    assert Tokens(folder / TOKEN_FILE).principal(token) is None
