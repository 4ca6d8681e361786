"""Where ``statlib.up()`` looks for a data folder that somebody has begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statlib.application import begun_above


@pytest.fixture
def below(tmp_path: Path) -> Path:
    folder = tmp_path / "clone" / "notebooks"
    folder.mkdir(parents=True)
    return folder


def test_the_nearest_folder_that_was_begun_is_found_from_below(below: Path) -> None:
    for folder in (below.parents[1], below.parent):
        (folder / ".statlib").mkdir()
        (folder / ".statlib" / "statlib.toml").touch()
    assert begun_above(below) == below.parent / ".statlib"


@pytest.mark.parametrize(
    ("content", "taken"),
    [
        ('[project]\nname = "statlib"\n', True),
        ('[project]\nname = "other"\n', False),
        ("[tool]\n", False),
        ("=", False),
    ],
)
def test_a_working_copy_of_statlib_is_a_place_and_no_other_project_is(content: str, taken: bool, below: Path) -> None:
    (below.parent / "pyproject.toml").write_text(content)
    assert begun_above(below) == (below.parent / ".statlib" if taken else None)


def test_somebody_else_s_folder_is_not_taken(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (below.parent / ".statlib").mkdir()
    (below.parent / ".statlib" / "statlib.toml").touch()
    another = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: another)
    assert begun_above(below) is None
