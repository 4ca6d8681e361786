"""The run that the repository tracks is sound, small, labelled for what it is, and says nothing of who made it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statlib.evidence.signing import read_trusted_keys
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import Assurance, Requirement, verify

SAMPLE = Path(__file__).resolve().parents[3] / "reports" / "sample"
BYTES_MAX = 600_000


@pytest.fixture(scope="module")
def folder() -> Path:
    (found,) = (SAMPLE / "soak_evidence").iterdir()
    return found


def test_the_sample_verifies_with_the_key_beside_it(folder: Path) -> None:
    trusted = read_trusted_keys([SAMPLE / "sample.pub"])
    found = verify(folder, trusted=trusted, require=frozenset({Requirement.SIGNATURE}))
    assert found.ok, found.findings
    assert (found.verdict, found.assurance) == (Verdict.REHEARSAL_PASSED, Assurance.SIGNED)


def test_the_sample_is_small_and_says_that_its_data_are_simulated(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < BYTES_MAX
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Rehearsal passed" in page
    assert re.search(r"[Ss]imulated", page)


def test_the_readme_names_the_run_that_is_there(folder: Path) -> None:
    assert folder.name in (SAMPLE / "README.md").read_text(encoding="utf-8")


def test_the_sample_names_no_machine(folder: Path) -> None:
    said = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not re.search(rb"/(?:home|root|tmp|work|Users)/", said)
    assert b"operator on sample" in said
