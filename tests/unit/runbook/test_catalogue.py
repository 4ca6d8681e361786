"""What is installed is found by name; who acts repeats the right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.catalogue import Runbook, all_runbooks, find_runbook
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.parameters import ActingParameters, RunbookParameters
from statlib.runbook.reasons import RunbookReason


class OnProject(ActingParameters):
    project: str = "p-1"


def book(**given: str) -> Runbook:
    return Runbook(name="enable", summary="Enable.", parameters=OnProject, **given)  # type: ignore[arg-type]


def test_every_shipped_runbook_loads_is_found_by_its_name_and_is_undone_by_one_that_exists() -> None:
    runbooks = all_runbooks()
    names = {found.name for found in runbooks}
    for found in runbooks:
        assert find_runbook(found.name) is found
        assert found.rollback is None or found.rollback in names


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        find_runbook("enabel")
    assert refused.value.reason is RunbookReason.RunbookUnknown


@pytest.mark.parametrize(("source", "name"), [("RUNBOOK = 1", "odd"), ("", "odd")])
def test_an_installed_module_without_its_runbook_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    (tmp_path / "odd_module.py").write_text(source, encoding="utf-8")
    (tmp_path / "odd-1.0.dist-info").mkdir()
    (tmp_path / "odd-1.0.dist-info" / "entry_points.txt").write_text(
        f"[statlib.runbooks]\n{name} = odd_module\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Fault, match="odd_module does not define the runbook odd"):
        find_runbook(name)


def test_a_runbook_without_its_notebook_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATLIB_RUNBOOKS", str(tmp_path))
    with pytest.raises(Refusal, match=str(tmp_path / "enable.ipynb")):
        _ = book().path


@pytest.mark.parametrize(
    ("confirms", "confirm", "accepted"),
    [
        (None, "review-eu", True),
        (None, "", False),
        (None, "review-us", False),
        (None, "p-1", False),
        ("project", "p-1", True),
        ("project", "review-eu", False),
    ],
)
def test_acting_takes_exactly_the_name_of_what_is_acted_upon(
    confirms: str | None, confirm: str, accepted: bool
) -> None:
    settings = Settings(deployment="review-eu")
    runbook = book(confirms=confirms) if confirms else book()
    acting = OnProject(apply=True, confirm=confirm)
    if accepted:
        require_confirmation(runbook, acting, settings)
        return
    with pytest.raises(Refusal) as refused:
        require_confirmation(runbook, acting, settings)
    assert refused.value.reason is RunbookReason.ConfirmationMissing
    require_confirmation(runbook, OnProject(confirm=confirm), settings)
    require_confirmation(runbook, RunbookParameters(), settings)


def test_a_runbook_that_confirms_what_it_does_not_take_is_a_fault() -> None:
    with pytest.raises(Fault, match="none of its parameters"):
        require_confirmation(book(confirms="member"), OnProject(apply=True), Settings())
