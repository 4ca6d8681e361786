"""Parameters are refused for what they are, by name, and without repeating their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import AdminSettings, MongoSettings, Settings
from statlib.runbook.credentials import credentials_in
from statlib.runbook.parameters import (
    ActingParameters,
    RunbookParameters,
    describe_parameters,
    may_act,
    parse_parameters,
    plain_parameters,
    read_parameters_file,
)
from statlib.runbook.reasons import RunbookReason

PROJECT = "6d0ab0e0-6f0b-5a59-9d0c-5a1d3c1f7a44"


class Sample(ActingParameters):
    project: UUID = Field(description="which project")
    savers: int = Field(default=4, ge=1, le=64, description="concurrent savers")
    rate_per_s: float = 1.5
    reviewers: list[str] = Field(default=[])
    arm: Literal["source-only", "transactional"] = "transactional"
    data: Path | None = None

    @model_validator(mode="after")
    def _fast_needs_few(self) -> Sample:
        if self.rate_per_s > 100 and self.savers > 32:
            raise ValueError("more than 100 saves a second need 32 savers or fewer")
        return self


def refused(given: dict[str, Any], text: dict[str, str] | None = None, secrets: tuple[str, ...] = ()) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_parameters(Sample, given, text=text, secrets=secrets)
    return caught.value


def test_typed_values_become_one_frozen_value_with_defaults() -> None:
    found = parse_parameters(Sample, {"project": PROJECT, "savers": 8})
    assert (found.project, found.savers, found.rate_per_s, found.apply) == (UUID(PROJECT), 8, 1.5, False)
    with pytest.raises(Exception, match="frozen"):
        found.savers = 9  # type: ignore[misc]


def test_command_line_text_is_converted_and_wins_over_a_file() -> None:
    found = parse_parameters(
        Sample,
        {"project": PROJECT, "savers": 8},
        text={"savers": "9", "rate_per_s": "2", "apply": "true", "reviewers": '["ann", "bo"]', "data": "folder"},
    )
    assert (found.savers, found.rate_per_s, found.apply) == (9, 2.0, True)
    assert (found.reviewers, found.data) == (["ann", "bo"], Path("folder"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"savers": "8"}, {}),
        ({"savers": 8.0}, {}),
        ({"savers": True}, {}),
        ({"savers": 0}, {}),
        ({"savers": 65}, {}),
        ({"apply": 1}, {}),
        ({"apply": "yes"}, {}),
        ({"reviewers": "ann"}, {}),
        ({"reviewers": {"ann": 1}}, {}),
        ({"rate_per_s": float("nan")}, {}),
        ({"project": 7}, {}),
        ({"arm": "fold"}, {}),
        ({"data": 1}, {}),
        ({"data": object()}, {}),
        ({}, {"savers": "eight"}),
        ({}, {"savers": "8.5"}),
        ({}, {"rate_per_s": "inf"}),
        ({}, {"apply": "perhaps"}),
        ({}, {"reviewers": "ann"}),
        ({}, {"reviewers": "[ann"}),
        ({}, {"project": "mine"}),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(given: dict[str, Any], text: dict[str, str]) -> None:
    refusal = refused({"project": PROJECT, **given} if "project" not in text else given, text)
    assert refusal.reason is RunbookReason.ParameterMistyped
    assert next(iter({**given, **text})) in refusal.detail


class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = 1
    most: int = 9


class Tabled(RunbookParameters):
    limits: Limits = Limits()


@pytest.mark.parametrize(
    ("written", "detail"),
    [
        ('{"foo": 1}', "limits: foo: extra inputs are not permitted (known: least, most)"),
        ('{"least": "x"}', "limits: least: must be a valid integer"),
    ],
)
def test_what_is_wrong_within_a_table_is_named(written: str, detail: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_parameters(Tabled, {}, text={"limits": written})
    assert caught.value.detail == detail


def test_every_mistyped_parameter_is_named_at_once() -> None:
    assert refused({"project": 1, "savers": "8"}).detail.count(";") == 1


def test_a_rule_across_parameters_is_a_refusal_too() -> None:
    refusal = refused({"project": PROJECT, "savers": 33, "rate_per_s": 101.0})
    assert refusal.reason is RunbookReason.ParameterMistyped
    assert "32 savers or fewer" in refusal.detail


@pytest.mark.parametrize(
    ("name", "hint"), [("saver", "did you mean savers?"), ("confrim", "did you mean confirm?"), ("zzz", "zzz")]
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(name: str, hint: str) -> None:
    refusal = refused({"project": PROJECT, name: 1})
    assert refusal.reason is RunbookReason.ParameterUnknown
    assert hint in refusal.detail


@pytest.mark.parametrize(
    "given", [{"zzz": 1}, {"savers": "8"}, {"project": PROJECT, "savers": 33, "rate_per_s": 101.0}]
)
def test_the_remedy_names_the_runbook_to_look_up(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        parse_parameters(Sample, given, runbook="soak_evidence")
    assert caught.value.remedy.startswith("`statlib runbook show soak_evidence`")


def test_a_missing_parameter_is_named() -> None:
    refusal = refused({"savers": 8})
    assert (refusal.reason, refusal.detail) == (RunbookReason.ParameterMissing, "no value for project")


@pytest.mark.parametrize(
    "name",
    ["password", "db_passwd", "token", "admin_token", "api_key", "apikey", "client_secret", "jwt", "credentials"],
)
def test_a_name_that_says_credential_is_refused(name: str) -> None:
    assert refused({name: "x"}).reason is RunbookReason.ParameterSecret


@pytest.mark.parametrize(
    "value",
    [
        "mongodb://root:hunter22@db.example/",
        "postgresql+psycopg://u:p%40ss@db.example:5432/app",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "Bearer 0123456789abcdef0123",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghij",
        "host=db password=hunter22",
        ["plain", "token: 0123456789"],
    ],
)
def test_a_value_shaped_like_a_credential_is_refused_and_not_repeated(value: Any) -> None:
    refusal = refused({"confirm": value, "project": PROJECT})
    assert refusal.reason is RunbookReason.ParameterSecret
    assert str(value[:12]) not in str(refusal)


@pytest.mark.parametrize(
    "value", ["review-staging-eu", PROJECT, "mongodb://db.example:27017/app", "a token of thanks", "sk-short", "x" * 64]
)
def test_ordinary_values_are_no_credentials(value: str) -> None:
    assert parse_parameters(Sample, {"project": PROJECT, "confirm": value}).confirm == value


def test_a_credential_of_this_process_is_refused_whatever_its_shape() -> None:
    settings = Settings(admin=AdminSettings(token=SecretStr("quietword")), mongo=MongoSettings(uri=SecretStr("db:1")))
    assert set(credentials_in(settings)) == {"quietword", "db:1"}
    refusal = refused({"project": PROJECT, "confirm": "a quietword here"}, secrets=credentials_in(settings))
    assert refusal.reason is RunbookReason.ParameterSecret
    assert parse_parameters(Sample, {"project": PROJECT, "confirm": "db:1"}, secrets=("db:1",)).confirm == "db:1"


def test_a_model_with_a_field_for_a_credential_cannot_be_made() -> None:
    with pytest.raises(Fault, match=r"Leaky\.admin_token"):
        type("Leaky", (RunbookParameters,), {"__annotations__": {"admin_token": str}, "__module__": __name__})
    with pytest.raises(Fault, match=r"Sly\.word"):
        type("Sly", (RunbookParameters,), {"__annotations__": {"word": SecretStr | None}, "__module__": __name__})


def test_help_gives_type_bounds_default_and_meaning_in_declared_order() -> None:
    described = {one.name: one for one in describe_parameters(Sample)}
    assert list(described) == ["apply", "confirm", "project", "savers", "rate_per_s", "reviewers", "arm", "data"]
    assert (described["savers"].type, described["savers"].default) == ("whole number, ≥ 1, ≤ 64", "4")
    assert (described["project"].default, described["project"].description) == (None, "which project")
    assert described["arm"].type == "one of source-only, transactional"
    assert described["reviewers"].type == "list of text"
    assert described["data"].type == "path or nothing"


def test_plain_parameters_are_accepted_again_unchanged() -> None:
    found = parse_parameters(Sample, {"project": PROJECT, "data": "folder", "reviewers": ["ann"]})
    assert parse_parameters(Sample, plain_parameters(found)) == found


def test_only_an_acting_runbook_can_be_dry() -> None:
    assert not may_act(parse_parameters(Sample, {"project": PROJECT}))
    assert may_act(parse_parameters(Sample, {"project": PROJECT, "apply": True}))
    assert may_act(RunbookParameters())


def test_a_parameters_file_is_toml_and_a_broken_one_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("savers = 8\narm = 'source-only'\n", encoding="utf-8")
    assert read_parameters_file(file) == {"savers": 8, "arm": "source-only"}
    file.write_text("savers = 8\narm = \n", encoding="utf-8")
    with pytest.raises(Refusal, match="line 2") as caught:
        read_parameters_file(file)
    assert caught.value.reason is RunbookReason.ParameterFileUnreadable
    with pytest.raises(Refusal, match="cannot be read"):
        read_parameters_file(tmp_path / "none.toml")
