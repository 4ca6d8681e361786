"""The archive's pages: every run on them, nothing read or written twice, nothing removed, every text escaped."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from statlib.bench.archives import KINDS, NEWEST, leave_run, leave_runs
from statlib.cli.main import main
from statlib.evidence.verdicts import Verdict
from statlib.evidence.verify import verify
from statlib.kernel.refusals import Refusal
from statlib.runbook.archive import RunFolder
from statlib.runbook.listing import list_runs
from statlib.runbook.site import build
from statlib.runbook.site.build import update_site
from statlib.runbook.site.ledger import LEDGER_NAME
from statlib.runbook.site.pages import index_page, row, trend_item
from statlib.runbook.site.records import OUTCOMES, Measure, Outcome, RunRecord, read_record
from statlib.runbook.site.trends import RUNS_MAX, trend_of
from tests.unit.evidence.soak_run import Story, leave_bundle

RUNS = 60


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("archive")
    assert len(list(leave_runs(archive, RUNS))) == RUNS
    return archive


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "reports"))


def leave_another(archive: Path, minutes: float = 1, number: int = 1) -> RunFolder:
    chance = random.Random(number)
    at = (NEWEST + timedelta(minutes=minutes)).replace(microsecond=0)
    return leave_run(RunFolder(archive, KINDS[0].runbook, at, f"{chance.getrandbits(48):012x}"), KINDS[0], chance)


def linked(page: Path) -> list[str]:
    return re.findall(r'<th scope="row"[^>]*><a href="([^"]+)/report\.html"', page.read_text())


def pages(archive: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(archive.glob("*.html"))}


def others(archive: Path) -> dict[str, bytes]:
    return {
        path.relative_to(archive).as_posix(): path.read_bytes() for path in archive.rglob("*") if path.is_file()
        and path.parent != archive
    }  # fmt: skip


def test_the_invented_runs_are_sound_evidence(original: Path) -> None:
    folders = [path.parent for path in original.glob("*/*/manifest.json")]
    assert all(verify(folder).ok for folder in folders)
    assert {verify(folder).verdict for folder in folders} >= {Verdict.PASSED, Verdict.FAILED, Verdict.REFUSED}


def test_every_run_is_on_the_first_page_and_on_its_months_page_newest_first(archive: Path) -> None:
    update = update_site(archive)
    assert (update.runs, update.added, update.unreadable) == (RUNS, RUNS, 0)
    runs = {path.parent.relative_to(archive).as_posix() for path in archive.glob("*/*/manifest.json")}
    first = linked(archive / "index.html")
    assert set(first) == runs
    starts = [name.rpartition("/")[2][:16] for name in first]
    assert starts == sorted(starts, reverse=True)
    by_month = [name for page in archive.glob("month-*.html") for name in linked(page)]
    assert sorted(by_month) == sorted(runs)
    for target in re.findall(r'href="(month-[^"]+)"', (archive / "index.html").read_text()):
        assert (archive / target).is_file()


def test_rendering_changes_nothing_in_the_archive(archive: Path) -> None:
    before = others(archive)
    update_site(archive)
    assert others(archive) == before


def test_an_update_with_nothing_new_writes_nothing(archive: Path) -> None:
    update_site(archive)
    before = {path: path.stat().st_mtime_ns for path in archive.glob("*.html")}
    update = update_site(archive)
    assert (update.added, update.removed, update.pages_written) == (0, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in archive.glob("*.html")} == before


def test_an_update_reads_only_what_is_new(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_site(archive)
    read: list[str] = []

    def reading(run: RunFolder) -> RunRecord:
        read.append(run.name)
        return read_record(run)

    monkeypatch.setattr(build, "read_record", reading)
    another = leave_another(archive)
    update = update_site(archive)
    assert read == [another.name]
    assert (update.runs, update.added, update.pages_written) == (RUNS + 1, 1, 2)
    assert linked(archive / "index.html")[0].endswith(another.name)


@pytest.mark.parametrize("what", ["row", "trend_item", "month_item", "month_page"])
def test_an_update_draws_one_of_each_for_one_new_run(what: str, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PART_RUNS_MAX", 7)
    update_site(archive)
    drawn: list[object] = []
    draw = getattr(build, what)

    def drawing(*given: object) -> str:
        drawn.append(given)
        return str(draw(*given))

    monkeypatch.setattr(build, what, drawing)
    leave_another(archive)
    update_site(archive)
    assert len(drawn) == 1


def test_a_folder_that_did_not_change_is_not_even_listed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = NEWEST.timestamp()
    for folder in archive.iterdir():
        os.utime(folder, (long_ago, long_ago))
    update_site(archive)
    another = leave_another(archive)
    listed: list[str] = []
    monkeypatch.setattr(os, "scandir", _recording(os.scandir, listed))
    monkeypatch.setattr(os, "listdir", _recording(os.listdir, listed))
    update_site(archive)
    assert listed == [archive.name, another.runbook]


def test_a_folder_that_changed_just_now_is_listed_again(archive: Path) -> None:
    """Its time may not move for a run that is published within the same tick: here the clock stands still."""
    update_site(archive)
    at = time.time_ns() + 3_600_000_000_000
    for number in range(2):
        another = leave_another(archive, minutes=number, number=number)
        os.utime(archive / another.runbook, ns=(at, at))
        assert update_site(archive).added == 1
        assert another.name in (archive / "index.html").read_text()


def test_every_figure_on_the_pages_is_that_of_the_runs_which_are_left(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and trends are kept from one update to the next; runs that go must take their share along."""
    monkeypatch.setattr(build, "PART_RUNS_MAX", 7)
    update_site(archive)
    runs = sorted(archive.glob("*/*/manifest.json"))
    for goes in (runs[1::3], runs[::3], [path for path in runs if path.parts[-3] == runs[2].parts[-3]]):
        for path in goes:
            shutil.rmtree(path.parent, ignore_errors=True)
        update_site(archive)
        kept = pages(archive)
        for page in archive.glob("*.html"):
            page.unlink()
        update_site(archive, anew=True)
        assert pages(archive) == kept


def test_incremental_pages_are_those_that_a_new_start_would_write(archive: Path) -> None:
    update_site(archive)
    for number in range(3):
        leave_another(archive, minutes=-3000 * number, number=number)  # also into the past
        update_site(archive)
    grown = pages(archive)
    update_site(archive, anew=True)
    assert pages(archive) == grown


@pytest.mark.parametrize("size", [1, 7, RUNS])
def test_pages_are_bounded_and_full_ones_stay_as_they_are(
    size: int, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PART_RUNS_MAX", size)
    monkeypatch.setattr(build, "INDEX_RUNS_MAX", size)
    update_site(archive)
    counts = {page.name: len(linked(page)) for page in archive.glob("*.html")}
    assert max(counts.values()) <= size
    assert sum(counts.values()) == RUNS + counts["index.html"]
    before = pages(archive)
    leave_another(archive)
    assert update_site(archive).pages_written == 2
    changed = {name for name, text in pages(archive).items() if before.get(name) != text}
    assert len(changed) == 2
    assert "index.html" in changed


def test_runs_found_together_reach_every_part_that_they_move(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PART_RUNS_MAX", 5)
    update_site(archive)
    for number, minutes in enumerate((-900, 1, -400)):
        leave_another(archive, minutes=minutes, number=number)
    assert update_site(archive).added == 3
    grown = pages(archive)
    update_site(archive, anew=True)
    assert pages(archive) == grown


def test_pages_that_would_look_otherwise_are_all_written_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = update_site(archive).pages_written
    monkeypatch.setattr(build, "look_digest", lambda: "another look")
    monkeypatch.setattr(build, "row", lambda record: f"<tr><td>{record.run_id}</td></tr>")
    assert update_site(archive).pages_written == count
    assert "report.html" not in (archive / "month-2026-03.html").read_text()


@pytest.mark.parametrize("damage", [b"no database", b""])
def test_a_damaged_ledger_is_made_again(damage: bytes, archive: Path) -> None:
    update_site(archive)
    before = pages(archive)
    (archive / LEDGER_NAME).write_bytes(damage)
    assert update_site(archive).added == RUNS
    assert pages(archive) == before


def test_a_run_that_is_gone_is_told(archive: Path) -> None:
    update_site(archive)
    gone = linked(archive / "index.html")[0]
    shutil.rmtree(archive / gone)
    result = CliRunner().invoke(main, ["reports", "site", "--archive", str(archive)])
    assert result.exit_code == 0, result.output
    assert f"gone without a tombstone: {gone}" in result.stderr
    assert gone not in (archive / "index.html").read_text()


@pytest.mark.parametrize(
    ("file", "content"),
    [("manifest.json", b"{}"), ("manifest.sha256", b""), ("evidence/journal.jsonl", b"{}\n"), ("manifest.json", None)],
)
def test_a_folder_that_cannot_be_read_is_a_row_that_says_so(file: str, content: bytes | None, archive: Path) -> None:
    run = leave_another(archive)
    path = run.final / file
    path.unlink() if content is None else path.write_bytes(content)
    assert update_site(archive).unreadable == 1
    page = (archive / "month-2026-03.html").read_text()
    assert "Unreadable" in page.partition(run.name)[0].rpartition("<tr")[2]
    assert str(archive) not in page


def test_a_run_under_way_is_not_shown(archive: Path) -> None:
    run = leave_another(archive)
    run.final.rename(run.working)
    assert update_site(archive).runs == RUNS


def test_an_empty_archive_says_what_to_do(tmp_path: Path) -> None:
    update_site(tmp_path)
    assert "statlib runbook run NAME" in (tmp_path / "index.html").read_text()
    with pytest.raises(Refusal):
        update_site(tmp_path / "none")


def test_the_sample_beside_the_archive_is_not_taken_for_a_run(archive: Path, original: Path) -> None:
    shutil.copytree(original, archive / "sample")
    assert update_site(archive).runs == RUNS


HOSTILE = '"><script>alert(1)</script><b onmouseover=x>'


def record(**changed: object) -> RunRecord:
    given = {
        "runbook": "drift_check", "folder": "f", "run_id": "0" * 12, "started": NEWEST, "duration_s": 61.0,
        "deployment": "here", "verdict": Verdict.PASSED, "words": "Passed",
    } | changed  # fmt: skip
    return RunRecord.model_validate(given)


def test_no_text_of_a_run_becomes_markup() -> None:
    hostile = record(
        runbook=HOSTILE, folder=HOSTILE, deployment=HOSTILE, words=HOSTILE, detail=HOSTILE,
        measures=[Measure(label=HOSTILE, value=1, unit=HOSTILE)],
    )  # fmt: skip
    for text in (row(hostile), index_page((), (), (), [trend_item(trend_of([hostile]))], [hostile, hostile])):
        assert "<script>alert" not in text
        assert "<b onmouseover" not in text


def test_a_page_loads_nothing_and_its_script_alone_may_run(archive: Path) -> None:
    update_site(archive)
    for text in pages(archive).values():
        assert "default-src 'none'" in text
        assert "script-src 'sha256-" in text
        assert "unsafe-inline'; script" not in text.partition("script-src")[2]
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
        assert len(re.findall(r"<script", text)) == 1


def test_every_verdict_has_an_outcome_to_filter_by() -> None:
    assert set(OUTCOMES) == set(Verdict)
    assert record(verdict=None).outcome is Outcome.STOPPED


@pytest.mark.parametrize(("gates", "words"), [("soak", "Rehearsal passed"), ("failed", "Rehearsal failed")])
def test_a_rehearsal_is_called_one_whether_it_passed_or_not(gates: str, words: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "soak_evidence", NEWEST.replace(microsecond=0), "0" * 12)
    story = Story() if gates == "soak" else Story(raw=Story().raw.without("parity"))
    leave_bundle(run.final, story)
    found = read_record(run)
    assert found.words == words
    assert found.shown


def test_a_failed_run_is_remembered_by_what_failed() -> None:
    runs = [record(measures=[Measure(label="time", value=at)]) for at in range(3)]
    over = [Measure(label="drifted", value=7, limit=0, over=True), Measure(label="time", value=3)]
    trend = trend_of([*runs, record(verdict=Verdict.FAILED, measures=over)])
    assert (trend.label, trend.value, trend.limit) == ("drifted", "7", "limit 0")
    assert "l6 6m0-6l-6 6" in trend.svg()


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e12, 3.0], [-4.0, 2.0]])
def test_a_trend_begins_at_zero_and_stays_within_its_frame(values: list[float]) -> None:
    svg = trend_of([record(measures=[Measure(label="n", value=value)]) for value in values]).svg()
    heights = [float(y) for y in re.findall(r'cy="([-\d.]+)"', svg)] + [
        float(y)
        for path in re.findall(r'd="(M[\d. L-]+)" stroke="var\(--s1\)"', svg)
        for y in re.findall(r" ([-\d.]+)", path)
    ]
    assert heights
    assert all(6 <= y <= 27 for y in heights)
    assert len(values) < RUNS_MAX


def _recording(listing: Callable[[Any], Any], listed: list[str]) -> Callable[[Any], Any]:
    def recorded(path: Any) -> Any:
        listed.append(Path(path).name)
        return listing(path)

    return recorded


def test_a_run_that_ends_is_listed_and_its_way_back_leads_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = leave_another(tmp_path / "reports")
    assert list_runs(folder.archive)
    assert linked(folder.archive / "index.html") == [f"{folder.runbook}/{folder.name}"]
    assert (folder.final / "../../index.html").resolve() == (folder.archive / "index.html").resolve()
    assert capsys.readouterr().err == ""


def test_pages_that_cannot_be_made_are_a_note_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = leave_another(tmp_path / "reports")
    (folder.archive / "index.html").mkdir()
    assert not list_runs(folder.archive)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("note: ")
    assert "statlib reports site" in said


def test_a_run_that_vanished_is_named_by_whoever_lists_first(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    update_site(archive)
    gone = leave_another(archive)
    list_runs(archive)
    shutil.rmtree(gone.final)
    list_runs(archive)
    assert capsys.readouterr().err == f"note: gone without a tombstone: {gone.runbook}/{gone.name}\n"
