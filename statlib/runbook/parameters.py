"""Parameters: what an operator may say to a runbook, checked before anything starts.

Invariant: a run only ever sees a complete, well-typed set of parameters, and none of them is a credential,
because parameters are stored with the executed notebook, the report and the manifest.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook.credentials import carries_credential, names_credential, types_credential
from statlib.runbook.reasons import RunbookReason


class RunbookParameters(BaseModel):
    """Base of every runbook's parameters: frozen, closed, and without a field that could hold a credential.

    A subclass whose field name or type says credential is a programming error: Fault when the class is made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            if names_credential(name) or types_credential(field.annotation):
                raise Fault(
                    f"{cls.__name__}.{name} would put a credential into reports",
                    remedy="Read it from the settings instead.",
                )


class ActingParameters(RunbookParameters):
    """Parameters of a runbook that changes something. Without both, it stops after its dry run."""

    apply: bool = Field(default=False, description="act; otherwise stop after the dry run")
    confirm: str = Field(default="", max_length=200, description="to act: the name of the deployment, repeated")


def may_act(parameters: RunbookParameters) -> bool:
    """False: the run stops after its dry run. A runbook that never acts is never dry."""
    return parameters.apply if isinstance(parameters, ActingParameters) else True


P = TypeVar("P", bound=RunbookParameters)


@dataclass(frozen=True, slots=True)
class ParameterHelp:
    """One line of ``statlib runbook show``. ``default`` is JSON text; None: the parameter must be given."""

    name: str
    type: str
    default: str | None
    description: str


def parse_parameters(
    model: type[P],
    given: Mapping[str, object],
    *,
    text: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    runbook: str = "",
) -> P:
    """The parameters as one frozen value.

    ``given`` holds typed values, as from a notebook cell or a TOML file: ``"5"`` is no number there. ``text``
    holds what was typed on a command line, and wins over ``given``; lists and tables are written as JSON.
    ``secrets`` are the credentials that this process knows; a value that contains one is refused, whatever
    its shape. ``runbook`` is the name that remedies tell to look up.

    Refuses, in this order and naming every parameter concerned, never a value: ParameterSecret,
    ParameterUnknown (with the nearest name), ParameterMistyped, ParameterMissing.
    """
    typed: dict[str, object] = {name: value for name, value in given.items() if name not in (text or {})}
    written = dict(text or {})
    _refuse_secrets({**typed, **written}, tuple(secrets))
    show = f"`statlib runbook show {runbook}`" if runbook else ""
    _refuse_unknown(model, [*typed, *written], show)
    wrong: list[str] = []
    values: dict[str, object] = {}
    for name, field in model.model_fields.items():
        if name in written:
            _convert(name, field, written[name], _from_text, into=values, wrong=wrong)
        elif name in typed:
            _convert(name, field, typed[name], _from_value, into=values, wrong=wrong)
    if wrong:
        raise _mistyped(wrong, show)
    return _build(model, values, show)


def read_parameters_file(path: Path) -> dict[str, object]:
    """The values of a TOML file. Refuses ParameterFileUnreadable, with the line where it stops being TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(RunbookReason.ParameterFileUnreadable, f"{path} cannot be read") from error
    except tomllib.TOMLDecodeError as error:
        raise Refusal(RunbookReason.ParameterFileUnreadable, f"{path}: {error}") from error


def plain_parameters(parameters: RunbookParameters) -> dict[str, JsonValue]:
    """JSON values of every parameter, defaults included: what a notebook is given and a report stores."""
    return parameters.model_dump(mode="json")


def describe_parameters(model: type[RunbookParameters]) -> tuple[ParameterHelp, ...]:
    """In declared order."""
    return tuple(
        ParameterHelp(name, _type_text(field), _default_text(field), field.description or "")
        for name, field in model.model_fields.items()
    )


def _refuse_secrets(given: Mapping[str, object], known: tuple[str, ...]) -> None:
    found = [name for name, value in given.items() if names_credential(name) or carries_credential(value, known)]
    if found:
        raise Refusal(RunbookReason.ParameterSecret, f"{', '.join(found)} would carry a credential")


def _refuse_unknown(model: type[RunbookParameters], names: Iterable[str], show: str) -> None:
    known = list(model.model_fields)
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if not unknown:
        return
    hints = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hints.append(f"{name} (did you mean {near[0]}?)" if near else name)
    remedy = f"{show} lists the parameters." if show else ""
    raise Refusal(RunbookReason.ParameterUnknown, f"no such parameter: {', '.join(hints)}", remedy=remedy)


def _mistyped(wrong: Sequence[str], show: str) -> Refusal:
    remedy = f"{show} gives each parameter's type and bounds." if show else ""
    return Refusal(RunbookReason.ParameterMistyped, "; ".join(wrong), remedy=remedy)


def _convert(
    name: str,
    field: FieldInfo,
    value: Any,
    convert: Callable[[TypeAdapter[Any], Any], object],
    *,
    into: dict[str, object],
    wrong: list[str],
) -> None:
    adapter = _adapter(field)
    try:
        into[name] = convert(adapter, value)
    except ValidationError as error:
        wrong.append(f"{name}: {_first_problem(error)}{_known_keys(field, error)}")
    except (PydanticSerializationError, ValueError):
        wrong.append(f"{name}: not a value of type {_type_text(field)}")


def _adapter(field: FieldInfo) -> TypeAdapter[Any]:
    constrained: Any = Annotated[field.annotation, field]
    return TypeAdapter(constrained)


def _from_text(adapter: TypeAdapter[Any], value: str) -> object:
    if value.lstrip().startswith(("[", "{")):
        try:
            return adapter.validate_json(value, strict=True)
        except ValidationError:
            if value.lstrip().startswith("{"):
                raise  # as text, a table is no table at all: only this says what within it is wrong
            return adapter.validate_strings(value)
    return adapter.validate_strings(value)


def _from_value(adapter: TypeAdapter[Any], value: object) -> object:
    # By way of JSON, where strictness still lets text stand for a path, a UUID or a time, but never for a number.
    return adapter.validate_json(to_json(value), strict=True)


def _build(model: type[P], values: Mapping[str, object], show: str) -> P:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        missing = [str(problem["loc"][0]) for problem in problems if problem["type"] == "missing"]
        others = [_problem_text(problem) for problem in problems if problem["type"] != "missing"]
        if others:
            raise _mistyped(others, show) from error
        raise Refusal(RunbookReason.ParameterMissing, f"no value for {', '.join(missing)}") from error


def _known_keys(field: FieldInfo, error: ValidationError) -> str:
    """What a table may hold, where the problem is a key that it may not."""
    kind = field.annotation
    if error.errors()[0]["type"] != "extra_forbidden" or not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return ""
    return f" (known: {', '.join(kind.model_fields)})"


def _first_problem(error: ValidationError) -> str:
    return _problem_text(error.errors(include_input=False, include_url=False)[0])


def _problem_text(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"])
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    message = message[:1].lower() + message[1:]
    return f"{where}: {message}" if where else message


def _type_text(field: FieldInfo) -> str:
    schema = _adapter(field).json_schema()
    return _schema_text(schema, schema.get("$defs", {}))


_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
_WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false", "null": "nothing"}


def _schema_text(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _schema_text(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_schema_text(part, definitions) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_schema_text(schema.get('items', {}), definitions)}"
    word = str(schema.get("format") or _WORDS.get(str(schema.get("type")), schema.get("type", "value")))
    bounds = [f"{sign} {schema[key]:g}" for key, sign in _BOUNDS if key in schema]
    return ", ".join([word, *bounds])


def _default_text(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    return json.dumps(to_jsonable_python(field.get_default(call_default_factory=True)), ensure_ascii=False)
