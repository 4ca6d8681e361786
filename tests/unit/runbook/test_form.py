"""The parameter form: what it refuses, what it writes, and what it starts from. JupyterLab's part is tested there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Literal

import nbformat
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import to_jsonable_python

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import MongoSettings, Settings
from statlib.runbook.books.soak_evidence import SoakParameters
from statlib.runbook.catalogue import Runbook, all_runbooks
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.credentials import credentials_in
from statlib.runbook.form import ParameterForm, cell_source, form, parameters_in
from statlib.runbook.parameters import ActingParameters, parse_parameters, plain_parameters
from statlib.runbook.reasons import RunbookReason

PASSWORD = "correct horse battery"
PROJECT = "6d1d2c8e-0f4b-4f0f-9a51-3f3a6a1b2c3d"


class Window(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    days: int = Field(default=7, ge=1)


class TrialParameters(ActingParameters):
    folder: Path = Field(description="where <to> look")
    mode: Literal["quick", "whole"] = Field(default="quick", description="how much")
    rate: float = Field(default=0.5, ge=0, le=1, description="share")
    note: str | None = Field(default=None, description="said in the report")
    window: Window = Field(default=Window(), description="how long")


TRIAL = Runbook(name="trial", summary="Try.", parameters=TrialParameters)


@pytest.fixture
def settings() -> Settings:
    return Settings(deployment="here", mongo=MongoSettings(uri=SecretStr(PASSWORD)))


@pytest.fixture
def opened(settings: Settings) -> ParameterForm:
    return ParameterForm(TRIAL, settings, given={"folder": "/data"})


def test_an_entry_stands_for_each_parameter_with_its_type_bounds_and_default(opened: ParameterForm) -> None:
    assert list(opened.entries) == ["folder", "mode", "rate", "note", "window", "apply", "confirm"]
    assert opened.entries["mode"].options == ("quick", "whole")
    assert opened.entries["apply"].value is False
    assert opened.entries["rate"].value == "0.5"
    assert opened.entries["window"].value == '{"days": 7}'
    shown = _markup(opened)
    assert "where &lt;to&gt; look (path; must be given)" in shown
    assert "share (number, ≥ 0, ≤ 1; default 0.5)" in shown


@pytest.mark.parametrize(
    ("name", "typed", "reason"),
    [
        ("rate", "1.5", RunbookReason.ParameterMistyped),
        ("rate", "much", RunbookReason.ParameterMistyped),
        ("rate", "", RunbookReason.ParameterMistyped),
        ("window", '{"days": 0}', RunbookReason.ParameterMistyped),
        ("window", '{"weeks": 1}', RunbookReason.ParameterMistyped),
        ("folder", "", RunbookReason.ParameterMissing),
        ("folder", "mongodb://root:hunter22@db.example/", RunbookReason.ParameterSecret),
        ("confirm", PASSWORD, RunbookReason.ParameterSecret),
        ("apply", True, RunbookReason.ConfirmationMissing),
    ],
)
def test_what_a_headless_run_refuses_is_refused_while_it_is_typed(
    opened: ParameterForm, settings: Settings, name: str, typed: object, reason: RunbookReason
) -> None:
    opened.entries[name].value = typed
    refusal = opened.refusal
    assert refusal is not None
    assert refusal.reason is reason
    assert f"Refused: {reason.name}" in opened.standing
    assert refusal.remedy in opened.standing.replace("&#x27;", "'")
    with pytest.raises(Refusal) as refused:
        opened.write()
    assert str(refused.value) == str(refusal)
    typed_on_a_command_line = {
        key: str(entry.value).lower() if isinstance(entry.value, bool) else str(entry.value)
        for key, entry in opened.entries.items()
        if entry.value != "" or key == "rate"
    }
    with pytest.raises(Refusal) as same:
        _checked_as_headless(typed_on_a_command_line, settings)
    assert str(same.value) == str(refusal)


def test_mending_an_entry_takes_the_refusal_back(opened: ParameterForm) -> None:
    opened.entries["apply"].value = True
    assert opened.refusal is not None
    opened.entries["confirm"].value = "here"
    assert opened.refusal is None
    assert "Valid" in opened.standing


def test_the_cell_that_is_written_assigns_exactly_the_values_shown(opened: ParameterForm) -> None:
    opened.entries["note"].value = 'he said "no"\\n – é'
    opened.entries["mode"].value = "whole"
    assigned = parameters_in(opened.source)
    assert list(assigned) == list(opened.entries)
    assert assigned["note"] == 'he said "no"\\n – é'
    assert (assigned["mode"], assigned["apply"], assigned["window"]) == ("whole", False, {"days": 7})
    assert assigned.keys() == TrialParameters.model_fields.keys()
    parsed = parse_parameters(TrialParameters, assigned)
    assert parsed.folder == Path("/data")


@pytest.mark.parametrize("runbook", all_runbooks(), ids=lambda book: book.name)
def test_a_shipped_runbook_s_own_cell_is_read_and_written_as_it_is(runbook: Runbook, settings: Settings) -> None:
    notebook: Any = nbformat.read(runbook.path, as_version=4)  # type: ignore[no-untyped-call]
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    held = parameters_in(cell.source)
    opened = ParameterForm(runbook, settings, given=held)
    assert opened.refusal is None
    assert parse_parameters(runbook.parameters, parameters_in(opened.source)) == parse_parameters(
        runbook.parameters, held
    )


def test_the_form_starts_from_the_saved_parameters_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cell: Any = nbformat.v4.new_code_cell(f'project = "{PROJECT}"\napply = True\nconfirm = list()')  # type: ignore[no-untyped-call]
    cell.metadata["tags"] = ["parameters"]
    notebook.cells = [cell]
    nbformat.write(notebook, tmp_path / "close.ipynb")  # type: ignore[no-untyped-call]
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "close.ipynb"))
    found = form("narrow_gate_close")
    assert found.entries["project"].value == PROJECT
    assert found.entries["apply"].value is True
    assert found.entries["confirm"].value == "", "what is no literal is left at its default"


def test_until_the_front_end_answers_the_exact_cell_is_shown_to_paste(opened: ParameterForm) -> None:
    opened.write()
    assert cell_source(parse_parameters(TrialParameters, {"folder": "/data"})) in _unescaped(opened.standing)
    _answer(opened, problem="0 cells in view assign these parameters")
    assert "Not written: 0 cells in view" in opened.standing
    assert opened.source in _unescaped(opened.standing)


def test_the_front_end_s_answer_is_shown_and_an_answer_about_other_values_is_not(opened: ParameterForm) -> None:
    opened.write()
    opened.entries["rate"].value = "0.25"
    _answer(opened, request=1)
    assert "Written" not in opened.standing
    opened.write()
    _answer(opened)
    assert "Written" in opened.standing


def test_without_a_front_end_for_widgets_the_form_says_what_it_is(opened: ParameterForm) -> None:
    shown = opened._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith("A form of trial")


def test_a_value_survives_its_way_through_the_cell() -> None:
    parameters = SoakParameters(data="a\nb\"c'\u2028", rate_per_s=0.1)
    source = cell_source(parameters)
    assert len(source.splitlines()) >= len(SoakParameters.model_fields)
    assert len(ast.parse(source).body) == len(SoakParameters.model_fields)
    assert parameters_in(source) == to_jsonable_python(plain_parameters(parameters))


def _checked_as_headless(text: dict[str, str], settings: Settings) -> None:
    parsed = parse_parameters(TrialParameters, {}, text=text, secrets=credentials_in(settings))
    require_confirmation(TRIAL, parsed, settings)


def _answer(opened: ParameterForm, *, problem: str = "", request: int | None = None) -> None:
    """As the front end answers: the message reaches the widget as a comm would deliver it."""
    number = opened._requests if request is None else request
    opened._writer._handle_custom_msg({"request": number, "problem": problem}, [])


def _unescaped(markup: str) -> str:
    return markup.replace("&quot;", '"').replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">")


def _markup(opened: ParameterForm) -> str:
    box = opened._box()
    found: list[str] = []
    pending = [box]
    while pending:
        widget = pending.pop()
        pending.extend(getattr(widget, "children", ()))
        if isinstance(value := getattr(widget, "value", None), str):
            found.append(value)
    return "\n".join(found)
