"""``statlib --help`` answers at once, and the generated page documents every command."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from statlib.cli.main import COMMANDS, main

COMMANDS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
HELP_CPU_MAX_S = 0.3
TRIES = 5  # the least of them: what else the machine does is not ours


def cpu_of(*words: str) -> float:
    """User and system seconds of ``statlib`` as a process of its own, the interpreter's start included."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "statlib.cli.main", *words],
        env=environment, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_takes_less_than_three_tenths_of_a_second_of_processor(words: tuple[str, ...]) -> None:
    assert min(cpu_of(*words) for _ in range(TRIES)) < HELP_CPU_MAX_S


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None, f"{path} {name}"
            yield from leaves(below, f"{path} {name}")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_says_what_it_does_and_what_each_option_means(name: str) -> None:
    page = COMMANDS_PAGE.read_text(encoding="utf-8")
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for path, leaf in leaves(command, f"statlib {name}"):
        assert leaf.help, path
        assert f"## `{path}`" in page, "run: make reference"
        for parameter in leaf.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts[0]}"
