"""One real PostgreSQL of one folder, on a loopback port: made, started, found again, stopped, killed.

The folder belongs to the account that the server runs under. Root's servers live in a system folder, because the
account could not reach a folder below root's own without opening every folder above it. Logins need passwords, which
are kept beside the cluster, readable by its owner alone. Invariant: a pid is believed only while it is a postgres of
that very folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from statlib.kernel.digests import digest
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.local.postgres_binary import PostgresBinaries, find_postgres
from statlib.local.process import LOOPBACK, POLL_S, free_ports, is_gone
from statlib.local.reasons import LocalReason

DATABASE = "statlib"
SUPERUSER = "statlib_superuser"
ADMINISTRATIVE_ROLE = "statlib_admin"
RUNTIME_ROLE = "statlib_runtime"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
PORT_ATTEMPTS_MAX = 5
ROOT_HOME = Path("/var/lib/statlib")
_TEMPORARY_PREFIX = "statlib-postgres-"
_FOR_TESTS = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
_ALWAYS = {
    "listen_addresses": f"'{LOOPBACK}'",
    "unix_socket_directories": "''",
    "shared_buffers": "'64MB'",
    "max_connections": "100",
    "password_encryption": "'scram-sha-256'",
    "log_min_messages": "'warning'",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server's home. Holds no state but the folder: any process of its owner may act."""

    binaries: PostgresBinaries
    home: Path
    for_tests: bool = False

    @property
    def cluster(self) -> Path:
        return self.home / "cluster"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    def start(self) -> None:
        """Make the cluster if it is new, and return once the server accepts connections; idempotent.

        A server that was killed recovers here from its log. Fault, naming the log, if it does not start.
        """
        if self.process() is not None:
            return
        fresh = not (self.cluster / "PG_VERSION").is_file()
        if fresh:
            self._make()
        self._forget_the_dead()
        for _ in range(PORT_ATTEMPTS_MAX):
            (port,) = free_ports(1) if (remembered := self._remembered_port()) is None else (remembered,)
            if self._started(port):
                self._port_file.write_text(str(port), encoding="ascii")
                break
            self._port_file.unlink(missing_ok=True)
        else:
            raise Fault("PostgreSQL did not start", remedy=f"Read the end of {self.log}.")
        self._provision()

    def stop(self) -> bool:
        """End the server, its transactions rolled back. False if none ran."""
        if self.process() is None:
            return False
        self._control("stop", "-m", "fast", "-t", str(STOP_TIMEOUT_S))
        if self.process() is not None:
            self.kill()
        return True

    def kill(self) -> None:
        """SIGKILL the server and every process of it, as a crash of its machine would end them."""
        found = self.process()
        if found is None:
            return
        family = [found, *found.children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not all(is_gone(one) for one in family):
            if time.monotonic() > deadline:
                raise Fault(f"the server of {self.home} survived SIGKILL")
            time.sleep(POLL_S)

    def process(self) -> psutil.Process | None:
        """The live server of this folder, or None."""
        try:
            pid = int((self.cluster / "postmaster.pid").read_text(encoding="ascii").split()[0])
            found = psutil.Process(pid)
            if not is_gone(found) and str(self.cluster) in found.cmdline():
                return found
        except (OSError, ValueError, IndexError, psutil.Error):
            return None
        return None

    def address(self, role: str, database: str = DATABASE) -> str:
        """The address of a database as ``role``, password included."""
        port = self._remembered_port()
        if port is None:
            raise Fault(f"the server of {self.home} was never started")
        return f"postgresql://{role}:{self._passwords()[role]}@{LOOPBACK}:{port}/{database}"

    @property
    def _port_file(self) -> Path:
        return self.home / "port"

    def _remembered_port(self) -> int | None:
        try:
            return int(self._port_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def _forget_the_dead(self) -> None:
        """Remove the pid file of a killed server that no init has collected: to PostgreSQL a zombie is alive."""
        lock = self.cluster / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            if is_gone(psutil.Process(int(lock.read_text(encoding="ascii").split()[0]))):
                lock.unlink()

    def _passwords(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.home / "passwords.json").read_text(encoding="ascii"))
        return found

    def _make(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self.cluster, ignore_errors=True)  # what an interrupted initdb left
        passwords = {role: secrets.token_urlsafe(24) for role in (SUPERUSER, ADMINISTRATIVE_ROLE, RUNTIME_ROLE)}
        kept = self.home / "passwords.json"
        kept.touch(mode=0o600)
        kept.write_text(json.dumps(passwords), encoding="ascii")
        initial = self.home / "superuser.password"
        initial.touch(mode=0o600)
        initial.write_text(passwords[SUPERUSER], encoding="ascii")
        self._give_to_account()
        options = ["-D", str(self.cluster), "-U", SUPERUSER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]
        options += [f"--pwfile={initial}", *(["--no-sync"] if self.for_tests else [])]
        ran = self._run("initdb", *options)
        initial.unlink()
        if ran.returncode != 0:
            said = " ".join(ran.stdout.split())[-300:]
            raise Fault(f"initdb ended with {ran.returncode}: {said}", remedy=f"Look at {self.home}.")
        chosen = _ALWAYS | (_FOR_TESTS if self.for_tests else {})
        lines = "".join(f"{name} = {value}\n" for name, value in chosen.items())
        with (self.cluster / "postgresql.auto.conf").open("a", encoding="ascii") as file:
            file.write(lines)

    def _give_to_account(self) -> None:
        if not self.binaries.as_account:
            return
        account = pwd.getpwnam(self.binaries.as_account)
        for path in (self.home, *self.home.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)

    def _started(self, port: int) -> bool:
        ran = self._control("start", "-w", "-t", str(START_TIMEOUT_S), "-l", str(self.log), "-o", f"-p {port}")
        return ran.returncode == 0

    def _control(self, action: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self._run("pg_ctl", action, "-D", str(self.cluster), *options)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # a file, not a pipe: the server inherits it, and a pipe would never end
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            ran = subprocess.run(  # noqa: S603
                self.binaries.command(program, *arguments),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=START_TIMEOUT_S + 60,
                check=False,
            )
            output.seek(0)
            return subprocess.CompletedProcess(ran.args, ran.returncode, output.read(), "")

    def _provision(self) -> None:
        """The two roles and the database; what is there stays."""
        passwords = self._passwords()
        with psycopg.connect(self.address(SUPERUSER, "postgres"), autocommit=True) as connection:
            for role in (ADMINISTRATIVE_ROLE, RUNTIME_ROLE):
                if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
                    make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                    connection.execute(make.format(sql.Identifier(role), sql.Literal(passwords[role])))
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
                create_database(connection, DATABASE)


def create_database(connection: psycopg.Connection, name: str, *, template: str = "template1") -> None:
    """A database of the administrative role, which nobody else enters but the runtime role. As superuser."""
    create = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}")
    owner = sql.Identifier(ADMINISTRATIVE_ROLE)
    connection.execute(create.format(sql.Identifier(name), owner, sql.Identifier(template)))
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    grant = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
    connection.execute(grant.format(sql.Identifier(name), sql.Identifier(RUNTIME_ROLE)))


def server_of(settings: Settings) -> PostgresServer:
    """The server of a data folder; nothing is started. Refuses as ``find_postgres`` does."""
    binaries = find_postgres(settings)
    folder = settings.data_dir.resolve()
    if binaries.as_account:
        return PostgresServer(binaries, ROOT_HOME / f"postgres-{digest(str(folder))[:12]}")
    return PostgresServer(binaries, folder / "postgres")


@contextlib.contextmanager
def postgres_server(*, settings: Settings, for_tests: bool = True) -> Iterator[PostgresServer]:
    """A started server for the length of a block, in a temporary folder that is removed with it.

    What an owner that was killed left behind is swept by the next call.
    """
    _sweep(settings)
    home = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    (home / "owner").write_text(f"{os.getpid()} {psutil.Process().create_time()}", encoding="ascii")
    server = PostgresServer(find_postgres(settings), home, for_tests)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def _sweep(settings: Settings) -> None:
    for home in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_PREFIX}*"):
        if not _owned(home):
            with contextlib.suppress(Refusal, Fault):
                PostgresServer(find_postgres(settings), home).kill()
            shutil.rmtree(home, ignore_errors=True)


def _owned(home: Path) -> bool:
    try:
        pid, created = (home / "owner").read_text(encoding="ascii").split()
        return psutil.Process(int(pid)).create_time() == float(created)
    except psutil.NoSuchProcess:
        return False
    except (OSError, ValueError, psutil.Error):
        return True


def require_folder(settings: Settings) -> None:
    """Refuses FolderUnusable if the server's home cannot be made."""
    home = server_of(settings).home
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(LocalReason.FolderUnusable, f"{home}: {error.strerror}") from error
