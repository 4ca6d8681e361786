"""Where ``statlib.up()`` looks for a data folder that somebody has begun, and when it starts nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statlib.application import begun_above, up
from statlib.kernel.refusals import Refusal
from statlib.local.reasons import LocalReason


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


@pytest.mark.parametrize("own_settings_in_force", [False, True])
def test_no_server_is_started_that_the_settings_would_pass_over(
    own_settings_in_force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATLIB__MONGO__URI", "mongodb://jo:hunter22@db.example:27017/?replicaSet=rs0")
    if own_settings_in_force:
        (tmp_path / ".statlib").mkdir()
        (tmp_path / ".statlib" / "statlib.toml").write_text("[mongo]\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refusal) as refused:
        up()
    assert refused.value.reason is LocalReason.DeploymentConfigured
    assert refused.value.detail == "mongo.uri names mongodb://db.example:27017"
    assert sorted(tmp_path.rglob("*")) == before
