"""The database goes away in the middle of a soak, for good: the run ends, says so, and its report is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statlib.evidence.verify import verify
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import MongoSettings, Settings
from statlib.local.config_file import write_embedded
from statlib.local.replica_set import replica_set
from statlib.review.catalogue import REVIEW

SOAK = {
    "apply": "true",
    "confirm": "local",
    "studies": "60",
    "reviewers": "3",
    "rate_per_s": "20",
    "duration_s": "60",
    "cadence": json.dumps({"patience_s": 5, "parity_s": 1, "rebuild_s": 0}),
}


def answered(archive: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in archive.rglob("operations.jsonl"))


@pytest.mark.timeout(280)
def test_a_run_whose_database_is_gone_for_good_ends_as_a_fault_with_its_report(tmp_path: Path) -> None:
    data, archive = tmp_path / "data", tmp_path / "reports"
    data.mkdir(mode=0o700)
    with replica_set(for_tests=True, settings=Settings(mongo=MongoSettings())) as server:
        config = write_embedded(data, uri=server.uri, database=f"t{new_token()}", families=sorted(REVIEW.families))
        command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", "soak_evidence"]
        given = [part for name, value in SOAK.items() for part in ("-p", f"{name}={value}")]
        environment = {**os.environ, "STATLIB_CONFIG": str(config), "STATLIB__MONGO__SERVER_SELECTION_TIMEOUT_S": "2"}
        run = subprocess.Popen(
            [*command, *given, "--archive", str(archive)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + 90
            while answered(archive) < 50:
                assert run.poll() is None, run.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.kill(server.wait_for_primary())
            out, err = run.communicate(timeout=180)
        finally:
            run.kill()
            run.wait()
    assert run.returncode == 6, f"{out}\n{err}"
    (report,) = (path.parent for path in archive.rglob("report.html"))
    assert verify(report).ok, [str(finding) for finding in verify(report).findings]
    assert "was not confirmed within 5" in (report / "notebook.ipynb").read_text(encoding="utf-8")
    assert "fault" in out
