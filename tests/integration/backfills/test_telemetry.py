"""What operators tell apart from metrics: it reconciles with PostgreSQL, names nobody, and unknown stays unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from pydantic import SecretStr

from statlib.backfills import telemetry as counters
from statlib.backfills.claims import acquire
from statlib.backfills.registry import Registry
from statlib.backfills.standing import ClaimStanding, Gate, Rows, read_standing
from statlib.backfills.telemetry import ClaimEvent, Ending, WorkEvent
from statlib.backfills.worker import Worker
from statlib.kernel import telemetry
from statlib.kernel.settings import PostgresSettings
from statlib.kernel.telemetry import Reading
from statlib.workers import backfill_gauges as gauges_of
from statlib.workers.backfill_gauges import GAUGES, backfill_gauges
from tests.backfilling import FOLD_NOTES, bench, fill_notes, shaped
from tests.postgres import Database

ALERTS = Path(__file__).parents[3] / "docs" / "deploy" / "backfill-alerts.yml"
SUFFIXES = {"s": "_seconds", "ms": "_milliseconds"}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], float]:
    """Everything that was counted, by name and labels."""
    found: dict[tuple[Any, ...], float] = {}

    def count(name: str, amount: int = 1, *, unit: str = "1", **labels: Enum) -> None:
        del unit
        key = (name, *labels.values())
        found[key] = found.get(key, 0) + amount

    monkeypatch.setattr(telemetry, "count", count)
    monkeypatch.setattr(telemetry, "record", lambda name, value, *, unit, **labels: count(name, 1, **labels))
    return found


@pytest.mark.req("BF-OBS-01", "BF-OBS-02", "BF-OBS-03", "BF-OBS-05", "BF-OBS-09", "BF-AUTH-19")
def test_gauges_follow_postgresql_through_a_backfill_s_life(database: Database) -> None:
    fill_notes(database)
    required = shaped(required=True)
    automatic = database.settings.model_copy(
        update={"backfills": database.settings.backfills.model_copy(update={"automatic": True})}
    )
    with bench(database, required) as b:
        manual = read_standing(b.postgres, b.registry)
        assert (manual.lifecycles["pending"], manual.gate) == (1, Gate.OFF)  # type: ignore[index]
        with backfill_gauges(automatic, b.registry) as gauges:
            reading = gauges.reading()
        assert reading is not None
        assert reading.gate is Gate.GATED
        b.start()
        claimed = acquire(b.postgres, b.registry, "owner")
        assert claimed is not None
        held = read_standing(b.postgres, b.registry)
        assert (held.lifecycles["running"], held.claims[ClaimStanding.HELD]) == (1, 1)  # type: ignore[index]
        b.expire_claims()
        lost = read_standing(b.postgres, b.registry)
        assert lost.claims == {ClaimStanding.HELD: 0, ClaimStanding.RUN_OUT: 1}
        assert lost.stalled_s > b.postgres.settings.backfills.claim_ttl_s, "a lack of progress shows"
        assert b.drive() == "completed"
        ended, row = read_standing(b.postgres, b.registry), b.row()
        assert (
            ended.rows
            == {Rows.SELECTED: row["rowsSelected"], Rows.CHANGED: row["rowsChanged"]}
            == {
                Rows.SELECTED: 15,
                Rows.CHANGED: 15,
            }
        )
        assert (ended.batches, ended.stalled_s) == (row["batches"], 0.0)
        assert [1000 * spent for spent in ended.spent_s.values()] == [row["executionMs"], row["validationMs"]]
        assert ended.proofs["success"] == ended.lifecycles["completed"] == 1  # type: ignore[index]
        with backfill_gauges(automatic, b.registry) as gauges:
            opened = gauges.reading()
        assert opened is not None
        assert opened.gate is Gate.OPEN


@pytest.mark.req("BF-OBS-04", "BF-OBS-09")
def test_what_failed_is_told_apart_by_kind(database: Database, counted: Mapping[tuple[Any, ...], float]) -> None:
    fill_notes(database)
    forgetful = shaped(mutate=FOLD_NOTES.mutate + " AND place <> 2")
    blocked = shaped(id="blocked", mutate="UPDATE absent SET text = NULL WHERE {window}")
    bound = shaped(id="too-much", mutate="UPDATE note SET touched = 1 WHERE {window} OR true")
    with bench(database, forgetful, blocked, bound) as b:
        for stable_id in b.registry.ids:
            one = Registry((b.registry.get(stable_id),))
            type(b)(database, b.postgres, one).start()
        b.drive()
        found = read_standing(b.postgres, b.registry)
    assert {kind.value: number for kind, number in found.failures.items() if number} == {
        "validation": 1,
        "prerequisite": 1,
        "bound": 1,
    }
    assert {state.value: number for state, number in found.lifecycles.items() if number} == {"failed": 2, "blocked": 1}
    endings = {key[1]: number for key, number in counted.items() if key[0] == "backfill.endings"}
    assert endings == {Ending.REJECTED: 1, Ending.BLOCKED: 1, Ending.RETRYING: 2, Ending.FAILED: 1}


@pytest.mark.req("BF-OBS-02", "BF-OBS-03", "BF-OBS-09")
def test_claims_and_work_are_counted_as_they_happen(
    database: Database, counted: Mapping[tuple[Any, ...], float]
) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        assert acquire(b.postgres, b.registry, "dies") is not None
        b.expire_claims()
        b.drive()
        row = b.row()
    claims = {key[1]: number for key, number in counted.items() if key[0] == "backfill.claims"}
    assert (claims[ClaimEvent.ACQUIRED], claims[ClaimEvent.TAKEN_OVER]) == (1, 1)
    assert claims[ClaimEvent.RENEWED] == row["batches"] + 2, "each batch and each step of the proof but the last"
    work = {key[1]: number for key, number in counted.items() if key[0] == "backfill.batches"}
    assert work[WorkEvent.ATTEMPTED] == work[WorkEvent.COMMITTED] == row["batches"] == 4
    assert counted["backfill.rows", WorkEvent.COMMITTED] == row["rowsSelected"]


@pytest.mark.req("BF-OBS-06", "BF-OBS-07")
def test_labels_are_of_closed_vocabularies_and_name_nobody(
    database: Database, counted: Mapping[tuple[Any, ...], float]
) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        b.drive()
        found = read_standing(b.postgres, b.registry)
    shown: list[Reading] = [reading for *_, values in GAUGES for reading in values(found)]
    labels = [label for reading in shown for label in reading.labels.values()]
    labels += [label for key in counted for label in key[1:]]
    assert labels
    assert all(isinstance(label, Enum) for label in labels)
    assert not {label.name for label in labels} & {"fold-notes", "operator"}


@pytest.mark.req("BF-OBS-08")
def test_a_database_that_does_not_answer_leaves_no_number_and_is_found_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges_of, "READING_LASTS_S", 0.0)
    declared: dict[str, Any] = {}
    monkeypatch.setattr(telemetry, "observe", lambda name, read, **_: declared.update({name: read}))
    address = database.settings.postgres.url.get_secret_value()
    away = database.settings.model_copy(
        update={"postgres": PostgresSettings(url=SecretStr(re.sub(r":\d+/", ":1/", address)))}
    )
    with backfill_gauges(away, Registry((FOLD_NOTES,))) as gauges:
        gauges.declare()
        assert [reading.value for reading in declared["postgres.reachable"]()] == [0.0]
        assert not any(list(read()) for name, read in declared.items() if name != "postgres.reachable")
        gauges._settings = database.settings
        assert [reading.value for reading in declared["postgres.reachable"]()] == [1.0]
        assert {name for name, read in declared.items() if list(read())} == set(declared)


@pytest.mark.req("BF-OBS-10")
def test_nothing_but_the_row_authorises_a_transition(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count and every reading lies; what is claimed, committed and completed stays what PostgreSQL says."""
    fill_notes(database)

    def nothing(*_: object, **__: object) -> None:
        return None

    for name in ("count_claim", "count_work", "count_ending", "record_duration"):
        for module in ("claims", "batches", "validation", "handling", "worker"):
            monkeypatch.setattr(f"statlib.backfills.{module}.{name}", nothing, raising=False)
        assert hasattr(counters, name)
    with bench(database) as b:
        assert Worker(b.postgres, b.registry).turn() is None
        b.start()
        assert b.drive() == "completed"
        assert b.folded() == 15


def emitted() -> set[str]:
    names = {name: unit for name, unit, *_ in GAUGES} | {"postgres.reachable": ""}
    return {"statlib_" + name.replace(".", "_") + SUFFIXES.get(unit, "") for name, unit in names.items()}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_is_emitted_and_says_what_to_do(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])
    asked = set(re.findall(r"\bstatlib_\w+", rule["expr"]))
    assert asked
    assert asked <= emitted()
    assert rule["annotations"].keys() == {"summary", "remedy"}
    values = set(re.findall(r'"([A-Z_|]+)"', rule["expr"]))
    known = {label.name for enum in (counters.Ending, Gate, ClaimStanding) for label in enum}
    known |= {"PAUSED", "BLOCKED", "FAILED"}
    assert {value for text in values for value in text.split("|")} <= known, json.dumps(rule)
