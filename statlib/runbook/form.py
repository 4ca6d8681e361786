"""The parameter form: a runbook's parameters filled in by hand, and written into the notebook's own cell.

Every entry is checked as it is typed, by the functions that check a headless run, so the same value is refused for
the same reason. Invariant: the form keeps nothing. What a run uses stands in the cell tagged ``parameters``; the form
rewrites that cell, or shows it to be pasted where the front end does not let it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

import anywidget
import ipywidgets
from pydantic import JsonValue

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.runbook.catalogue import Runbook, find_runbook
from statlib.runbook.confirmation import require_confirmation
from statlib.runbook.credentials import credentials_in
from statlib.runbook.fragments import Code, Fragment, RefusalLine, StatusLine, stylesheet_fragment
from statlib.runbook.look import shapes
from statlib.runbook.parameters import (
    ActingParameters,
    ParameterHelp,
    RunbookParameters,
    describe_parameters,
    parse_parameters,
    plain_parameters,
)

PARAMETERS_TAG: Final = "parameters"
CHOICES_PREFIX: Final = "one of "
NOTHING: Final = "null"

_WIDTH = "min(100%, 520px)"


def form(name: str) -> ParameterForm:
    """The form of runbook ``name``, for a notebook's cell; it starts from what the saved parameters cell holds.

    Refuses RunbookUnknown, SettingsInvalid.
    """
    return ParameterForm(find_runbook(name), load_settings(), given=saved_parameters())


class ParameterForm:
    """One entry per parameter, what is wrong with them as they stand, and a button that writes the cell."""

    def __init__(self, runbook: Runbook, settings: Settings, *, given: Mapping[str, object] | None = None) -> None:
        self._runbook = runbook
        self._settings = settings
        described = {one.name: one for one in describe_parameters(runbook.parameters)}
        self._help = tuple(described[name] for name in _order(runbook.parameters))
        start = _starting_text(runbook.parameters, self._help, given or {})
        self.entries = {one.name: _entry(one, start[one.name]) for one in self._help}
        self._requests = 0
        self._standing = ipywidgets.HTML()
        self._button = ipywidgets.Button(
            description="Write the parameters cell",
            layout=ipywidgets.Layout(width="auto", min_height="40px", align_self="flex-start"),
        )
        self._writer = _Writer(layout=ipywidgets.Layout(height="0", margin="0"))
        for entry in self.entries.values():
            entry.observe(self._changed, names="value")
        self._button.on_click(self._clicked)
        self._writer.on_msg(self._answered)
        self._changed()

    @property
    def refusal(self) -> Refusal | None:
        """Why a run with these values would be refused, or None."""
        checked = self._checked()
        return checked if isinstance(checked, Refusal) else None

    @property
    def source(self) -> str:
        """The parameters cell with these values. Refuses as a headless run would."""
        checked = self._checked()
        if isinstance(checked, Refusal):
            raise checked
        return cell_source(checked)

    @property
    def standing(self) -> str:
        """What the form says of itself at this moment, as markup."""
        return str(self._standing.value)

    def write(self) -> None:
        """Ask the front end to put the values into the parameters cell; until it has, the cell is shown to paste."""
        source = self.source
        self._requests += 1
        self._say(_ToPaste("Asked the front end to write the parameters cell; if it does not, paste this:", source))
        names = list(self._runbook.parameters.model_fields)
        self._writer.send({"request": self._requests, "names": names, "source": source})

    def _checked(self) -> RunbookParameters | Refusal:
        # An empty entry is no value where there is none by default; elsewhere it is an empty text.
        left_out = {one.name for one in self._help if one.default in {None, NOTHING}}
        typed = {name: _shown(entry.value) for name, entry in self.entries.items()}
        given = {name: text for name, text in typed.items() if text or name not in left_out}
        try:
            secrets = credentials_in(self._settings)
            book = self._runbook
            found = parse_parameters(book.parameters, {}, text=given, secrets=secrets, runbook=book.name)
            require_confirmation(self._runbook, found, self._settings)
        except Refusal as refusal:
            return refusal
        return found

    def _changed(self, _: Any = None) -> None:
        self._requests += 1  # an answer that is still on its way is about other values
        refusal = self.refusal
        self._button.disabled = refusal is not None
        if refusal is not None:
            self._say(RefusalLine(refusal.reason.name, refusal.detail, refusal.remedy))
        else:
            self._say(StatusLine(shapes.PENDING, "Valid", "not written into the notebook yet"))

    def _clicked(self, _: Any) -> None:
        if self.refusal is None:
            self.write()

    def _answered(self, _: Any, content: Any, buffers: Any) -> None:
        del buffers
        if content.get("request") != self._requests:
            return
        if problem := str(content.get("problem", "")):
            self._say(_ToPaste(f"Not written: {problem}. Paste this into the parameters cell:", self.source))
        else:
            self._say(
                StatusLine(shapes.PASSED, "Written", "the parameters cell holds these values; run it and what follows")
            )

    def _say(self, fragment: Fragment) -> None:
        self._standing.value = f'<div class="statlib form-standing">{fragment.html()}</div>'

    def _box(self) -> Any:
        rows = [_row(one, self.entries[one.name], self._meaning(one)) for one in self._help]
        style = ipywidgets.HTML(stylesheet_fragment().html() + _STYLE, layout=ipywidgets.Layout(margin="0"))
        heading = ipywidgets.HTML(f'<div class="statlib"><b>Parameters of {self._runbook.name}</b></div>')
        children = [style, heading, *rows, self._standing, self._button, self._writer]
        box: Any = ipywidgets.VBox(children, layout=ipywidgets.Layout(width="100%"))
        box.add_class("statlib-form")
        return box

    def _meaning(self, one: ParameterHelp) -> str:
        if one.name == "confirm" and self._runbook.confirms is not None:
            return f"to act: the {self._runbook.confirms}, repeated"
        return one.description

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown: Any = self._box()._repr_mimebundle_(**options)
        if isinstance(shown, dict):
            shown["text/plain"] = f"A form of {self._runbook.name}; it needs a front end that shows widgets."
        return shown


def cell_source(parameters: RunbookParameters) -> str:
    """The parameters cell: one assignment each of the values as JSON would carry them; what makes it act comes last."""
    values = plain_parameters(parameters)
    return "\n".join(f"{name} = {_literal(values[name])}" for name in _order(type(parameters)))


def parameters_in(source: str) -> dict[str, object]:
    """The plain values that a parameters cell assigns; what is no literal is left out."""
    found: dict[str, object] = {}
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return found
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        try:
            found[name] = ast.literal_eval(value)
        except ValueError:
            continue
    return found


def saved_parameters() -> dict[str, object]:
    """What the parameters cell of this kernel's notebook assigns, as it was last saved; nothing if there is no file."""
    from statlib.runbook.interactive import notebook_file  # noqa: PLC0415 - needs a kernel's libraries

    file = notebook_file()
    if file is None:
        return {}
    import nbformat  # noqa: PLC0415 - it takes two seconds to load, which a notebook without the form need not wait

    notebook: Any = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    tagged = [cell for cell in notebook.cells if PARAMETERS_TAG in cell.metadata.get("tags", [])]
    return parameters_in(tagged[0].source) if len(tagged) == 1 else {}


class _Writer(anywidget.AnyWidget):
    """The part of the form that lives in the front end; see ``form.js``."""

    _esm = (files("statlib.runbook") / "form.js").read_text(encoding="utf-8")


class _ToPaste(Fragment):
    """The exact cell, for a front end that keeps its editors to itself."""

    def __init__(self, why: str, source: str) -> None:
        self._why = why
        self._source = source

    def html(self) -> str:
        line = StatusLine(shapes.PENDING, self._why).html()
        return f'{line}<pre class="paste">{Code(self._source).html()}</pre>'

    def text(self) -> str:
        return f"{self._why}\n{self._source}"


_STYLE = (
    "<style>.statlib-form .statlib .paste{margin:4px 0 0;white-space:pre-wrap}"
    ".statlib-form .statlib label{font-weight:600}"
    ".statlib-form input[type=text],.statlib-form select{font-size:16px;min-height:40px}"
    ".statlib-form .widget-checkbox{min-height:28px;height:auto;margin-bottom:0}"
    ".statlib-form .widget-html,.statlib-form .widget-html-content{height:auto;min-height:0;line-height:inherit}"
    ".statlib-form .statlib{text-wrap:pretty;white-space:normal}</style>"
)


def _order(model: type[RunbookParameters]) -> list[str]:
    """As declared, but what says whether to act after what says on what."""
    return sorted(model.model_fields, key=lambda name: name in ActingParameters.model_fields)


def _starting_text(
    model: type[RunbookParameters], described: tuple[ParameterHelp, ...], given: Mapping[str, object]
) -> dict[str, str]:
    """Each entry's first text: what the cell holds, else the default, else nothing."""
    defaults = {one.name: "" if one.default is None else _shown(json.loads(one.default)) for one in described}
    held = {name: _shown(value) for name, value in given.items() if name in model.model_fields}
    return {**defaults, **held}


def _entry(described: ParameterHelp, text: str) -> Any:
    layout = ipywidgets.Layout(width=_WIDTH)
    if described.type == "true or false":
        return ipywidgets.Checkbox(value=text == "true", indent=False, description=described.name, layout=layout)
    choices = described.type.removeprefix(CHOICES_PREFIX).split(", ") if _is_choice(described) else []
    if choices:
        value = text if text in choices else None
        return ipywidgets.Dropdown(options=choices, value=value, layout=layout)
    return ipywidgets.Text(value=text, continuous_update=True, layout=layout)


def _is_choice(described: ParameterHelp) -> bool:
    return described.type.startswith(CHOICES_PREFIX)


def _row(described: ParameterHelp, entry: Any, meaning: str) -> Any:
    given = "must be given" if described.default is None else f"default {described.default}"
    note = f"{meaning.replace('`', '')} ({described.type}; {given})".strip()
    html = f'<div class="statlib"><span class="note">{escape(note)}</span></div>'
    label = f'<div class="statlib"><label>{escape(described.name)}</label></div>'
    head = [] if isinstance(entry, ipywidgets.Checkbox) else [ipywidgets.HTML(label)]
    return ipywidgets.VBox([*head, entry, ipywidgets.HTML(html)], layout=ipywidgets.Layout(margin="0 0 8px"))


def _shown(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _literal(value: JsonValue) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)  # JSON's escapes are Python's, too
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
        case _:
            return repr(value)


__all__ = ["ParameterForm", "cell_source", "form", "parameters_in", "saved_parameters"]
