"""What is wrong with the settings is said in one line that names it; a misspelt variable is never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.refusals import Refusal, SettingsReason
from statlib.kernel.settings import load_settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "statlib.toml"


def refused(config: Path) -> Refusal:
    config.touch()
    with pytest.raises(Refusal) as caught:
        load_settings(config)
    return caught.value


@pytest.mark.parametrize(
    ("content", "place"),
    [(b"mongo = \n", "line 1, column 9: Invalid value"), (b"[mongo]\nuri = 'x'\nuri 'y'\n", "line 3")],
)
def test_a_file_that_is_no_toml_is_refused_with_the_line_where_it_ends_to_be(
    config: Path, content: bytes, place: str
) -> None:
    config.write_bytes(content)
    refusal = refused(config)
    assert refusal.reason is SettingsReason.SettingsInvalid
    assert refusal.detail.startswith(f"{config}, {place}")


def test_a_file_that_is_no_text_is_refused(config: Path) -> None:
    config.write_bytes(b"\xff\xfe")
    assert refused(config).reason is SettingsReason.InputUnreadable


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STATLIB__MONG__URI", "STATLIB__MONGO__URI"),
        ("STATLIB__MONGO_URI", "STATLIB__MONGO__URI"),
        ("STATLIB__MONGO__URL", "STATLIB__MONGO__URI"),
        ("STATLIB_MONGO_URI", "STATLIB__MONGO__URI"),
        ("STATLIB_MONGO__URI", "STATLIB__MONGO__URI"),
        ("statlib_mongo_uri", "STATLIB__MONGO__URI"),
        ("STATLIB_DATA_DIR", "STATLIB__DATA_DIR"),
        ("STATLIB_DEPLOYMENT", "STATLIB__DEPLOYMENT"),
        ("STATLIB_STATISTICS_WRITE", "STATLIB__STATISTICS__WRITES"),
        ("STATLIB__ADMIN__JWT__ISSUERS", "STATLIB__ADMIN__JWT__ISSUER"),
    ],
)
def test_a_variable_that_looks_like_a_setting_is_refused_with_the_one_that_it_may_mean(
    config: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "mongodb://db.example/secretly")
    refusal = refused(config)
    assert refusal.reason is SettingsReason.SettingsInvalid
    assert refusal.detail == f"{name} is no setting (did you mean {meant}?)"


@pytest.mark.parametrize(
    "name",
    [
        "STATLIB_ARCHIVE",
        "STATLIB_RUNBOOKS",
        "STATLIB_TRACEBACK",
        "STATLIB_TEST_DATA",
        "STATLIB_BROWSER_ABSENT_OK",
        "STATLIB_ALERT_URL",
        "STATLIB_ADMIN_SERVICE_HOST",
        "STATLIB_ADMIN_SERVICE_PORT_HTTP",
        "STATLIB_ADMIN_PORT",
        "STATLIB_ADMIN_PORT_8430_TCP_ADDR",
    ],
)
def test_other_variables_and_those_that_a_cluster_sets_are_none_of_the_settings(
    config: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    config.touch()
    load_settings(config)


def test_a_setting_and_a_whole_section_are_taken_from_variables(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATLIB__ADMIN__JWT__LEEWAY_S", "5")
    monkeypatch.setenv("statlib__mongo", '{"database": "reviews"}')
    config.touch()
    found = load_settings(config)
    assert (found.mongo.database, found.admin.jwt.leeway_s) == ("reviews", 5)


def test_a_section_that_is_no_json_is_refused_without_its_value(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATLIB__MONGO", "{hunter22")
    refusal = refused(config)
    assert refusal.reason is SettingsReason.SettingsInvalid
    assert "mongo" in refusal.detail
    assert "hunter22" not in refusal.detail
