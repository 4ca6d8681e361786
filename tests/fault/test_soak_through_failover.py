"""A soak that loses its primary twice: once to a kill, once to a step-down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statlib.evidence.verify import verify
from statlib.kernel.identifiers import new_token
from statlib.local.config_file import write_embedded
from statlib.local.replica_set import ReplicaSet
from statlib.review.catalogue import REVIEW

SOAK = {
    "apply": "true",
    "confirm": "local",
    "studies": "120",
    "reviewers": "4",
    "rate_per_s": "25",
    "duration_s": "20",
    "cadence": json.dumps({"read_s": 0.1, "parity_s": 0.5, "rebuild_s": 5}),
    "thresholds": json.dumps(
        {"operations_min": 500, "reads_min": 30, "comparisons_min": 5, "fallback_rate_max": 0.5,
         "bytes_per_operation_max": 20_000}
    ),
}  # fmt: skip


def _answered(archive: Path) -> int:
    """Submissions answered so far, by the capture that the run is writing."""
    return sum(path.read_bytes().count(b"\n") for path in archive.rglob("operations.jsonl"))


def _until(condition: Callable[[], bool], run: subprocess.Popen[str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert run.poll() is None, f"the run ended too early: {run.communicate()}"
        assert time.monotonic() < deadline, "the run did not get there in time"
        time.sleep(0.05)


@pytest.mark.timeout(400)
def test_no_save_is_lost_or_doubled_when_the_primary_is_killed_and_stepped_down(
    three_nodes: ReplicaSet, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    config = write_embedded(
        tmp_path / "data", uri=three_nodes.uri, database=f"t{new_token()}", families=sorted(REVIEW.families)
    )
    archive = tmp_path / "reports"
    arguments = [part for name, value in SOAK.items() for part in ("-p", f"{name}={value}")]
    command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", "soak_evidence", "--archive", str(archive)]
    run = subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "STATLIB_CONFIG": str(config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _until(lambda: _answered(archive) >= 100, run, 90)
        killed = three_nodes.wait_for_primary()
        three_nodes.kill(killed)
        three_nodes.wait_for_primary()
        three_nodes.restart(killed)
        resumed_from = _answered(archive)
        _until(lambda: _answered(archive) >= resumed_from + 100, run, 90)
        three_nodes.step_down()
        three_nodes.wait_for_primary()
        out, err = run.communicate(timeout=180)
    finally:
        run.kill()
        run.wait()

    assert run.returncode == 0, f"{out}\n{err}"
    (report,) = (path.parent for path in archive.rglob("report.html"))
    assert verify(report).ok
    captures = report / "evidence" / "captures"
    operations = [json.loads(line) for line in (captures / "operations.jsonl").read_text().splitlines()]
    confirmed = {row["event"] for row in operations if row["outcome"] in ("saved", "duplicate")}
    recorded = json.loads((captures / "loaded.json").read_text())["events_total"]
    assert confirmed == set(range(len(confirmed)))
    assert len(confirmed) > recorded > 400, "nothing was generated beside the record"
    assert any(row["attempts"] > 1 or row["latency_ms"] > 1_000 for row in operations), "nothing was disturbed"
    parity = [json.loads(line) for line in (captures / "parity.jsonl").read_text().splitlines()]
    assert {row["family"] for row in parity if row["exact"]} == set(REVIEW.families)
    assert all(row["exact"] for row in parity if row["compared"])
    assert (report / "report.html").read_text().count("the primary is now") >= 2, (
        "the report does not say what happened"
    )
