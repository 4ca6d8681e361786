"""What a soak's report says beyond its gates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.captures import Captures
from statlib.evidence.journal import Journal
from statlib.runbook.books.soak_evidence import SoakParameters
from statlib.runbook.findings import Findings
from statlib.runbook.soak.captured import REBUILDS
from statlib.runbook.soak.findings import soak_findings
from tests.unit.evidence.soak_run import EVENTS, THRESHOLDS, Raw, at


class Told:
    """A run's captures, told to the journal, and what is found in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = Journal(folder / "journal.jsonl")
        self.captures = Captures(folder, self._journal)

    def findings(self, **parameters: Any) -> Findings:
        return soak_findings(CaptureReader(self._folder, self._journal.entries), SoakParameters(**parameters))

    def close(self) -> None:
        self._journal.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path)
    Raw().write(made.captures)
    yield made
    made.close()


@pytest.mark.parametrize("rebuilds", [1, 4])
def test_the_unit_of_a_figure_does_not_depend_on_how_much_there_was(told: Told, rebuilds: int) -> None:
    with told.captures.lines(REBUILDS) as lines:
        for number in range(rebuilds):
            lines.append(
                {"at": at(number), "family": "F", "published": 1, "races_lost": 1, "took_ms": 9.0, "reason": None}
            )
    (figure,) = (one for one in told.findings().highlights if one.label == "Rebuilds under load")
    assert (figure.value, figure.unit) == (rebuilds, "")
    assert figure.note.startswith(f"of {rebuilds}; ")


@pytest.mark.parametrize(("least", "advised"), [(EVENTS, False), (EVENTS + 1, True), (1_000, True)])
def test_a_review_too_small_for_its_gate_is_told_what_to_ask_for(told: Told, least: int, advised: bool) -> None:
    told.captures.write(soak.THRESHOLDS, THRESHOLDS.model_copy(update={"operations_min": least}))
    commands = [step.command for step in told.findings().next_steps]
    assert commands == ([f"-p 'thresholds={{\"operations_min\":{EVENTS}}}'"] if advised else [])


def test_a_run_without_captures_has_no_advice(tmp_path: Path) -> None:
    bare = Told(tmp_path)
    assert bare.findings().next_steps == ()
    bare.close()


@pytest.mark.parametrize(("recorded", "unused"), [("3 decisions of two reviewers", {"studies"}), ("", {"review"})])
def test_parameters_of_simulated_data_are_named_where_data_are_recorded(
    tmp_path: Path, recorded: str, unused: set[str]
) -> None:
    told = Told(tmp_path)
    loaded = soak.Loaded(
        events_total=3, events_distinct=3, provenance={"recorded": recorded, "simulated": "think time"}
    )
    told.captures.write("loaded", loaded)
    assert told.findings().unused == unused
    assert unused <= set(SoakParameters.model_fields)
    told.close()
