"""The deployment files are what the engines they are for accept, and they only call ``statlib runbook run``."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from statlib.kernel.settings import load_settings
from statlib.runbook.catalogue import find_runbook
from statlib.runbook.credentials import credentials_in
from statlib.runbook.parameters import parse_parameters

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"


@pytest.fixture(scope="module")
def cron_job() -> Any:
    return yaml.safe_load((DEPLOY / "kubernetes-cronjob.yaml").read_text(encoding="utf-8"))


def test_the_manifest_is_a_cron_job_by_kubernetes_own_schema(cron_job: Any) -> None:
    kubernetes_validate.validate(cron_job, kubernetes_validate.latest_version(), strict=True)


def test_a_manifest_with_a_misspelt_field_is_not(cron_job: Any) -> None:
    wrong = {**cron_job, "spec": {**cron_job["spec"], "concurencyPolicy": "Forbid"}}
    with pytest.raises(kubernetes_validate.ValidationError, match="concurencyPolicy"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_the_manifest_never_overlaps_or_repeats_a_run(cron_job: Any) -> None:
    spec = cron_job["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["timeZone"] == "Etc/UTC"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_the_manifest_calls_a_runbook_with_parameters_that_it_takes(cron_job: Any) -> None:
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert_runs_a_runbook(container["command"])


def test_the_dag_s_command_calls_a_runbook_with_parameters_that_it_takes() -> None:
    """Read as Python only: Airflow pins other versions of our dependencies, so it is not installed beside them."""
    task = next(call for call in _calls("BashOperator"))
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in task.keywords if keyword.arg in _LITERAL}
    command = given["bash_command"]
    for name, value in given["env"].items():
        command = command.replace(f'"${name}"', value)
    first, *words = shlex.split(command)
    assert first == "exec"
    assert_runs_a_runbook(words)
    assert (given["retries"], given["append_env"]) == (0, True)


def test_the_dag_never_overlaps_or_catches_up() -> None:
    dag = next(call for call in _calls("DAG"))
    given = {keyword.arg: keyword.value for keyword in dag.keywords}
    assert ast.literal_eval(given["catchup"]) is False
    assert ast.literal_eval(given["max_active_runs"]) == 1


_LITERAL = {"bash_command", "env", "retries", "append_env"}


def _calls(name: str) -> list[ast.Call]:
    tree = ast.parse((DEPLOY / "airflow_dag.py").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [call for call in found if isinstance(call.func, ast.Name) and call.func.id == name]


def assert_runs_a_runbook(words: list[str]) -> None:
    assert words[:3] == ["statlib", "runbook", "run"]
    book = find_runbook(words[3])
    assigned = [words[place + 1] for place, word in enumerate(words) if word == "-p"]
    text = dict(one.split("=", maxsplit=1) for one in assigned)
    parse_parameters(book.parameters, {}, text=text, secrets=credentials_in(load_settings()))
    assert "--archive" in words
    assert "--json" in words
