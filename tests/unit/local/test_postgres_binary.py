"""Which PostgreSQL a local server runs: where it is looked for, what is refused, and as whom it runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import PostgresSettings, Settings
from statlib.local import postgres_binary
from statlib.local.postgres_binary import NEEDED, PostgresBinaries, find_postgres
from statlib.local.reasons import LocalReason


def programs(folder: Path, says: str = "postgres (PostgreSQL) 16.2") -> Path:
    """A folder of programs; ``postgres`` says this of itself."""
    folder.mkdir(parents=True)
    for name in NEEDED:
        (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def naming(folder: Path) -> Settings:
    return Settings(postgres=PostgresSettings(binaries=folder))


def test_the_named_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = find_postgres(naming(programs(tmp_path / "bin")))
    assert (found.major, found.as_account) == (16, "")
    assert found.command("initdb", "-D", "x") == [str(tmp_path / "bin" / "initdb"), "-D", "x"]


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("postgres (PostgreSQL) 12.1", LocalReason.PostgresUnsuitable),
        ("something else", LocalReason.PostgresUnsuitable),
        ("", LocalReason.PostgresUnsuitable),
    ],
)
def test_an_old_or_a_foreign_program_is_refused(tmp_path: Path, says: str, reason: LocalReason) -> None:
    with pytest.raises(Refusal) as refused:
        find_postgres(naming(programs(tmp_path / "bin", says)))
    assert refused.value.reason is reason


def test_an_incomplete_folder_and_one_that_does_not_run_are_refused(tmp_path: Path) -> None:
    broken = programs(tmp_path / "bin")
    (broken / "postgres").write_bytes(b"\x7fELF no program")
    with pytest.raises(Refusal) as refused:
        find_postgres(naming(broken))
    assert refused.value.reason is LocalReason.PostgresUnsuitable
    (broken / "pg_ctl").unlink()
    with pytest.raises(Refusal) as missing:
        find_postgres(naming(broken))
    assert missing.value.reason is LocalReason.PostgresMissing
    assert "pg_ctl" in missing.value.detail


def test_path_comes_before_the_system_s_folders_and_the_first_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    old, new = programs(tmp_path / "path", "postgres (PostgreSQL) 11.0"), programs(tmp_path / "system" / "bin")
    monkeypatch.setattr(shutil, "which", lambda name: str(old / name))
    monkeypatch.setattr(postgres_binary, "SYSTEM_FOLDERS", (f"{tmp_path}/system/b*n",))
    assert find_postgres(Settings()).folder == new
    monkeypatch.setattr(postgres_binary, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(Refusal) as refused:
        find_postgres(Settings())
    assert refused.value.reason is LocalReason.PostgresUnsuitable
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Refusal) as nowhere:
        find_postgres(Settings())
    assert nowhere.value.reason is LocalReason.PostgresMissing


def test_a_wheel_s_programs_are_found_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(postgres_binary, "SYSTEM_FOLDERS", ())
    shipped = programs(tmp_path / "wheel" / "pginstall" / "bin")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "wheel")])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    assert find_postgres(Settings()).folder == shipped


def test_root_runs_it_as_the_system_s_account_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = SimpleNamespace(pw_uid=70, pw_gid=71)
    monkeypatch.setattr("pwd.getpwnam", lambda _: account)
    folder = programs(tmp_path / "bin")
    found = find_postgres(naming(folder))
    assert found == PostgresBinaries(folder, 16, "postgres")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert found.command("postgres")[:3] == ["/usr/bin/setpriv", "--reuid=70", "--regid=71"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert found.command("postgres")[:3] == ["runuser", "-u", "postgres"]

    def nobody(_: str) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwnam", nobody)
    with pytest.raises(Refusal) as refused:
        find_postgres(naming(folder))
    assert refused.value.reason is LocalReason.AccountMissing
