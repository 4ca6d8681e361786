"""The advice fits the installation: a clone is installed from its folder, anything else by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statlib.kernel.installation import install_command


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ((), "pip install 'statlib[metrics]'"),
        (("pyproject.toml",), "pip install -e '.[metrics]'"),
        (("pyproject.toml", "constraints.txt"), "pip install -c constraints.txt -e '.[metrics]'"),
    ],
)
def test_an_extra_is_added_as_the_installation_was_made(tmp_path: Path, files: tuple[str, ...], command: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert install_command("metrics", root=tmp_path) == command
