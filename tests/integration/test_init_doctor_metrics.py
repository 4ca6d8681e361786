"""``statlib init``, ``doctor`` and ``metrics`` on real servers; alerts and dashboard against what is really emitted."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from statlib.cli.init import stored
from statlib.cli.main import main
from statlib.kernel.settings import MongoSettings, Settings
from statlib.local import process
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import server_time
from statlib.review.families.project_screening import NAME as FAMILY
from statlib.schedule.documents import SLOT
from statlib.schedule.states import SlotState
from statlib.schedule.storage import initialise as initialise_schedule
from statlib.statistics.bounds import DELTA_LEDGER_ROWS_MAX
from statlib.statistics.documents import CONTROL, GLOBAL_CONTROL, GUARD, FoldMode, Mode, State
from statlib.statistics.hosts import Role
from statlib.workers import deployment_gauges
from statlib.workers.deployment_gauges import DeploymentGauges, Gate, read_deployment
from tests.reviews import ALL_FAMILIES, host_of, review
from tests.servers import fail_command

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "docs" / "deploy" / "alerts.yml"
DASHBOARD = ROOT / "docs" / "deploy" / "dashboard.json"
GRID_COLUMNS = 24


@pytest.fixture
def named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The test's settings, in the environment: what a command of this deployment would load."""
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    return settings


def environment_of(settings: Settings) -> dict[str, str]:
    return {
        "STATLIB__MONGO__URI": settings.mongo.uri.get_secret_value(),
        "STATLIB__MONGO__DATABASE": settings.mongo.database,
        "STATLIB__DATA_DIR": str(settings.data_dir),
    }


def command(*words: str) -> tuple[int, Any]:
    result = CliRunner().invoke(main, [*words, "--json"])
    return result.exit_code, json.loads(result.stdout)


def checks_of(answer: Any) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in answer["checks"]}


def test_init_creates_everything_once_and_says_what(named: Settings, mongo: Mongo) -> None:
    code, first = command("init")
    assert code == 0
    assert first["fleet_control"] is True
    assert first["fleet_mode"] == Mode.DISABLED
    assert set(first["collections"]) == stored(mongo).collections
    assert set(first["indexes"]) == stored(mongo).indexes
    assert {GLOBAL_CONTROL, GUARD, SLOT} <= set(first["collections"])
    code, second = command("init")
    assert (code, second["collections"], second["indexes"], second["fleet_control"]) == (0, [], [], False)
    assert "nothing was missing" in CliRunner().invoke(main, ["init"]).stdout


def test_init_puts_back_what_is_missing_and_changes_nothing_that_is_there(named: Settings, mongo: Mongo) -> None:
    command("init")
    mongo.collection(GLOBAL_CONTROL).update_one({}, {"$set": {"Mode": "Enabled", "Foreign": 1}})
    before = mongo.collection(GLOBAL_CONTROL).find_one()
    mongo.collection(SLOT).drop()
    code, found = command("init")
    assert (code, found["collections"], found["fleet_control"], found["fleet_mode"]) == (0, [SLOT], False, "Enabled")
    assert mongo.collection(GLOBAL_CONTROL).find_one() == before


def test_doctor_finds_a_good_server_good_and_an_empty_database_unprepared(named: Settings, mongo: Mongo) -> None:
    code, answered = command("doctor")
    found = checks_of(answered)
    assert code == 0
    for name in ("server", "server version", "replica set", "server time", "snapshots", "transactions", "projects"):
        assert found[name]["level"] == "ok", found[name]
    assert (found["storage"]["level"], found["storage"]["remedy"]) == ("warn", "statlib init")
    assert mongo.database.list_collection_names() == [], "a doctor changes nothing"
    command("init")
    assert checks_of(command("doctor")[1])["storage"]["level"] == "ok"


def test_doctor_names_projects_that_are_not_in_this_database(
    named: Settings, mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = "6d1d2c8e-0f4b-4f0f-9a51-3f3a6a1b2c3d"
    monkeypatch.setenv("STATLIB__STATISTICS__ALLOWLIST", json.dumps([absent]))
    found = checks_of(command("doctor")[1])["projects"]
    assert found["level"] == "warn"
    assert absent in found["found"]


def test_doctor_warns_of_a_long_transaction_lifetime_with_the_command_that_sets_it(
    named: Settings, mongo: Mongo
) -> None:
    mongo.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)
    try:
        code, answered = command("doctor")
    finally:
        mongo.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=10)
    found = checks_of(answered)["transactions"]
    assert (code, found["level"]) == (0, "warn")
    assert "transactionLifetimeLimitSeconds: 10" in found["remedy"]
    assert "mongosh 'mongodb://127.0.0.1:" in found["remedy"]
    assert checks_of(command("doctor")[1])["transactions"]["level"] == "ok"


def test_doctor_fails_a_standalone_server(
    mongo_server: ReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = process.Node(dbpath=tmp_path / "db", log=tmp_path / "log", port=process.free_ports(1)[0])
    node.dbpath.mkdir()
    words = process.arguments(node, process.ServerOptions())
    at = words.index("--replSet")
    del words[at : at + 2]
    subprocess.run([mongo_server.binary.path, *words, "--fork"], check=True, capture_output=True, timeout=60)
    try:
        monkeypatch.setenv("STATLIB__MONGO__URI", f"mongodb://{node.address}/")
        code, answered = command("doctor")
    finally:
        process.stop(node.dbpath)
    found = checks_of(answered)
    assert code == 1
    assert (found["server"]["level"], found["replica set"]["level"]) == ("ok", "fail")
    assert found["replica set"]["remedy"]
    assert "snapshots" not in found, "what cannot be asked is not said to hold"


def test_a_reading_counts_families_hosts_ledgers_and_slots(settings: Settings) -> None:
    with review(settings) as one:
        initialise_schedule(one.mongo)
        found = read_deployment(one.mongo)
        assert (found.fleet_open, found.projects) == (True, 1)
        assert found.families[State.FRESH, Gate.OPEN] == 0
        assert found.hosts == {Role.API: 1, Role.PROJECT_MANAGEMENT: 0}
        assert found.ledger_headroom == DELTA_LEDGER_ROWS_MAX
        one.backfill()
        assert read_deployment(one.mongo).families[State.FRESH, Gate.OPEN] == 1
        one.mongo.collection(CONTROL).update_one({}, {"$inc": {"CommittedProjectionRevision": 99_990}})
        assert read_deployment(one.mongo).ledger_headroom == pytest.approx(10, abs=2)
        one.gate(enabled=False)
        closed = read_deployment(one.mongo)
        assert (closed.families[State.FRESH, Gate.OPEN], closed.families[State.FRESH, Gate.CLOSED]) == (0, 1)
        one.gate(enabled=True)
        assert read_deployment(one.mongo).families[State.STALE, Gate.OPEN] == len(ALL_FAMILIES)
        one.fleet(Mode.DISABLED)
        assert read_deployment(one.mongo).families[State.STALE, Gate.CLOSED] == len(ALL_FAMILIES)
        now = server_time(one.mongo)
        one.mongo.collection(SLOT).insert_many(
            [
                {"_id": 1, "Schedule": "a", "SlotAtUtc": now, "SlotCount": 3, "State": SlotState.MISSED.value},
                {"_id": 2, "Schedule": "b", "SlotAtUtc": now, "SlotCount": 1, "State": SlotState.RUNNING.value},
            ]
        )
        one.mongo.clock.advance(2 * 86_400)
        later = read_deployment(one.mongo)
        assert later.slots[SlotState.RUNNING] == 1, "however long ago it fell due"
        assert later.slots[SlotState.MISSED] == 0, "not within the last day"
        assert later.oldest_open_slot_age_s >= 2 * 86_400
        assert later.hosts[Role.API] == 0, "it has not renewed for two minutes of the deployment's time"
    with host_of(settings, Role.PROJECT_MANAGEMENT) as host:
        assert read_deployment(host.mongo).hosts[Role.PROJECT_MANAGEMENT] == 1


def test_a_reading_is_shared_and_an_unreachable_database_has_none(
    settings: Settings, mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = "statlib-gauges"
    with connected(settings, app_name=app) as watched:
        gauges = DeploymentGauges(watched)
        with fail_command(mongo.client, ["aggregate"], error_code=13, app_name=app):
            assert gauges.reading() is None
        assert gauges.reading() is None, "a reading lasts"
        monkeypatch.setattr(deployment_gauges, "READING_LASTS_S", 0.0)
        assert gauges.reading() is not None


@contextmanager
def serving(settings: Settings, *words: str) -> Iterator[str]:
    """``statlib metrics`` as a process; its URL. It must end with 0 at SIGTERM."""
    ran = subprocess.Popen(
        [sys.executable, "-m", "statlib.cli.main", "metrics", "--port", "0", "--json", *words],
        env={**os.environ, **environment_of(settings)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert ran.stdout is not None
        yield json.loads(ran.stdout.readline())["url"]
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(timeout=30) == 0
    finally:
        ran.kill()
        ran.communicate(timeout=30)


def scraped(url: str) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    text = httpx.get(url, timeout=30).raise_for_status().text
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_are_served_on_loopback_and_name_nobody(settings: Settings) -> None:
    with review(settings) as one, serving(settings) as url:
        one.backfill()
        found = scraped(url)
    assert url.startswith("http://127.0.0.1:")
    assert found["statlib_database_reachable"] == [({}, 1.0)]
    served = [value for labels, value in found["statlib_families"] if labels == {"state": "FRESH", "gate": "OPEN"}]
    assert served == [1.0]
    assert ({"role": "API"}, 1.0) in found["statlib_hosts_live"]
    assert found["process_resident_memory_bytes"][0][1] > 0
    own = {name: samples for name, samples in found.items() if name.startswith("statlib_")}
    labels = json.dumps([labels for samples in own.values() for labels, _ in samples])
    assert str(one.project) not in labels
    assert FAMILY not in labels
    assert not re.search(r"[0-9a-f]{8}", labels)


def test_a_port_that_is_taken_is_one_line_and_a_remedy(settings: Settings) -> None:
    with serving(settings) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        ran = subprocess.run(
            [sys.executable, "-m", "statlib.cli.main", "metrics", "--port", port],
            env={**os.environ, **environment_of(settings)},
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert ran.returncode == 6
    assert ran.stderr.splitlines()[-1] == "remedy: Give another --port or --address."


@pytest.fixture(scope="module")
def emitted(mongo_server: ReplicaSet) -> set[str]:
    """Names of series as Prometheus sees them: every instrument that the code declares, really exported."""
    counted = sorted({name for path in (ROOT / "statlib").rglob("*.py") for name in counters_in(path)})
    assert "bundles.read" in counted
    code = (
        "import sys; from urllib.request import urlopen; from statlib.kernel import telemetry\n"
        "from statlib.workers.exposition import exposed\n"
        "from statlib.kernel.settings import load_settings; from statlib.mongo.connection import connected\n"
        "from statlib.workers.deployment_gauges import DeploymentGauges\n"
        "with connected(load_settings()) as mongo, exposed() as url:\n"
        "    DeploymentGauges(mongo).declare()\n"
        "    for name in sys.argv[1:]: telemetry.count(name)\n"
        "    print(urlopen(url).read().decode())"
    )
    settings = Settings(mongo=MongoSettings(uri=SecretStr(mongo_server.uri), database="emitted"))
    ran = subprocess.run(
        [sys.executable, "-c", code, *counted],
        env={**os.environ, **environment_of(settings)}, cwd=ROOT, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return {sample.name for family in text_string_to_metric_families(ran.stdout) for sample in family.samples}


def counters_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="count", value=ast.Name(id="telemetry")), args=[ast.Constant(name)]):
                yield str(name)


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_is_valid_and_asks_for_what_is_emitted(emitted: set[str], expression: str) -> None:
    promql_parser.parse(expression)  # raises for what Prometheus would not load
    asked = set(re.findall(r"\b(?:statlib|process)_\w+", expression))
    assert asked
    assert asked <= emitted


def test_every_state_and_gate_that_an_expression_names_exists() -> None:
    known = {State: "state", Gate: "gate"}
    names = {label: set(enum.__members__) for enum, label in known.items()}
    names["state"] |= set(SlotState.__members__)
    names["mode"] = set(FoldMode.__members__)
    for expression in expressions():
        for label, values in re.findall(r'\b(state|gate|mode)[!=]=?~?"([^"]+)"', expression):
            assert set(values.split("|")) <= names[label], expression


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_the_dashboard_s_panels_are_numbered_once_and_do_not_cover_each_other() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    covered: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= GRID_COLUMNS
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & cells, panel["title"]
        covered |= cells
