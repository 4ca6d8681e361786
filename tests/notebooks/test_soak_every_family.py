"""Small soaks of every kind of data: all nine families exact, both namespaces accounted for, and forgeries refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statlib import application
from statlib.evidence.verify import verify
from statlib.examples import transparency_export
from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import load_settings
from statlib.local.config_file import write_embedded
from statlib.local.replica_set import ReplicaSet
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, Project
from statlib.statistics.reader import ALL, Source
from tests.oracles.few_articles import few_articles
from tests.oracles.real_data import real_review

pytestmark = pytest.mark.timeout(600)

ARTICLES = 8  # of the real export, so that a soak of it takes seconds
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SMALL = {
    "apply": "true",
    "confirm": "local",
    "rate_per_s": "0",
    "duration_s": "4",
    "cadence": json.dumps({"parity_s": 0.5, "rebuild_s": 2, "quiet_s": 1}),
    "mutations": json.dumps({"corrections": 0.05, "retractions": 0.05, "claims": 0.1}),
    "thresholds": json.dumps(
        {"operations_min": 20, "reads_min": 5, "comparisons_min": 2, "fallback_rate_max": 1,
         "bytes_per_operation_max": 1_000_000}
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Soaked:
    """One soak that passed, its report, and what the database holds since."""

    report: Path
    config: Path

    def rows(self, capture: str) -> list[dict[str, Any]]:
        files = sorted((self.report / "evidence" / "captures").glob(f"{capture}*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]

    def document(self, capture: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.report / "evidence/captures" / f"{capture}.json").read_text())
        return found


def soaked(server: ReplicaSet, folder: Path, **given: str) -> Soaked:
    data = folder / "data"
    data.mkdir(parents=True, mode=0o700)
    config = write_embedded(data, uri=server.uri, database=f"t{new_token()}", families=sorted(REVIEW.families))
    command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", "soak_evidence"]
    parameters = [part for name, value in (SMALL | given).items() for part in ("-p", f"{name}={value}")]
    done = subprocess.run(
        [*command, "--archive", str(folder / "reports"), *parameters],
        env={**os.environ, "STATLIB_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (report,) = (path.parent for path in folder.rglob("report.html"))
    return Soaked(report, config)


@pytest.fixture(scope="module")
def simulated(mongo_server: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Soaked:
    return soaked(mongo_server, tmp_path_factory.mktemp("simulated"), studies="20", rate_per_s="40")


def named(counters: Mapping[str, int], project: Project) -> dict[str, int]:
    """Without zeros, with the export's names in place of ids."""
    return {spelt(key, project): count for key, count in counters.items() if count}


def spelt(text: str, project: Project) -> str:
    names = {str(member.investigator_id): member.name for member in project.memberships}
    names |= {str(search.id): search.name for search in project.searches}
    names |= {str(stage.id): stage.name for stage in project.stages}
    names |= {str(question.id): f"Q{number:02}" for number, question in enumerate(project.questions, 1)}
    return _UUID.sub(lambda found: names[found[0]], text)


def test_the_simulated_review_exercises_every_writer_and_every_family(simulated: Soaked) -> None:
    assert verify(simulated.report).ok
    confirmed = [row for row in simulated.rows("operations") if row["outcome"] in ("saved", "duplicate")]
    assert {row["writer"] for row in confirmed} == {"decision", "session", "claim", "release", "besides"}
    total = simulated.document("loaded")["events_total"]
    assert {row["event"] for row in confirmed} > set(range(total))
    assert {row["edit"] for row in simulated.rows("edits")} == {"Leave", "Join", "SetThreshold"}
    assert {row["family"] for row in simulated.rows("reads")} == {
        "project page",
        "stage page",
        "reviewer page",
        "every family",
    }
    compared = Counter(row["family"] for row in simulated.rows("parity") if row["exact"])
    assert compared.keys() == REVIEW.families.keys()
    assert all(row["exact"] for row in simulated.rows("parity") if row["compared"])


def test_every_receipt_is_of_a_confirmed_operation_in_its_namespace(simulated: Soaked) -> None:
    confirmed = Counter(
        (row["namespace"], row["operation_id"])
        for row in simulated.rows("operations")
        if row["outcome"] in ("saved", "duplicate")
    )
    receipts = Counter((row["namespace"], row["operation_id"]) for row in simulated.rows("receipts"))
    assert receipts == Counter(dict.fromkeys(confirmed, 1))
    assert {namespace for namespace, _ in receipts} == {"stats.source.screening", "stats.source.annotation"}


@pytest.mark.parametrize(
    ("capture", "old", "new"),
    [
        ("parity.jsonl", '"exact":false', '"exact":true'),
        ("receipts.jsonl", '"before":0', '"before":1'),
        ("operations.jsonl", '"writer":"besides"', '"writer":"decision"'),
        ("thresholds.json", '"recounted":["reviewer page"', '"recounted":["project page"'),
    ],
)
def test_a_forged_capture_is_refused(simulated: Soaked, tmp_path: Path, capture: str, old: str, new: str) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(simulated.report, forged)
    path = forged / "evidence" / "captures" / capture
    text = path.read_text(encoding="utf-8")
    compact = text if old in text else json.dumps(json.loads(text), separators=(",", ":"))
    assert old in compact
    path.write_text(compact.replace(old, new, 1), encoding="utf-8")
    found = verify(forged)
    assert not found.ok
    assert capture in " ".join(str(finding) for finding in found.findings)


def test_a_real_annotation_export_ends_as_pandas_counts_its_raw_files(mongo_server: ReplicaSet, tmp_path: Path) -> None:
    export = few_articles(real_review("hardwicke2023_transparency"), tmp_path / "export", ARTICLES)
    found = soaked(mongo_server, tmp_path / "run", data=str(export))
    assert verify(found.report).ok
    expected = transparency_export.families(export)
    assert sum(counters.get("Studies", 0) for counters in expected["SearchPopulation"].values()) == ARTICLES
    with application.host(settings=load_settings(found.config)) as host:
        project = Project.from_bson(host.mongo.collection(PROJECTS).find_one({}) or {})
        bundle = application.read_bundle(host, project.id, [(family, ALL) for family in REVIEW.families])
    assert bundle.source is Source.MATERIALISED
    assert expected == {
        family: {spelt(scope, project): named(counters, project) for scope, counters in scopes.items()}
        for family, scopes in bundle.values.items()
    }


def test_the_stage_that_is_named_of_a_two_stage_review_is_replayed(mongo_server: ReplicaSet, tmp_path: Path) -> None:
    folder = real_review("dimitrov_snhl")
    found = soaked(mongo_server, tmp_path, data=str(folder), review="full text")
    assert verify(found.report).ok
    assert "full text" in found.document("loaded")["provenance"]["source"]
    assert {row["writer"] for row in found.rows("operations")} == {"decision"}
