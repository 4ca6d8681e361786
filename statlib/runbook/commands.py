"""Commands that a report tells its reader to give: whole, so that they can be copied as they stand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from statlib.kernel.refusals import Refusal
from statlib.runbook.archive import RunFolder
from statlib.runbook.catalogue import Runbook, find_runbook

_ASKED_ANEW = frozenset({"apply", "confirm"})


def act_command(runbook: Runbook, given: Mapping[str, JsonValue], deployment: str) -> str:
    """The same run, acting: its parameters, and the confirmation that ``require_confirmation`` expects."""
    confirmed = deployment if runbook.confirms is None else str(given[runbook.confirms])
    return _run(runbook.name, {**_needed(runbook, given), "apply": True, "confirm": confirmed})


def undo_command(rollback: str, given: Mapping[str, JsonValue]) -> str:
    """A dry run of the runbook ``rollback``, with what it has in common with the parameters of the run to undo."""
    try:
        runbook = find_runbook(rollback)
    except Refusal:  # it is not installed here: whoever has it sees by its name what it asks for
        return _run(rollback, {})
    return _run(rollback, _needed(runbook, given))


def verify_command(folder: RunFolder) -> str:
    """Of a run in the archive, from beside the archive."""
    return f"statlib evidence verify {folder.archive.name}/{folder.runbook}/{folder.name}"


def _needed(runbook: Runbook, given: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The parameters that have to be said, because the runbook's own default is another value."""
    fields = runbook.parameters.model_fields
    return {
        name: value
        for name, value in given.items()
        if name in fields
        and name not in _ASKED_ANEW
        and (
            fields[name].is_required()
            or value != to_jsonable_python(fields[name].get_default(call_default_factory=True))
        )
    }


def _run(name: str, values: Mapping[str, JsonValue]) -> str:
    words = [word for key, value in values.items() for word in ("-p", f"{key}={_text(value)}")]
    return shlex.join(["statlib", "runbook", "run", name, *words])


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
