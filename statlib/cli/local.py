"""``statlib up``, ``down`` and ``status``: the embedded default."""

from __future__ import annotations

import shlex

import click
from pydantic import SecretStr

from statlib.cli.output import answer, json_option, plain
from statlib.kernel.settings import config_file, load_settings
from statlib.local import data_folder
from statlib.local.data_folder import LocalStatus, Up
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW


@click.command()
@click.option("--postgres", is_flag=True, help="Start the folder's PostgreSQL too, for data backfills.")
@json_option
def up(*, postgres: bool) -> None:
    """Start the data folder's MongoDB replica set, or find it running.

    The server listens on loopback only, asks for no password there, and outlives this command. The settings
    that point at it are written to statlib.toml in the data folder (setting data_dir, by default .statlib).
    """
    settings = load_settings()
    found = data_folder.up(settings, families=REVIEW.families)
    own = settings.model_copy(update={"mongo": settings.mongo.model_copy(update={"uri": SecretStr(found.uri)})})
    with connected(own, app_name="statlib-up") as mongo:
        facts = probe(mongo)
    lines = [*_up_lines(found), *(f"warning: {warning}" for warning in facts.warnings)]
    if not postgres:
        answer(found, lines)
        return
    from statlib.backfills import SCHEMA  # noqa: PLC0415 - the extra `postgres`
    from statlib.local import postgres_folder  # noqa: PLC0415

    beside = postgres_folder.up(settings, [SCHEMA])
    answer({**plain(found), "postgres": beside}, [*lines, str(beside)])


@click.command()
@json_option
def down() -> None:
    """Stop the data folder's servers. Their data stay; `statlib up` starts them again."""
    settings = load_settings()
    stopped = data_folder.down(settings)
    if settings.postgres.url.get_secret_value():
        from statlib.local import postgres_folder  # noqa: PLC0415 - the extra `postgres`

        stopped = postgres_folder.down(settings) or stopped
    answer({"stopped": stopped}, "stopped" if stopped else "nothing was running")


@click.command()
@json_option
def status() -> None:
    """Show whether the data folder's server runs, and where. Exits with 0 either way."""
    found = data_folder.status(load_settings())
    answer(found, _status_lines(found))


def _up_lines(found: Up) -> list[str]:
    lines = [
        f"MongoDB {found.version} {found.outcome}: {found.uri} (process {found.pid})",
        f"settings: {found.config}",
    ]
    in_force = config_file()
    if in_force is None or in_force.absolute() != found.config:
        lines.append(
            f"note: they are not in force here; to use them: export STATLIB_CONFIG={shlex.quote(str(found.config))}"
        )
    elif load_settings().mongo.uri.get_secret_value() != found.uri:
        lines.append("note: STATLIB__MONGO__URI is set and names another deployment")
    return lines


def _status_lines(found: LocalStatus) -> list[str]:
    if not found.running:
        state = "stopped"
    elif found.version is None:
        state = "running, but it does not answer"
    else:
        state = f"running{', takes writes' if found.primary else ', has no primary yet'}"
    facts = {
        "server": state,
        "data": f"{found.data_dir} ({found.data_bytes / 1e6:,.1f} MB)",
        "version": found.version,
        "process": found.pid,
        "address": found.uri,
        "settings": found.config,
    }
    return [f"{name:<9} {value}" for name, value in facts.items() if value is not None]
