"""Old runs go only when asked, never unverified or failed ones by the way, and each leaves a tombstone."""

from __future__ import annotations

import json
import random
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from statlib.bench.archives import KINDS, NEWEST, leave_run
from statlib.cli.main import main
from statlib.evidence.json_values import decode, encode
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Fault
from statlib.runbook.archive import RunFolder, find_runs
from statlib.runbook.site import retention
from statlib.runbook.site.retention import Fate, Reached, Rule, reached_by, read_tombstones, remove

BOOK = KINDS[0].runbook
ENDINGS = (Verdict.PASSED,) * 4 + (Verdict.FAILED, Verdict.REFUSED, Verdict.INTERRUPTED, Verdict.DRY_RUN_ONLY)


class Fixed(random.Random):
    """Chooses the ending that a test wants."""

    def __init__(self, ending: Verdict) -> None:
        super().__init__(3)
        self._ending = ending

    def choices(self, population, *args, **kwargs):  # type: ignore[no-untyped-def]
        return [self._ending] if self._ending in population else super().choices(population, *args, **kwargs)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """One run a day, the last of ENDINGS the newest, and one of another runbook."""
    for day, ending in enumerate(reversed(ENDINGS)):
        at = (NEWEST - timedelta(days=day)).replace(microsecond=0)
        leave_run(RunFolder(tmp_path, BOOK, at, f"{day:012x}"), KINDS[0], Fixed(ending))
    at = (NEWEST - timedelta(days=90)).replace(microsecond=0)
    leave_run(RunFolder(tmp_path, KINDS[1].runbook, at, "f" * 12), KINDS[1], Fixed(Verdict.PASSED))
    return tmp_path


def fates(archive: Path, rule: Rule) -> dict[str, Fate]:
    return {f"{r.run.runbook}/{r.run.run_id}": r.fate for r in reached_by(archive, rule, now=NEWEST)}


def left(archive: Path) -> set[str]:
    return {run.run_id for run in find_runs(archive, runbook=BOOK)}


def test_both_bounds_must_let_a_run_go(archive: Path) -> None:
    everything = {f"{run.runbook}/{run.run_id}" for run in find_runs(archive)}
    assert set(fates(archive, Rule())) == set()
    assert set(fates(archive, Rule(keep_last=0))) == everything
    assert set(fates(archive, Rule(keep_last=1))) == everything - {f"{BOOK}/{0:012x}", f"{KINDS[1].runbook}/{'f' * 12}"}
    old = {f"{BOOK}/{7:012x}", f"{KINDS[1].runbook}/{'f' * 12}"}
    assert set(fates(archive, Rule(keep_days=6))) == old
    assert set(fates(archive, Rule(keep_days=6, keep_last=8))) == set()
    assert set(fates(archive, Rule(keep_days=6, keep_last=7))) == {f"{BOOK}/{7:012x}"}


def test_runs_that_did_not_pass_are_kept_unless_they_are_meant(archive: Path) -> None:
    kept = {name for name, fate in fates(archive, Rule(keep_last=0)).items() if fate is Fate.KEEP_NOT_PASSED}
    assert kept == {f"{BOOK}/{day:012x}" for day in (1, 2, 3)}
    assert set(fates(archive, Rule(keep_last=0, failed_too=True)).values()) == {Fate.REMOVE}


@pytest.mark.parametrize("failed_too", [False, True])
def test_a_run_that_does_not_verify_is_never_removed(failed_too: bool, archive: Path) -> None:
    run = next(iter(find_runs(archive, runbook=KINDS[1].runbook)))
    (run.final / "report.html").write_text("edited")
    rule = Rule(keep_last=0, failed_too=failed_too)
    (found,) = [reached for reached in reached_by(archive, rule) if reached.run.run_id == run.run_id]
    assert found.fate is Fate.KEEP_UNVERIFIED
    with pytest.raises(Fault):
        remove(archive, found, rule)
    forced = Reached(found.run, Fate.REMOVE, found.verdict, "")
    with pytest.raises(Fault, match="changed while it was judged"):
        remove(archive, forced, rule)
    assert run.final.is_dir()


def prune(archive: Path, *options: str) -> dict[str, object]:
    result = CliRunner().invoke(main, ["reports", "prune", "--archive", str(archive), "--json", *options])
    assert result.exit_code == 0, result.output
    told: dict[str, object] = json.loads(result.stdout)
    return told


def test_without_apply_nothing_is_removed(archive: Path) -> None:
    before = left(archive)
    told = prune(archive, "--keep-last", "0")
    assert told["applied"] is False
    assert told["tombstones"] == []
    assert left(archive) == before
    assert read_tombstones(archive) == ()


def test_a_bound_must_be_given(archive: Path) -> None:
    result = CliRunner().invoke(main, ["reports", "prune", "--archive", str(archive), "--apply"])
    assert result.exit_code == 2
    assert "without a bound nothing is old" in result.output


def test_each_removed_run_leaves_a_tombstone_that_says_what_it_was(archive: Path) -> None:
    gone = {run.run_id: verify(run.final) for run in find_runs(archive, runbook=BOOK)}
    told = prune(archive, "--keep-last", "2", "--apply")
    stones = read_tombstones(archive)
    assert left(archive) == {f"{day:012x}" for day in (0, 1, 2, 3)}  # two newest; two that did not pass
    assert {stone.run_id for stone in stones} == {f"{day:012x}" for day in (4, 5, 6, 7)}
    for stone in stones:
        assert stone.journal_head == gone[stone.run_id].journal_head
        assert stone.verdict is Verdict.PASSED
        assert (stone.files, stone.rule) == (6, "beyond the newest 2 of its runbook")
    assert isinstance(told["tombstones"], list)
    assert len(told["tombstones"]) == len(stones)
    assert not list(archive.glob("*/.removing-*"))


def test_the_pages_know_of_pruned_runs(archive: Path) -> None:
    site = ["reports", "site", "--archive", str(archive)]
    assert CliRunner().invoke(main, site).exit_code == 0
    prune(archive, "--keep-last", "2", "--apply")
    again = CliRunner().invoke(main, site)
    assert "4 gone" in again.output
    assert "without a tombstone" not in again.stderr


def test_tombstones_cannot_be_edited_unseen(archive: Path) -> None:
    prune(archive, "--keep-last", "2", "--apply")
    path = archive / retention.TOMBSTONES_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    for number in range(len(lines) - 1):
        path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
        with pytest.raises(Fault, match=f"line {number + 1} does not continue"):
            read_tombstones(archive)
    edited = decode(lines[0]) | {"verdict": "failed"}
    path.write_bytes(b"".join([encode(edited) + b"\n", *lines[1:]]))
    with pytest.raises(Fault, match="line 2 does not continue"):
        read_tombstones(archive)


def test_a_prune_that_died_after_the_tombstone_is_finished_by_the_next(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", die)
        interrupted = CliRunner().invoke(
            main, ["reports", "prune", "--archive", str(archive), "--keep-last", "2", "--apply"]
        )
    assert interrupted.exit_code != 0
    assert len(read_tombstones(archive)) == 1  # the partial state: buried, and only set aside
    assert len(list(archive.glob("*/.removing-*"))) == 1
    prune(archive, "--keep-last", "2", "--apply")
    assert not list(archive.glob("*/.removing-*"))
    assert [stone.run_id for stone in read_tombstones(archive)] == [f"{day:012x}" for day in (4, 5, 6, 7)]


def test_a_run_that_has_its_tombstone_and_is_still_there_is_removed_without_a_second(archive: Path) -> None:
    rule = Rule(keep_last=2)
    doomed = next(r for r in reached_by(archive, rule) if r.fate is Fate.REMOVE)
    kept = shutil.copytree(doomed.run.final, archive / "kept")
    remove(archive, doomed, rule)
    kept.rename(doomed.run.final)
    prune(archive, "--keep-last", "2", "--apply")
    assert [stone.run_id for stone in read_tombstones(archive)].count(doomed.run.run_id) == 1
    assert not doomed.run.final.exists()
