"""A command that a report shows can be copied as it stands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from statlib.kernel.settings import load_settings
from statlib.runbook.catalogue import find_runbook
from statlib.runbook.commands import act_command, undo_command
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.parameters import parse_parameters, plain_parameters

PROJECT = "3f1c8a52-0d5e-4f6b-9c1e-1a2b3c4d5e6f"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("narrow_gate_close", {"project": PROJECT}, f"-p project={PROJECT}"),
        ("backfill_family", {"project": PROJECT, "family": "ProjectScreening"}, "-p family=ProjectScreening"),
        ("soak_evidence", {}, ""),
        ("soak_evidence", {"data": "a folder", "cadence": {"parity_s": 2.0}}, "-p 'data=a folder'"),
    ],
)
def test_a_dry_run_says_how_it_is_acted_out_and_that_command_is_taken(
    name: str, given: dict[str, Any], said: str
) -> None:
    book, settings = find_runbook(name), load_settings()
    dry = plain_parameters(parse_parameters(book.parameters, given))
    command = act_command(book, dry, settings.deployment)
    assert said in command
    words = shlex.split(command)
    assert words[:4] == ["statlib", "runbook", "run", name]
    text = dict(word.split("=", 1) for word in words[5::2])
    acting = parse_parameters(book.parameters, {}, text=text)
    require_confirmation(book, acting, settings)
    assert plain_parameters(acting) == dry | {"apply": True, "confirm": text["confirm"]}


def test_a_default_is_not_repeated() -> None:
    book = find_runbook("soak_evidence")
    dry = plain_parameters(parse_parameters(book.parameters, {}))
    assert act_command(book, dry, "here") == "statlib runbook run soak_evidence -p apply=true -p confirm=here"


@pytest.mark.parametrize("rollback", ["narrow_gate_open", "not_installed_here"])
def test_what_undoes_a_run_is_given_its_project_and_decides_anew_whether_to_act(rollback: str) -> None:
    command = undo_command(rollback, {"project": PROJECT, "apply": True, "confirm": PROJECT})
    known = f" -p project={PROJECT}" if rollback == "narrow_gate_open" else ""
    assert command == f"statlib runbook run {rollback}{known}"
