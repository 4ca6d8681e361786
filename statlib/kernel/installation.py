"""How this installation gets more of itself: from a clone, as pinned there; else by name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def install_command(extra: str, *, root: Path = ROOT) -> str:
    """The command that adds an extra. In a clone (``root`` holds its pyproject.toml) it is called from there."""
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'statlib[{extra}]'"
    pins = "-c constraints.txt " if (root / "constraints.txt").is_file() else ""
    return f"pip install {pins}-e '.[{extra}]'"
