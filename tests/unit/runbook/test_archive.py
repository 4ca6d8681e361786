"""A folder without the dot is a finished run; everything else is not one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.archive import (
    RunFolder,
    archive_folder,
    find_runs,
    find_unfinished,
    find_unfinished_run,
    new_run,
    run_at,
)
from statlib.runbook.reasons import RunbookReason


def test_a_new_run_is_hidden_until_it_is_published(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "soak_evidence")
    assert folder.working.name.startswith(".")
    assert folder.evidence.is_dir()
    assert (list(find_runs(tmp_path)), list(find_unfinished(tmp_path))) == ([], [folder])
    folder.journal.write_text("{}", encoding="utf-8")
    assert folder.publish() == folder.final
    assert (list(find_runs(tmp_path)), list(find_unfinished(tmp_path))) == ([folder], [])
    assert folder.path == folder.final
    assert folder.journal.read_text(encoding="utf-8") == "{}"


def test_a_folder_is_known_again_from_its_name_before_and_after(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "soak_evidence")
    assert run_at(folder.working) == folder
    folder.publish()
    assert run_at(folder.final) == folder


def test_runs_come_newest_first_within_their_runbook_and_strangers_are_passed_over(tmp_path: Path) -> None:
    names = ["20260301T000000Z-aaaaaaaaaaaa", "20260302T000000Z-bbbbbbbbbbbb"]
    for runbook in ("soak_evidence", "enable"):
        for name in [*names, "notes", "20260302T000000Z-short", "20260302-bbbbbbbbbbbb"]:
            (tmp_path / runbook / name).mkdir(parents=True)
    (tmp_path / "README.md").touch()
    found = [(run.runbook, run.name) for run in find_runs(tmp_path)]
    assert found == [(book, name) for book in ("enable", "soak_evidence") for name in reversed(names)]
    assert [run.name for run in find_runs(tmp_path, runbook="enable")] == list(reversed(names))
    assert list(find_runs(tmp_path, runbook="none")) == list(find_runs(tmp_path / "none")) == []


@pytest.mark.parametrize("archive_exists", [False, True])
def test_a_withdrawn_run_leaves_what_was_there_before_and_nothing_else(archive_exists: bool, tmp_path: Path) -> None:
    archive = tmp_path / "kept" / "reports"
    if archive_exists:
        archive.mkdir(parents=True)
    folder = new_run(archive, "soak_evidence")
    folder.journal.write_text("{}", encoding="utf-8")
    folder.withdraw()
    assert list(tmp_path.rglob("*")) == ([tmp_path / "kept", archive] if archive_exists else [])


def test_a_withdrawn_run_leaves_another_that_began_beside_it(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "reports", "soak_evidence")
    other = new_run(tmp_path / "reports", "soak_evidence")
    folder.withdraw()
    assert list(find_unfinished(tmp_path / "reports")) == [other]


def test_a_run_is_never_published_over_another(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "enable", datetime(2026, 3, 1, tzinfo=UTC), "a" * 12)
    folder.working.mkdir(parents=True)
    folder.final.mkdir()
    (folder.final / "report.html").touch()
    with pytest.raises(Fault, match="could not be archived"):
        folder.publish()
    assert folder.working.is_dir()


def test_an_archive_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Fault, match="cannot write to the archive"):
        new_run(tmp_path / "file", "enable")


@pytest.mark.parametrize("name", ["notes", "20260302T000000Z-zzzzzzzzzzzz", "20260302T000000Z-aaaaaaaaaaaa"])
def test_what_is_not_a_runs_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        run_at(tmp_path / "enable" / name)
    assert refused.value.reason is RunbookReason.RunNotFound


def test_an_unfinished_run_is_found_by_its_id_and_a_finished_one_is_not(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "enable")
    assert find_unfinished_run(tmp_path, "enable", folder.run_id) == folder
    folder.publish()
    with pytest.raises(Refusal) as refused:
        find_unfinished_run(tmp_path, "enable", folder.run_id)
    assert refused.value.reason is RunbookReason.RunNotFound


def test_by_hand_the_archive_is_the_one_named_else_here_else_beside_the_runbooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runbooks").mkdir()
    monkeypatch.chdir(tmp_path / "runbooks")
    assert archive_folder() == Path("reports")
    (tmp_path / "reports").mkdir()
    assert archive_folder().resolve() == tmp_path / "reports"
    monkeypatch.setenv("STATLIB_ARCHIVE", str(tmp_path / "elsewhere"))
    assert archive_folder() == tmp_path / "elsewhere"
