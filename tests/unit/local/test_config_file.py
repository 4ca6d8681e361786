"""The data folder's settings file keeps what operators wrote."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from statlib.kernel.refusals import Reason, Refusal, SettingsReason
from statlib.kernel.settings import load_settings
from statlib.local.config_file import FILE_NAME, add_to_allowlist, write_embedded
from statlib.local.reasons import LocalReason

URI = "mongodb://127.0.0.1:40000/?replicaSet=rs0"


def write(folder: Path, uri: str = URI) -> Path:
    return write_embedded(folder, uri=uri, database="statlib", families=["B", "A"])


def test_a_new_file_loads_as_settings(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path))
    assert settings.mongo.uri.get_secret_value() == URI
    assert settings.data_dir == tmp_path
    assert settings.clock.offset_file == tmp_path / "clock_offset_ms"
    assert settings.statistics.writes
    assert settings.statistics.families == {"A", "B"}
    assert settings.statistics.allowlist == frozenset()


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    assert write(tmp_path).stat().st_mode & 0o777 == 0o600


def test_an_operators_choices_comments_and_other_keys_survive(tmp_path: Path) -> None:
    allowed = uuid4()
    (tmp_path / FILE_NAME).write_text(
        "# ours\n[mongo]\n# the trial\ndatabase = 'trial'\n"
        f"[statistics]\nwrites = false\nfamilies = []\nallowlist = ['{allowed}']\n[admin]\nurl = 'u'\n",
        encoding="utf-8",
    )
    path = write(tmp_path)
    settings = load_settings(path)
    assert settings.mongo.uri.get_secret_value() == URI
    assert (settings.mongo.database, settings.admin.url) == ("trial", "u")
    assert (settings.statistics.writes, settings.statistics.families) == (False, frozenset())
    assert settings.statistics.allowlist == {allowed}
    assert "# the trial" in path.read_text(encoding="utf-8")


def test_a_moved_server_replaces_the_address_and_nothing_else(tmp_path: Path) -> None:
    before = write(tmp_path).read_text(encoding="utf-8")
    after = write(tmp_path, URI.replace("40000", "40001")).read_text(encoding="utf-8")
    assert after == before.replace("40000", "40001")


def test_a_project_is_added_to_the_allowlist_once(tmp_path: Path) -> None:
    path = write(tmp_path)
    first, second = UUID(int=2), UUID(int=1)
    assert add_to_allowlist(tmp_path, first)
    assert add_to_allowlist(tmp_path, second)
    assert not add_to_allowlist(tmp_path, first)
    assert load_settings(path).statistics.allowlist == {first, second}


def test_an_id_in_capitals_is_the_same_id(tmp_path: Path) -> None:
    project = uuid4()
    (tmp_path / FILE_NAME).write_text(f"[statistics]\nallowlist = ['{str(project).upper()}']\n", encoding="utf-8")
    assert not add_to_allowlist(tmp_path, project)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, LocalReason.NotEmbedded),
        ("[statistics\n", SettingsReason.SettingsInvalid),
        ("statistics = 3\n", SettingsReason.SettingsInvalid),
        ("[statistics]\nallowlist = ['x']\n", SettingsReason.SettingsInvalid),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_and_left_as_it_was(
    tmp_path: Path, text: str | None, reason: Reason
) -> None:
    path = tmp_path / FILE_NAME
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(Refusal) as refused:
        add_to_allowlist(tmp_path, uuid4())
    assert refused.value.reason is reason
    assert [each.name for each in tmp_path.iterdir()] == ([] if text is None else [FILE_NAME])
    assert text is None or path.read_text(encoding="utf-8") == text


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        add_to_allowlist(tmp_path, uuid4())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
