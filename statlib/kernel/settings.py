"""Settings: one frozen tree, validated when it is built.

Read from ``STATLIB__…`` environment variables, then from a ``statlib.toml`` (``STATLIB_CONFIG``, else the
working folder, else the data folder below it). Every gate is off by default: a process that says nothing
moves no statistics and serves none. Secrets are masked wherever a tree is shown.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from statlib.kernel.clock import Clock
from statlib.kernel.refusals import Refusal, SettingsReason

DATA_DIR_DEFAULT = Path(".statlib")
PREFIX = "STATLIB__"
LOOKALIKE = "STATLIB_"

# What a cluster sets in every container beside a service of that name (here: statlib-admin); never a setting.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MongoSettings(_Section):
    """Where the documents are. Empty ``uri``: no deployment is configured."""

    uri: SecretStr = SecretStr("")
    database: str = Field(default="statlib", min_length=1, max_length=63)
    binary: Path | None = Field(default=None, description="mongod for the embedded default; found by itself if unset")
    server_selection_timeout_s: float = Field(default=10.0, gt=0, le=120)


class PostgresSettings(_Section):
    """Where data backfills work. Empty ``url``: no PostgreSQL is configured, and nothing of it is served."""

    url: SecretStr = Field(default=SecretStr(""), description="as the restricted runtime role: all that workers use")
    admin_url: SecretStr = Field(default=SecretStr(""), description="as the administrative role: for migrations only")
    binaries: Path | None = Field(default=None, description="folder of initdb and postgres; found by itself if unset")
    connect_timeout_s: float = Field(default=10.0, gt=0, le=120)
    connections_max: int = Field(default=8, ge=2, le=100, description="connections of one process")
    auto_migrate: bool = Field(default=False, description="the service applies outstanding migrations as it starts")


class BackfillSettings(_Section):
    """How this host takes part in data backfills."""

    automatic: bool = Field(default=False, description="required backfills are started, and gate readiness")
    claim_ttl_s: float = Field(default=30.0, ge=1, le=3600, description="a lost worker's claim is free after this")
    poll_s: float = Field(default=5.0, ge=0.05, le=60, description="longest sleep of a worker that finds no work")
    turn_s: float = Field(default=10.0, ge=0.1, le=600, description="a worker serves one backfill this long at a time")
    replication_lag_max_s: float = Field(default=10.0, gt=0, description="a worker yields while a replica lags more")
    active_sessions_max: int = Field(default=32, ge=1, description="a worker yields while more sessions are active")
    lock_waits_max: int = Field(default=4, ge=0, description="a worker yields while more sessions wait for locks")
    foreground_sessions_max: int = Field(
        default=0, ge=0, description="a worker is courteous while more sessions of the application do something"
    )
    courteous_batch_s: float = Field(default=0.025, ge=0.001, le=60, description="a courteous batch takes this long")
    courteous_share: float = Field(default=0.2, ge=0.01, le=1, description="of the time a courteous worker works")


class StatisticsSettings(_Section):
    """What this host moves and serves. Read once per process; the stored modes are read at every use."""

    allowlist: frozenset[UUID] = Field(default=frozenset(), description="projects under statistics")
    writes: bool = Field(default=False, description="saves keep materialised statistics")
    families: frozenset[str] = Field(default=frozenset(), description="families that this host moves and serves")
    fold: bool = Field(default=False, description="saves may leave pending entries, in projects whose fold mode is on")
    opening_grace_s: float = Field(
        default=60.0, ge=60, le=3600, description="must outlast a write begun before an opening"
    )
    redelivery_window_s: float = Field(default=3600.0, ge=60)
    ledger_maintenance: bool = Field(
        default=False, description="ledger rows older than the redelivery window may be compacted"
    )
    audit_window_s: float = Field(default=30 * 86400.0, ge=60)


class JwtSettings(_Section):
    """JSON Web Tokens that the boundary believes: all of issuer, audience and jwks_file, or none."""

    issuer: str = Field(default="", description="the only issuer (claim iss) believed")
    audience: str = Field(default="", description="what a token must be meant for (claim aud)")
    jwks_file: Path | None = Field(default=None, description="the issuer's public keys (RS256, ES256 or EdDSA)")
    capabilities_claim: str = Field(default="capabilities", min_length=1, description="the claim that names them")
    leeway_s: float = Field(default=10.0, ge=0, le=60, description="clock skew granted to exp and nbf")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len({bool(self.issuer), bool(self.audience), self.jwks_file is not None}) != 1:
            raise ValueError("give issuer, audience and jwks_file together")
        return self


class AdminSettings(_Section):
    """The admin boundary: where it listens and whom it believes."""

    url: str = Field(default="", description="a deployment's boundary; empty: embedded on a loopback port")
    token: SecretStr = SecretStr("")
    token_file: Path | None = Field(default=None, description="SHA-256-hashed tokens of this boundary")
    jwt: JwtSettings = JwtSettings()
    audit_retention_s: float = Field(
        default=400 * 86400.0, ge=86400, description="audit records younger than this are never pruned"
    )
    request_retention_s: float = Field(
        default=30 * 86400.0, ge=86400, description="how long a repeated request id returns its first outcome"
    )


class ScheduleSettings(_Section):
    """How this host runs schedules; what they run is in the schedule file."""

    file: Path | None = Field(default=None, description="the schedule file; by default schedule.toml of the runbooks")
    archive: Path = Field(default=Path("reports"), description="the folder that keeps scheduled runs of runbooks")
    concurrency: int = Field(default=2, ge=1, le=64, description="runs at a time on this host")
    lease_ttl_s: float = Field(default=60.0, ge=10, le=3600, description="a lost host's slot is given up after this")
    poll_s: float = Field(default=5.0, ge=0.05, le=60, description="longest sleep between looks at the slots")
    tolerance_s: float = Field(default=60.0, ge=1, le=86_400, description="a slot later than this counts as missed")
    drain_s: float = Field(default=60.0, ge=0, le=86_400, description="after SIGTERM, wait this long for own runs")
    hook_timeout_s: float = Field(default=10.0, gt=0, le=300)
    hook_attempts: int = Field(default=5, ge=1, le=20)


class OutboxSettings(_Section):
    """Whom ``statlib worker outbox`` tells of changed counters: exactly one of url, url_variable and command."""

    url: str = Field(default="", description="a webhook that is told what to read again")
    url_variable: str = Field(default="", description="the environment variable with its address, if that is a secret")
    command: str = Field(default="", description="a command that is told on standard input; words as a shell splits")
    timeout_s: float = Field(default=10.0, gt=0, le=300, description="of one delivery")
    poll_s: float = Field(default=0.5, ge=0.05, le=60, description="between two looks at the outbox")


class EvidenceSettings(_Section):
    """How runs are sealed, and whom the verifier trusts. Keys are files; none is ever copied into a report."""

    signing_key_file: Path | None = Field(
        default=None, description="Ed25519 private key (PEM, mode 600); unset: unsigned"
    )
    trusted_keys_folder: Path | None = Field(default=None, description="public keys (*.pub) whose signatures count")
    anchor: Literal["off", "wanted", "required"] = Field(
        default="wanted",
        description="record each journal's head in the database's audit; wanted: where a deployment is configured",
    )


class ClockSettings(_Section):
    offset_file: Path | None = Field(default=None, description="rehearsals only: milliseconds added to every clock")


class Settings(BaseSettings):
    """The whole tree."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )

    data_dir: Path = DATA_DIR_DEFAULT
    deployment: str = Field(default="local", min_length=1, max_length=80, description="the name that reports carry")
    mongo: MongoSettings = MongoSettings()
    postgres: PostgresSettings = PostgresSettings()
    backfills: BackfillSettings = BackfillSettings()
    statistics: StatisticsSettings = StatisticsSettings()
    admin: AdminSettings = AdminSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    outbox: OutboxSettings = OutboxSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    clock: ClockSettings = ClockSettings()

    @property
    def time(self) -> Clock:
        return Clock(self.clock.offset_file)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file())


_given: ContextVar[Path | None] = ContextVar("statlib_config", default=None)


def config_file() -> Path | None:
    """The ``statlib.toml`` that applies here, or None."""
    if (given := _given.get()) is not None:
        return given
    if named := os.environ.get("STATLIB_CONFIG"):
        return Path(named)
    candidates = (Path("statlib.toml"), DATA_DIR_DEFAULT / "statlib.toml")
    return next((path for path in candidates if path.is_file()), None)


def load_settings(config: Path | None = None) -> Settings:
    """Build the tree, from ``config`` if given.

    Refuses SettingsInvalid, naming each wrong setting in one line: also a variable that looks like a setting and is
    none, because a misspelt address would otherwise send the data to another server.
    """
    if config is not None:
        os.environ["STATLIB_CONFIG"] = str(config)
    if (found := config_file()) is not None and not found.is_file():
        raise Refusal(SettingsReason.InputUnreadable, f"{found} does not exist")
    if foreign := list(foreign_variables(os.environ)):
        raise Refusal(SettingsReason.SettingsInvalid, "; ".join(foreign))
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise Refusal(SettingsReason.SettingsInvalid, wrong) from error
    except SettingsError as error:  # a variable that should hold JSON; its value may be a secret, and is not told
        raise Refusal(SettingsReason.SettingsInvalid, str(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise Refusal(SettingsReason.SettingsInvalid, f"{found}, {_place_first(str(error))}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(SettingsReason.InputUnreadable, f"{found} cannot be read") from error


def foreign_variables(environment: Iterable[str]) -> Iterator[str]:
    """One line for each variable that looks like a setting and is none, with the setting that it may have meant."""
    known = {f"{PREFIX}{'__'.join(path)}".upper() for path in _paths(Settings)}
    by_letters = {_letters(name): name for name in sorted(known)}
    sections = tuple(f"{LOOKALIKE}{name}_".upper() for name, field in Settings.model_fields.items() if _section(field))
    for name in sorted(environment):
        upper = name.upper()
        if not upper.startswith(LOOKALIKE) or upper in known:
            continue
        alike = by_letters.get(_letters(upper))
        ours = upper.startswith(PREFIX)
        linked = any(_SERVICE_LINK.fullmatch(upper[len(section) - 1 :]) for section in sections)
        if not ours and alike is None and (linked or not upper.startswith(sections)):
            continue
        near = [alike] if alike else difflib.get_close_matches(upper, known, n=1, cutoff=0.6)
        yield f"{name} is no setting" + (f" (did you mean {near[0]}?)" if near else "")


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Leaves, and sections, which a variable may give whole, as JSON."""
    for name, field in model.model_fields.items():
        yield (*above, name)
        if (below := _section(field)) is not None:
            yield from _paths(below, (*above, name))


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _letters(name: str) -> str:
    return name.replace("_", "").upper()


def _place_first(message: str) -> str:
    """``Invalid value (at line 1, column 5)`` as ``line 1, column 5: Invalid value``."""
    found = re.fullmatch(r"(?P<what>.*?) \(at (?P<place>[^()]*)\)", message, re.DOTALL)
    return f"{found['place']}: {found['what']}" if found else message
