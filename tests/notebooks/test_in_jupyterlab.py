"""The narrow-gate pair as an operator works it: JupyterLab in a real browser, its menus, the form, one interruption.

Each notebook is loaded once; themes and widths change in place, as loading a whole JupyterLab anew is what takes long
on a busy machine. Pictures of what was looked at are left in the folder that STATLIB_SCREENSHOTS names, if it does;
what was on the screen when a test failed is left in ``.test-failures``, with the log of JupyterLab.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect, sync_playwright

from statlib.evidence.verify import verify
from statlib.kernel.identifiers import new_token
from statlib.local import process
from statlib.local.replica_set import ReplicaSet
from statlib.runbook.archive import find_runs, find_unfinished
from statlib.statistics.documents import Mode
from tests.notebooks.operated import REPOSITORY, Operated, operated, until

ABSENT_OK = os.environ.get("STATLIB_BROWSER_ABSENT_OK") == "1"  # read before fixtures clear what is ours
CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
__test__ = CHROMIUM is not None or not ABSENT_OK  # pytest collects nothing here where neither holds
PICTURES = os.environ.get("STATLIB_SCREENSHOTS")
FAILURES = REPOSITORY / ".test-failures"
PATIENCE_MS = 240_000
TIMEOUT_S = 1_500  # of the whole test; on an idle machine it takes about a minute
DESK, PHONE = (1280, 900), (390, 844)
THEMES = ("JupyterLab Light", "JupyterLab Dark")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("these tests need Chromium; install it, or set STATLIB_BROWSER_ABSENT_OK=1 to do without them")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@dataclass(frozen=True)
class Lab:
    """A JupyterLab on loopback, in a folder of its own; nothing of the user's configuration reaches it."""

    url: str
    token: str
    folder: Path

    def notebook(self, name: str) -> Path:
        return self.folder / "runbooks" / f"{name}.ipynb"

    def choose_settings(self) -> None:
        """No questions to the network; and every cell is in the page, also those that are out of sight."""
        settings: dict[str, dict[str, object]] = {
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
            "notebook-extension/tracker": {"windowingMode": "none"},
        }
        for plugin, chosen in settings.items():
            place = self.folder / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(chosen), encoding="utf-8")


@pytest.fixture
def deployment(mongo_server: ReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    monkeypatch.setenv("STATLIB_CONFIG", str(tmp_path / "data" / "statlib.toml"))
    monkeypatch.setenv("STATLIB_ARCHIVE", str(tmp_path / "reports"))
    with operated(mongo_server, tmp_path) as opened:
        yield opened


@pytest.fixture
def lab(deployment: Operated, tmp_path: Path) -> Iterator[Lab]:
    with jupyterlab(tmp_path / "lab") as started:
        yield started


@contextmanager
def jupyterlab(folder: Path) -> Iterator[Lab]:
    shutil.copytree(REPOSITORY / "runbooks", folder / "runbooks")
    (port,) = process.free_ports(1)
    found = Lab(f"http://127.0.0.1:{port}", new_token(), folder)
    found.choose_settings()
    places = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }  # fmt: skip
    log = (folder / "log").open("wb")
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={found.token}",
        f"--ServerApp.root_dir={folder / 'runbooks'}", "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    ran = subprocess.Popen(
        command,
        env={
            **os.environ,
            **{name: str(folder / place) for name, place in places.items()},
            "STATLIB_RUNBOOKS": str(folder / "runbooks"),
            "PYTHONPATH": str(REPOSITORY),
        },
        stdout=log,
        stderr=log,
    )
    try:
        until(lambda: _answers(found))
        yield found
    finally:
        ran.terminate()
        ran.wait(timeout=60)
        log.close()


def _answers(lab: Lab) -> bool:
    try:
        return httpx.get(f"{lab.url}/api/status", params={"token": lab.token}).status_code == 200
    except httpx.TransportError:
        return False


# What was queued behind an interrupted cell is aborted, and for a moment also what comes after it.
TAKES_CELLS_AGAIN = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
    for (;;) {
        const asked = {code: "", silent: true, store_history: false};
        const reply = await kernel.requestExecute(asked).done;
        if (reply.content.status === "ok") return;
    }
}"""


@dataclass(frozen=True)
class Desk:
    """One notebook, opened. Cells are found by the text that they hold."""

    page: Page
    lab: Lab
    name: str

    def open(self) -> None:
        """Load it, alone on the page, and return when its kernel is ready and nothing is being restored any more."""
        self.page.goto(f"{self.lab.url}/doc/tree/{self.name}.ipynb?reset&token={self.lab.token}")
        self.page.wait_for_function("window.jupyterapp !== undefined")
        self.page.evaluate("window.jupyterapp.restored.then(() => true)")
        expect(self.page.locator(".jp-Notebook .jp-CodeCell .cm-content").first).to_be_visible()
        expect(self.page.get_by_text(re.compile(r"Python 3.*\| Idle"))).to_be_visible()

    @property
    def cells(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell")

    def cell(self, holding: str) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell", has=self.page.locator(".cm-content", has_text=holding))

    def output(self, holding: str) -> Locator:
        return self.cell(holding).locator(".jp-OutputArea")

    def choose(self, menu: str, item: str | re.Pattern[str]) -> None:
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=item).first.click()
        expect(self.page.locator(".lm-Menu")).to_have_count(0)

    def run_all(self) -> None:
        self.choose("Run", re.compile("^Run All Cells$"))

    def interrupt(self) -> None:
        """Interrupt the running cell, and return when the kernel has dropped the rest and would run cells again."""
        self.choose("Kernel", re.compile("^Interrupt Kernel$"))
        expect(self.page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0)
        self.page.evaluate(TAKES_CELLS_AGAIN)

    def save(self) -> None:
        self.choose("File", re.compile("^Save Notebook$"))
        expect(self.page.locator(".jp-Document.jp-mod-dirty")).to_have_count(0)

    def select(self, cell: Locator) -> None:
        """Make it the one that keys and menus are about, in command mode."""
        cell.locator(".jp-InputPrompt").click()
        expect(cell).to_have_class(re.compile("jp-mod-active"))
        expect(self.page.locator(".jp-Notebook.jp-mod-commandMode")).to_have_count(1)

    def insert_below(self, cell: Locator, source: str) -> Locator:
        """A new code cell that holds ``source``. Each key waits for what the one before it did."""
        count = self.cells.count()
        self.select(cell)
        self.page.keyboard.press("b")
        expect(self.cells).to_have_count(count + 1)
        added = self.page.locator(".jp-Notebook .jp-CodeCell.jp-mod-active")
        expect(added.locator(".cm-content")).to_have_text("")
        added.locator(".cm-content").click()
        expect(added.locator(".cm-editor.cm-focused")).to_have_count(1)
        self.page.keyboard.insert_text(source)
        for line in source.splitlines():
            expect(added.locator(".cm-content")).to_contain_text(line)
        return self.cell(source.splitlines()[0])

    def run(self, cell: Locator) -> None:
        self.select(cell)
        self.choose("Run", re.compile("^Run Selected Cell$"))

    def delete(self, cell: Locator) -> None:
        count = self.cells.count()
        self.select(cell)
        self.choose("Edit", re.compile("^Delete Cell$"))
        expect(self.cells).to_have_count(count - 1)

    def wear(self, theme: str) -> None:
        """Change the theme in place, and return when it is on."""
        self.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        expect(self.page.locator(f"body[data-jp-theme-name='{theme}']")).to_have_count(1)

    def picture(self, name: str) -> None:
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(PICTURES) / f"{name}.png")


def into_view(element: Locator) -> None:
    """Scroll to it. JupyterLab draws outputs anew while one looks: an element that was replaced is looked up again."""
    for remaining in reversed(range(20)):
        try:
            element.scroll_into_view_if_needed()
        except Error as error:
            if "not attached" not in error.message or not remaining:
                raise
        else:
            return


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": DESK[0], "height": DESK[1]}, locale="en-GB")
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield context.new_page()
    context.close()
    expect.set_options(timeout=None)


@contextmanager
def kept_on_failure(page: Page, lab: Lab) -> Iterator[None]:
    """When the block fails, keep what the screen showed, what the page said to its console, notebooks and log."""
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"uncaught: {error}"))
    try:
        yield
    except BaseException as error:
        kept = FAILURES / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-jupyterlab"
        shutil.copytree(lab.folder / "runbooks", kept)
        shutil.copy(lab.folder / "log", kept / "jupyterlab.log")
        (kept / "console.txt").write_text("\n".join(said), encoding="utf-8")
        with suppress(Error):  # a page that crashed has nothing more to show
            page.screenshot(path=kept / "screen.png")
            (kept / "screen.html").write_text(page.content(), encoding="utf-8")
        error.add_note(f"The screen, console, log and notebooks are kept in {kept}")
        raise


def fill_in(lab: Lab, runbook: str, project: object) -> None:
    """The parameters cell as an operator would type it, in the file."""
    notebook: Any = nbformat.read(lab.notebook(runbook), as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source = f'project = "{project}"\napply = True\nconfirm = "{project}"'
    nbformat.write(notebook, lab.notebook(runbook))  # type: ignore[no-untyped-call]


def use_form(desk: Desk, project: str) -> None:
    """Open the form below the parameters cell, be refused once, write the cell, and take the form away again."""
    source = f'from statlib.runbook.form import form\nform("{desk.name}")'
    added = desk.insert_below(desk.cell("confirm =").first, source)
    desk.run(added)
    entries = desk.page.locator(".statlib-form input[type=text]")
    standing = desk.page.locator(".statlib-form .form-standing")
    expect(entries).to_have_count(2)
    entries.nth(0).fill(project)
    desk.page.locator(".statlib-form input[type=checkbox]").check()
    entries.nth(1).fill("local")
    expect(standing).to_contain_text("Refused: ConfirmationMissing")
    expect(desk.page.locator(".statlib-form button")).to_be_disabled()
    into_view(standing)
    desk.picture("form-refused")
    entries.nth(1).fill(project)
    expect(standing).to_contain_text("Valid")
    desk.page.locator(".statlib-form button").click()
    expect(standing).to_contain_text("Written")
    desk.picture("form-written")
    desk.delete(added)
    expect(desk.page.locator(".statlib-form")).to_have_count(0)
    expect(desk.cell("confirm =").first).to_contain_text(f'confirm = "{project}"')


def look_at(desk: Desk, name: str) -> None:
    """At a desk and on a phone, by day and by night: nothing that a run shows is wider than the place it has."""
    for theme in (*THEMES, THEMES[0]):
        desk.wear(theme)
        for width, height in (PHONE, DESK):
            desk.page.set_viewport_size({"width": width, "height": height})
            shown = desk.page.locator(".jp-Notebook .statlib")
            expect(shown.first).to_be_attached()
            for index in range(shown.count()):
                one = shown.nth(index)
                into_view(one)
                wide = one.evaluate("e => e.scrollWidth - e.parentElement.clientWidth")
                assert wide <= 0, f"{one.inner_text()!r} is {wide} px too wide at {width}"
                desk.picture(f"{name}-{width}-{theme.split()[-1].lower()}-{index}")


@pytest.mark.timeout(TIMEOUT_S)
def test_the_pair_is_worked_by_hand_and_interrupted_once(deployment: Operated, lab: Lab, page: Page) -> None:
    with kept_on_failure(page, lab):
        work_the_pair(deployment, lab, page)


def work_the_pair(deployment: Operated, lab: Lab, page: Page) -> None:
    before, openings = deployment.standing(), deployment.openings()

    fill_in(lab, "narrow_gate_close", deployment.project)
    closing = Desk(page, lab, "narrow_gate_close")
    closing.open()
    closing.run_all()
    expect(closing.output("run.close()")).to_contain_text("Passed")
    expect(closing.output("closing.close")).to_contain_text("project Disabled")
    assert deployment.mode() == Mode.DISABLED
    assert deployment.host_records() == 0
    closing.save()
    look_at(closing, "closed")

    opening = Desk(page, lab, "narrow_gate_open")
    opening.open()
    use_form(opening, str(deployment.project))
    opening.save()
    opening.run_all()
    waiting = opening.output("opening.backfill")
    expect(waiting).to_contain_text("Waiting for the grace of an opening")
    until(deployment.waits_for_grace)
    into_view(waiting)
    opening.picture("waiting")
    opening.interrupt()
    expect(waiting).to_contain_text("Interrupted by hand")
    expect(waiting).not_to_contain_text("Traceback")
    into_view(waiting)
    opening.picture("interrupted")
    expect(opening.output("opening.verify")).to_have_text("")
    halfway = deployment.standing()
    assert (halfway.gate, halfway.source, halfway.counters) == (Mode.ENABLED, "AUTHORITATIVE", before.counters)
    assert deployment.held_leases() == []
    assert len(list(find_unfinished(deployment.archive))) == 1

    deployment.pass_grace()
    opening.choose("Edit", re.compile("^Clear Outputs of All Cells$"))  # else the file keeps the interrupted one's
    opening.save()
    opening.run_all()
    expect(opening.output("run.close()")).to_contain_text("Rehearsal passed")
    expect(opening.output("opening.open_gate")).to_contain_text("Done before")
    expect(opening.output("opening.backfill")).to_contain_text("yes")
    assert deployment.standing() == before
    assert deployment.openings() == openings + 1
    assert deployment.held_leases() == []
    assert deployment.host_records() == 0
    accepted = deployment.accepted()
    assert len(accepted) == len(set(accepted))
    opening.save()
    look_at(opening, "opened")

    runs = list(find_runs(deployment.archive))
    assert {run.runbook for run in runs} == {"narrow_gate_close", "narrow_gate_open"}
    for run in runs:
        assert [str(finding) for finding in verify(run.final).findings] == []
    assert list(find_unfinished(deployment.archive)) == []
