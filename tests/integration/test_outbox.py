"""The outbox dispatcher: what receivers are told, and what is owed until they took it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from statlib.cli.main import main
from statlib.kernel.settings import Settings
from statlib.passes.audit import server_time
from statlib.passes.delivery import Command, Webhook
from statlib.statistics.documents import OUTBOX
from statlib.workers.outbox import CLAIM_MARGIN_S, Round, dispatch_due, owed
from tests.children import _as_environment
from tests.domain import FAMILIES, LOANS, SHELVES, VISITS, Library, served_library

TIMEOUT_S = 10.0


@pytest.fixture
def served(emptied: Settings) -> Iterator[Library]:
    with served_library(emptied) as opened:
        yield opened


class Desk:
    """A receiver in this process. ``refuse`` makes it fail; ``meanwhile`` happens while it is being told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.refuse = ""
        self.meanwhile: Callable[[], object] | None = None

    def send(self, text: str, *, key: str, timeout_s: float) -> str:
        self.told.append({**json.loads(text), "key": key})
        if self.meanwhile is not None:
            self.meanwhile()
        return self.refuse


def dispatch(library: Library, desk: Any) -> Round:
    return dispatch_due(library.mongo, desk, timeout_s=TIMEOUT_S)


def slots(library: Library) -> dict[str, dict[str, Any]]:
    return {slot["_id"]["Family"]: slot for slot in library.mongo.collection(OUTBOX).find()}


def test_a_project_is_told_once_with_its_families_and_the_client_revision(served: Library) -> None:
    desk = Desk()
    assert dispatch(served, desk) == Round(taken=1, failed=0)
    revision = served.control()["ClientInvalidationRevision"]
    (told,) = desk.told
    assert (told["project"], told["families"], told["clientRevision"]) == (
        str(served.project), sorted(FAMILIES), revision,
    )  # fmt: skip
    assert told["key"] == f"{served.project}:{revision}"
    assert dispatch(served, desk) == Round(0, 0)
    assert owed(served.mongo) == 0


def test_changes_between_two_deliveries_are_told_as_one_and_only_the_families_they_touch(served: Library) -> None:
    desk = Desk()
    dispatch(served, desk)
    served.lend(served.books[0], "ann")
    served.lend(served.books[1], "bob")
    assert dispatch(served, desk) == Round(1, 0)
    assert desk.told[-1]["families"] == sorted([SHELVES, LOANS, VISITS])
    assert desk.told[-1]["clientRevision"] == served.control()["ClientInvalidationRevision"]
    assert len(desk.told) == 2


def test_a_change_while_a_receiver_is_told_is_still_owed(served: Library) -> None:
    desk = Desk()
    desk.meanwhile = lambda: served.lend(served.books[0])
    dispatch(served, desk)
    first = desk.told[0]["clientRevision"]
    desk.meanwhile = None
    assert dispatch(served, desk) == Round(1, 0)
    assert desk.told[1]["clientRevision"] == first + 1


def test_what_was_not_taken_is_owed_and_is_told_again_after_a_wait_that_doubles(served: Library) -> None:
    desk = Desk()
    desk.refuse = "the webhook answered 503"
    for wait_s in (1, 2, 4, 8):
        before = server_time(served.mongo)
        assert dispatch(served, desk) == Round(0, 1, "the webhook answered 503")
        due = {slot["NextAttemptAtUtc"] for slot in slots(served).values()}
        assert before + timedelta(seconds=wait_s) <= max(due) <= server_time(served.mongo) + timedelta(seconds=wait_s)
        served.mongo.clock.advance(wait_s)
    assert {slot["Attempts"] for slot in slots(served).values()} == {4}
    assert {slot["LastFailure"] for slot in slots(served).values()} == {"the webhook answered 503"}
    desk.refuse = ""
    assert dispatch(served, desk) == Round(1, 0)
    assert owed(served.mongo) == 0
    assert {slot["Attempts"] for slot in slots(served).values()} == {0}


def test_what_is_not_due_yet_is_left_alone(served: Library) -> None:
    desk = Desk()
    desk.refuse = "no"
    dispatch(served, desk)
    served.mongo.collection(OUTBOX).update_many({}, {"$set": {"NextAttemptAtUtc": datetime(2999, 1, 1, tzinfo=UTC)}})
    assert dispatch(served, desk) == Round(0, 0)
    assert owed(served.mongo) == len(FAMILIES)


def test_a_dispatcher_that_died_while_telling_is_followed_by_another(served: Library) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    dying, desk = Desk(), Desk()
    dying.meanwhile = die
    with pytest.raises(Died):
        dispatch(served, dying)
    assert dispatch(served, desk) == Round(0, 0), "its claim stands"
    served.mongo.clock.advance(TIMEOUT_S + CLAIM_MARGIN_S)
    assert dispatch(served, desk) == Round(1, 0)
    assert desk.told == dying.told, "told twice, with the same key"


def test_a_late_settlement_does_not_take_back_what_another_dispatcher_told(served: Library) -> None:
    slow, quick = Desk(), Desk()

    def overtake() -> None:
        served.mongo.clock.advance(TIMEOUT_S + CLAIM_MARGIN_S)
        served.lend(served.books[0])
        dispatch(served, quick)

    slow.meanwhile = overtake
    dispatch(served, slow)
    assert quick.told[0]["clientRevision"] > slow.told[0]["clientRevision"]
    assert owed(served.mongo) == 0


def test_two_dispatchers_at_once_tell_each_project_once(served: Library) -> None:
    desk, entered = Desk(), threading.Barrier(2)

    def together() -> None:
        entered.wait(timeout=30)
        dispatch(served, desk)

    threads = [threading.Thread(target=together) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    told = [family for message in desk.told for family in message["families"]]
    assert sorted(told) == sorted(FAMILIES)


# --- receivers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """An address, and what was posted there as (key, message). ``/busy`` answers 503."""
    posted: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.headers["Idempotency-Key"], json.loads(text)))
            self.send_response(503 if self.path == "/busy" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()
        serving.join()


def test_a_webhook_is_told_with_an_idempotency_key(
    served: Library, webhook: tuple[str, list[tuple[str, dict[str, Any]]]]
) -> None:
    url, posted = webhook
    assert dispatch(served, Webhook(f"{url}/busy")) == Round(0, 1, "the webhook answered 503")
    served.mongo.clock.advance(1)
    assert dispatch(served, Webhook(url)) == Round(1, 0)
    assert [key for key, _ in posted] == [f"{served.project}:{posted[0][1]['clientRevision']}"] * 2


def test_the_command_tells_a_receiver_what_is_owed_and_says_how_many_took_it(
    served: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _as_environment(served.mongo.settings).items():
        monkeypatch.setenv(name, value)
    heard = tmp_path / "heard.json"
    script = f"import sys; open({str(heard)!r}, 'w').write(sys.stdin.read())"
    monkeypatch.setenv("STATLIB__OUTBOX__COMMAND", f'{sys.executable} -c "{script}"')
    result = CliRunner().invoke(main, ["worker", "outbox", "--once", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"taken": 1, "failed": 0, "failure": ""}
    assert json.loads(heard.read_text(encoding="utf-8"))["project"] == str(served.project)

    served.lend(served.books[0])
    monkeypatch.setenv("STATLIB__OUTBOX__COMMAND", f'{sys.executable} -c "raise SystemExit(3)"')
    refused = CliRunner().invoke(main, ["worker", "outbox", "--once"])
    assert refused.exit_code == 4
    assert "not taken: the command ended with 3" in refused.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "set exactly one of outbox.url"),
        ({"URL": "http://a", "COMMAND": "true"}, "set exactly one of outbox.url"),
        ({"URL_VARIABLE": "NO_SUCH_HOOK"}, "NO_SUCH_HOOK, which is not set"),
    ],
)
def test_a_receiver_that_is_missing_or_ambiguous_is_refused_before_anything_is_told(
    served: Library, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str
) -> None:
    for name, value in {
        **_as_environment(served.mongo.settings),
        **{f"STATLIB__OUTBOX__{name}": v for name, v in given.items()},
    }.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["worker", "outbox", "--once"])
    assert result.exit_code == 2
    assert expected in result.stderr
    assert owed(served.mongo) == len(FAMILIES)


def test_a_command_that_cannot_be_started_or_does_not_end_is_a_failure_in_one_line() -> None:
    assert "could not be started" in Command(["/no/such/command"]).send("{}", key="k", timeout_s=5)
    slow = Command([sys.executable, "-c", "import time; time.sleep(60)"])
    assert slow.send("{}", key="k", timeout_s=0.5) == "the command did not end within 0.5 s"
    assert Webhook("http://127.0.0.1:9").send("{}", key="k", timeout_s=2).startswith("the webhook failed: ")
