"""How an account names what a notebook's cells did."""

from __future__ import annotations

import pytest

from statlib.runbook.account import cell_name


@pytest.mark.parametrize(
    ("source", "tags", "said"),
    [
        ('run.step("preflight", soak.preflight)', [], "Preflight"),
        ('opened = run.act("open the gates", soak.open_gates, loaded.value)\nopened', [], "Open the gates"),
        ("run.act(\n    'load', soak.load\n)", [], "Load"),
        ("run.close()", [], "Close the run"),
        ("apply = True", ["injected-parameters"], "Parameters as given"),
        ("import time", [], ""),
    ],
)
def test_a_cell_without_a_heading_is_named_by_the_step_that_it_takes(source: str, tags: list[str], said: str) -> None:
    assert cell_name(source, tags) == said
