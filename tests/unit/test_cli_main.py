"""The command line's own promises: quick help, one line and a remedy for every no, exit codes, JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import COMMANDS, Entry, main
from statlib.cli.output import answer, json_option
from statlib.kernel.installation import install_command
from statlib.kernel.refusals import Fault, Reason, Refusal, RefusalKind


class TrialReason(Reason):
    Busy = (RefusalKind.CONTENTION, "Wait, then\ntry again.")
    Wrong = (RefusalKind.INVALID, "Correct it.")


@click.command()
@click.argument("how")
@json_option
def trial(how: str) -> None:
    """Behave as told."""
    if how == "busy":
        raise Refusal(TrialReason.Busy, "held by\nanother", state={"generation": 3})
    if how == "wrong":
        raise Refusal(TrialReason.Wrong)
    if how == "fault":
        raise Fault("it\nbroke", remedy="Look at it.") from OSError("no space")
    if how == "bug":
        raise KeyError("absent\nkey")
    if how == "interrupted":
        raise KeyboardInterrupt
    answer({"did": how}, f"did {how}")


@pytest.fixture(autouse=True)
def _trial_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "trial", Entry(f"{__name__}:trial", "Behave as told."))
    monkeypatch.setitem(COMMANDS, "absent", Entry("statlib.no_such_module:x", "Cannot be loaded."))
    monkeypatch.setitem(COMMANDS, "untrue", Entry(f"{__name__}:TrialReason", "Is no command."))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_a_command_that_succeeds_exits_with_0() -> None:
    result = run("trial", "well")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "did well\n", "")


@pytest.mark.parametrize(
    ("how", "code", "lines"),
    [
        ("busy", 4, ["refused: Busy: held by another", "remedy: Wait, then try again."]),
        ("wrong", 2, ["refused: Wrong", "remedy: Correct it."]),
        ("fault", 6, ["fault: it broke (OSError: no space)", "remedy: Look at it."]),
        (
            "bug",
            6,
            ["fault: KeyError: 'absent\\nkey'", "remedy: Set STATLIB_TRACEBACK=1 to see where it happened."],
        ),
    ],
)
def test_every_no_is_one_line_and_one_remedy_on_standard_error(how: str, code: int, lines: list[str]) -> None:
    result = run("trial", how)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.splitlines() == lines


def test_an_interruption_is_left_to_click() -> None:
    assert run("trial", "interrupted").exit_code == 1


@pytest.mark.parametrize("how", ["busy", "fault", "bug"])
def test_the_traceback_is_shown_only_when_asked_for(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    assert "Traceback" not in run("trial", how).stderr
    monkeypatch.setenv("STATLIB_TRACEBACK", "1")
    assert "Traceback" in run("trial", how).stderr


def test_json_answers_with_one_document() -> None:
    assert json.loads(run("trial", "well", "--json").stdout) == {"did": "well"}


def test_json_carries_a_refusal_in_wire_form_beside_the_lines() -> None:
    result = run("trial", "--json", "busy")
    assert json.loads(result.stdout)["refused"] == {
        "reason": "Busy",
        "kind": "contention",
        "detail": "held by\nanother",
        "remedy": "Wait, then\ntry again.",
        "state": {"generation": 3},
    }
    assert result.stderr.startswith("refused: Busy")


@pytest.mark.parametrize("words", [("nonsense",), ("trial",), ("trial", "well", "--nonsense"), ("--nonsense",)])
def test_bad_usage_exits_with_2(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_a_missing_extra_is_refused_with_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['psutil'] = None; from statlib.cli.main import main; main(['status'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 4
    assert ran.stderr.startswith(f"refused: ExtraMissing: status needs: {install_command('local')}")


@pytest.mark.parametrize(("module", "words"), [("prometheus_client", ["metrics"]), ("fastapi", ["fleet", "close"])])
def test_a_command_whose_extra_is_missing_still_explains_itself(module: str, words: list[str]) -> None:
    def ran(*said: str) -> subprocess.CompletedProcess[str]:
        code = f"import sys; sys.modules[{module!r}] = None; from statlib.cli.main import main; main({list(said)})"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert ran(*words, "--help").returncode == 0
    refused = ran(*words)
    assert refused.returncode == 4
    assert refused.stderr.startswith(f"refused: ExtraMissing: {words[0]} needs: {install_command('')[:-3]}")


@pytest.mark.parametrize("name", ["absent", "untrue"])
def test_a_command_that_cannot_be_loaded_is_a_fault(name: str) -> None:
    assert run(name).exit_code == 6


def test_every_registered_command_exists_takes_json_and_has_its_summary_as_help() -> None:
    context = click.Context(main)
    for name in COMMANDS.keys() - {"absent", "untrue"}:
        command = main.get_command(context, name)
        assert command is not None
        for leaf in leaves_of(command):
            assert "--json" in [option for parameter in leaf.params for option in parameter.opts], leaf.name
        assert command.help, name


def leaves_of(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    return [leaf for below in command.commands.values() for leaf in leaves_of(below)]


def test_help_lists_every_command_and_loads_none() -> None:
    assert all(name in run("--help").stdout for name in COMMANDS)
    code = (
        "import sys; from click.testing import CliRunner; from statlib.cli.main import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "print(*sorted(m for m in sys.modules if m.startswith(('statlib', 'pymongo', 'pydantic', 'psutil'))))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.split() == [
        "statlib",
        "statlib.cli",
        "statlib.cli.main",
        "statlib.cli.output",
        "statlib.kernel",
        "statlib.kernel.refusals",
    ]


def test_config_names_the_settings_file_and_an_absent_one_is_bad_input() -> None:
    result = run("--config", "/nonexistent/statlib.toml", "status")
    assert result.exit_code == 2
    assert "/nonexistent/statlib.toml" in result.stderr


def test_no_name_in_an_answer_steers_the_terminal() -> None:
    assert run("trial", "\x1b[2Jas\u0085told\x7f\tin full").stdout == "did �[2Jas�told�\tin full\n"
    assert json.loads(run("trial", "\x1b[2J", "--json").stdout) == {"did": "\x1b[2J"}


@pytest.mark.parametrize("name", ["", "x" * 401, "\udcff"])
def test_a_name_that_no_project_can_bear_is_bad_usage(name: str) -> None:
    done = run("load", "--simulated", "--name", name)
    assert done.exit_code == 2
    assert "--name: give 1 to 400 characters" in done.stderr
