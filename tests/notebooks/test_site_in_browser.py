"""The archive's pages as a reader meets them: in a real browser, from plain files, on a desk and on a phone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from statlib.bench.archives import leave_runs
from statlib.evidence.verdicts import Verdict
from statlib.runbook.report import render_report
from statlib.runbook.site import build
from statlib.runbook.site.build import update_site
from tests.unit.runbook.report_samples import sample

ABSENT_OK = os.environ.get("STATLIB_BROWSER_ABSENT_OK") == "1"  # read before fixtures clear what is ours
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
__test__ = CHROMIUM is not None or not ABSENT_OK  # pytest collects nothing here where neither holds
RUNS = 120
NARROWEST = 320


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("these tests need Chromium; install it, or set STATLIB_BROWSER_ABSENT_OK=1 to do without them")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 120 runs, 50 of them on the first page."""
    folder = tmp_path_factory.mktemp("archive")
    list(leave_runs(folder, RUNS))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "INDEX_RUNS_MAX", 50)
        update_site(folder)
    return folder


@dataclass
class Seen:
    """What the page said to its console, and what it asked of the network."""

    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def seen() -> Iterator[Seen]:
    noticed = Seen()
    yield noticed
    assert noticed.said == []
    assert all(address.startswith(("file:", "data:")) for address in noticed.asked), noticed.asked


def opened(browser: Browser, archive: Path, seen: Seen, state: str = "", **context: Any) -> Page:
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB"} | context).new_page()
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.asked.append(request.url))
    page.goto(f"{(archive / 'index.html').as_uri()}{state}")
    return page


def shown(page: Page) -> int:
    return page.locator("tr.run:visible").count()


def count_of(page: Page) -> str:
    return page.locator("output").inner_text()


def test_every_row_is_shown_without_script_and_no_dead_filter(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, java_script_enabled=False)
    assert shown(page) == 50
    assert not page.locator("form.filter").is_visible()


def test_the_count_is_announced(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen)
    assert count_of(page) == "all 50 shown"
    assert page.locator("output").get_attribute("aria-live") == "polite"
    assert page.locator("h2#h-runs").inner_text().startswith("The newest 50 of 120 runs")


def test_outcome_runbook_and_text_filter_together_and_are_kept_in_the_address(
    browser: Browser, archive: Path, seen: Seen
) -> None:
    page = opened(browser, archive, seen)
    page.get_by_role("radio", name="Passed").check()
    passed = shown(page)
    assert 0 < passed < 50
    assert count_of(page) == f"{passed} of 50 shown"
    page.locator("select[name=runbook]").select_option("drift_check")
    both = shown(page)
    assert 0 < both < passed
    page.locator("input[name=q]").fill("review prod-EU")
    assert 0 < shown(page) < both
    for row in page.locator("tr.run:visible").all():
        text = row.inner_text()
        assert "Passed" in text
        assert "drift_check" in text
        assert "review-prod-eu" in text
    address = page.url
    assert address.endswith("#outcome=passed&runbook=drift_check&q=review+prod-EU")
    again = opened(browser, archive, seen, state="#" + address.partition("#")[2])
    assert shown(again) == shown(page)
    assert again.locator("input[name=q]").input_value() == "review prod-EU"


def test_an_empty_result_says_so_and_how_to_clear(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, state="#q=nothing+like+it")
    assert shown(page) == 0
    assert count_of(page) == "0 of 50 shown"
    assert page.locator(".list tbody:visible").count() == 0
    page.get_by_role("button", name="Clear the filter").click()
    assert shown(page) == 50
    assert "#" not in page.url
    assert page.evaluate("document.activeElement.name") == "q"


@pytest.mark.parametrize("state", ["#outcome=unheard", "#runbook=unheard", "#%%%", "#q=<script>", "#outcome=&x=1"])
def test_a_state_that_means_nothing_breaks_nothing(state: str, browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, state=state)
    assert shown(page) in (0, 50)
    assert page.locator("input[name=outcome]:checked").count() == 1


def test_going_back_brings_the_former_filter_back(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen)
    page.locator(".trends a", has_text="drift_check").click()
    page.wait_for_function("document.querySelector('output').value.includes(' of ')")
    assert page.url.endswith("#runbook=drift_check")
    page.go_back()
    page.wait_for_function("document.querySelector('output').value.startsWith('all')")
    assert shown(page) == 50


def test_a_filter_goes_along_to_a_months_page_and_back(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen)
    page.get_by_role("radio", name="Failed").check()
    page.locator(".months a").first.click()
    page.wait_for_url("**/month-*#outcome=failed")
    assert 0 < shown(page) < page.locator("tr.run").count()
    page.get_by_role("link", name="Report archive").click()
    page.wait_for_url("**/index.html#outcome=failed")


def test_a_row_leads_to_its_report(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen)
    page.locator("tr.run th.rb a").nth(3).click()
    page.wait_for_url("**/report.html")
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("width", [1280, 1000, 760, 390, NARROWEST])
@pytest.mark.parametrize("file", ["index.html", "month-2026-03.html"])
def test_nothing_scrolls_sideways(width: int, file: str, browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, viewport={"width": width, "height": 900})
    page.goto((archive / file).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_rows_are_blocks_and_controls_are_large(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    row = page.locator("tr.run").first
    box = row.bounding_box()
    assert box is not None
    assert box["height"] > 50
    assert row.get_attribute("role") == "row"
    for control in page.locator(".filter select, .filter input[type=search], .chip").all():
        size = control.bounding_box()
        assert size is not None
        assert size["height"] >= 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_readers_scheme(scheme: Any, browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen, color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(252, 252, 250)", "dark": "rgb(21, 24, 27)"}[scheme]


def test_keys_alone_reach_and_work_the_filter(browser: Browser, archive: Path, seen: Seen) -> None:
    page = opened(browser, archive, seen)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("input[name=outcome]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.url.endswith("#outcome=passed")


@pytest.mark.parametrize("width", [NARROWEST, 390, 1280])
def test_a_note_without_a_space_keeps_a_report_within_its_page(
    width: int, browser: Browser, tmp_path: Path, seen: Seen
) -> None:
    report = sample(Verdict.FAILED)
    longest = report.gates[0].model_copy(update={"note": "StatisticsConflict" * 12})
    (tmp_path / "index.html").write_text(render_report(replace(report, gates=(longest,))), encoding="utf-8")
    page = opened(browser, tmp_path, seen, viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    note, table = (page.locator(f"#gates {part}").first.bounding_box() for part in (".note", ".gates"))
    assert note
    assert table
    assert note["x"] + note["width"] <= table["x"] + table["width"] + 1
    assert page.locator("#gates .note").first.evaluate("note => note.scrollWidth <= note.clientWidth")
