"""A recorded review with rows that cannot be read: the rest is soaked, and the answer says what was left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from statlib.kernel.identifiers import new_token
from statlib.local.config_file import write_embedded
from statlib.local.replica_set import ReplicaSet
from statlib.review.catalogue import REVIEW

ARTICLES = "article_id,year,month,journal,language,reviewer1,reviewer2,reviewer3,exclusion_reasons,labels\n"
EVENTS = "seq,created_at,reviewer,article_id,kind,key,value\n"


@pytest.mark.timeout(200)
def test_rows_that_were_not_loaded_are_named_and_change_the_exit_code(mongo_server: ReplicaSet, tmp_path: Path) -> None:
    export, data, archive = tmp_path / "export", tmp_path / "data", tmp_path / "reports"
    export.mkdir()
    data.mkdir(mode=0o700)
    rows = [f"{n},2021,,Journal,English,Excluded,,,," for n in range(20)]
    (export / "records_final_state.csv").write_text(ARTICLES + "\n".join(rows) + "\n")
    events = [f"{n},2021-05-12T11:08:{n:02d}.000Z,reviewer1,{n},decision,,-1" for n in range(20)]
    events[7] = events[7].replace("2021-05-12T11:08:07.000Z", "yesterday")
    (export / "events.csv").write_text(EVENTS + "\n".join(events) + "\n")
    config = write_embedded(data, uri=mongo_server.uri, database=f"t{new_token()}", families=sorted(REVIEW.families))
    given = {
        "apply": "true",
        "confirm": "local",
        "data": str(export),
        "rate_per_s": "0",
        "duration_s": "4",
        "cadence": json.dumps({"parity_s": 0.5, "rebuild_s": 0}),
        "thresholds": json.dumps({"operations_min": 10, "reads_min": 5, "comparisons_min": 2}),
    }
    command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", "soak_evidence", "--archive", str(archive)]
    done = subprocess.run(
        [*command, *(part for name, value in given.items() for part in ("-p", f"{name}={value}"))],
        env={**os.environ, "STATLIB_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    assert "rehearsal passed" in done.stdout
    assert "not loaded: " in done.stdout
    assert "events.csv" in done.stdout
    assert "row 9" in done.stdout
    (report,) = archive.rglob("report.html")
    first_screen, _, _ = report.read_text(encoding="utf-8").partition('id="gates"')
    assert "events.csv" in first_screen
