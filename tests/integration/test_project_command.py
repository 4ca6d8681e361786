"""``statlib project`` and ``statlib fences``: edits over the boundary, typed refusals, and rows that are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.settings import Settings
from statlib.review.documents import Search
from statlib.review.searches import import_search
from statlib.statistics.bounds import FENCE_LEASE_TTL_S
from tests.children import _as_environment as as_environment
from tests.edited_reviews import COLOUR, assert_right, new_studies, populate, populated
from tests.reviews import Review


@pytest.fixture
def opened(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Review]:
    with populated(emptied) as review:
        populate(review)
        for name, value in as_environment(review.mongo.settings).items():
            monkeypatch.setenv(name, value)
        yield review


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def said(*words: object, code: int = 0) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == code, result.output
    answered: dict[str, Any] = json.loads(result.stdout)
    return answered


def test_every_edit_has_a_command(opened: Review) -> None:
    project, newcomer = opened.project, uuid4()
    said("project", "rename", project, "renamed")
    stage = said("project", "stage", "add", project, "third", "--target", 1)["id"]
    said("project", "stage", "rename", project, stage, "last")
    said("project", "stage", "target", project, stage, 3)
    number = said("project", "question", "add", project, stage, "How many?", "--answer", "Integer")["id"]
    said("project", "question", "reword", project, number, "How much?")
    stored = opened.stored_project()
    assert stored["Name"] == "renamed"
    assert [(s["Name"], s["SessionCountTarget"]) for s in stored["Stages"]][-1] == ("last", 3)
    assert stored["Questions"][-1]["Text"] == "How much?"
    said("project", "question", "remove", project, number)
    said("project", "stage", "remove", project, stage)
    said("project", "member", "join", project, newcomer, "--name", "Nell")
    assert opened.stored_project()["Memberships"][-1]["Name"] == "Nell"
    said("project", "member", "leave", project, newcomer)
    said("project", "search", "rename", project, opened.searches[0], "renamed")
    done = said("project", "threshold", project, "--min-screenings", 1, "--agreement-ratio", 0.6)
    assert done["visited"] == 8
    done = said(
        "project", "question", "options", project, COLOUR.id, "--option", "teal", "--option", "blue",
        "--rename", "red", "teal",
    )  # fmt: skip
    assert done["changed"] > 0
    assert_right(opened)


def test_a_repeated_request_hears_its_first_outcome(opened: Review) -> None:
    words = ("project", "member", "join", opened.project, uuid4(), "--request-id", "join-him-once")
    first = said(*words)
    assert said(*words) == first
    assert len(opened.stored_project()["Memberships"]) == 4


def test_what_is_refused_says_why_and_what_to_do(opened: Review) -> None:
    refused = run("project", "member", "leave", opened.project, uuid4())
    assert refused.exit_code == 4
    assert "NotAMember" in refused.stderr
    assert "remedy" in refused.stderr
    invalid = run("project", "threshold", opened.project, "--min-screenings", 2, "--agreement-ratio", 0.5)
    assert invalid.exit_code == 2
    assert "agreement_ratio: Input should be greater than 0.5" in invalid.stderr
    text = run("project", "member", "join", opened.project, uuid4())
    assert "outdated: MembershipScreening member/" in text.stdout


def test_studies_and_decisions_come_from_files_and_bad_rows_are_named(
    opened: Review, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statlib.cli.project_files.ROWS_OF_ONE_REQUEST", 2)
    found = tmp_path / "found.csv"
    ids = [uuid4() for _ in range(3)]
    found.write_text(
        "id,Title,Publication Year\n"
        f"{ids[0]},one,1999\n{ids[1]},two,\nnone,bad,\n{opened.studies[0]},taken,\n,four,2001\n",
        encoding="utf-8",
    )
    done = said("project", "search", "import", opened.project, found, "--name", "third", code=1)
    assert (done["inserted"], [one["row"] for one in done["refused"]]) == (3, [3, 4])
    assert opened.study(ids[0])["PublicationYear"] == "1999"
    assert said("project", "search", "import", opened.project, found, "--name", "third", code=1)["present"] == 3
    decided = tmp_path / "decided.csv"
    rows = [f"{ids[0]},{opened.members[0]},include", f"{ids[1]},{opened.members[0]},EXCLUDE"]
    rows += [f"{uuid4()},{opened.members[0]},include", f"{ids[1]},{opened.members[1]},perhaps"]
    decided.write_text("\n".join(["study,investigator,decision", *rows]), encoding="utf-8")
    done = said("project", "decisions", opened.project, decided, code=1)
    assert (done["applied"], [one["row"] for one in done["refused"]]) == (2, [3, 4])
    assert opened.decisions(ids[1]) == {opened.members[0]: False}
    assert said("project", "search", "remove", opened.project, done_search(opened))["studies"] == 3
    assert run("project", "decisions", opened.project, tmp_path / "none.csv").exit_code == 2
    decided.write_text("study\n", encoding="utf-8")
    assert "no column decision, investigator" in run("project", "decisions", opened.project, decided).stderr


def done_search(of: Review) -> object:
    return of.stored_project()["Searches"][-1]["Id"]


def test_interrupted_operations_are_listed_and_settled(opened: Review) -> None:
    assert said("fences", "list", opened.project) == {"fences": []}
    import_search(opened.host, opened.project, Search(id=uuid4(), name="torn"), new_studies(1), complete=False)
    (one,) = said("fences", "list", opened.project)["fences"]
    assert (one["kind"], one["interrupted"], one["progress"]["inserted"]) == ("SearchImport", True, 1)
    assert "interrupted" in run("fences", "list", opened.project).stdout
    assert said("fences", "release", opened.project, "SearchImport")["completed"] is False
    refused = run("fences", "release", opened.project, "SearchImport")
    assert "FenceUnknown" in refused.stderr
    opened.mongo.clock.advance(FENCE_LEASE_TTL_S)


def test_the_tracking_mode_is_switched_fleet_wide(opened: Review) -> None:
    assert said("fleet", "tracking", "untracked")["reviewer_tracking_epoch"] == 1
    assert "Tracked" in run("fleet", "tracking", "tracked").stdout
