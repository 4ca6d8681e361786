"""What an application calls: a host, a reader and an operator's client, with the review domain already bound.

The same calls serve a notebook. The writers stand beside them in ``statlib``: ``ScreeningWriter`` for decisions,
``AnnotationWriter`` for sessions, ``ClaimWriter`` and ``ReservationWriter`` for places, each made of a host and a
project. Everything else is imported from where it is defined.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import DATA_DIR_DEFAULT, Settings, config_file, load_settings
from statlib.local.reasons import LocalReason
from statlib.mongo.connection import connected, shown_address
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.loading.registration import register
from statlib.review.loading.review import LoadedReview
from statlib.review.loading.store import store
from statlib.statistics import hosts, reader
from statlib.statistics.hosts import Host, Role
from statlib.statistics.reader import Bundle, Request

if TYPE_CHECKING:  # the extras `local` and `admin`: an application may run without them
    from statlib.admin.client import AdminClient
    from statlib.local.data_folder import LocalStatus, Up


def up() -> Up:
    """Start the data folder's replica set, or find it running, as ``statlib up`` does.

    Where no other settings are in force, those of the folder become this process's and its children's; and the folder
    is then the nearest above that this user has already begun or the working copy's, so that a notebook in a subfolder
    finds the server that the shell started. Refuses DeploymentConfigured where mongo.uri names another server, since
    what follows would be read from there and written to it, and as ``statlib.local.data_folder.up`` does.
    """
    from statlib.local import data_folder  # noqa: PLC0415

    settings = load_settings()
    if (uri := settings.mongo.uri.get_secret_value()) and not _is_of(data_folder.status(settings), uri):
        raise Refusal(LocalReason.DeploymentConfigured, f"mongo.uri names {shown_address(uri)}")
    if config_file() is None and settings.data_dir == DATA_DIR_DEFAULT and not DATA_DIR_DEFAULT.exists():
        settings = settings.model_copy(update={"data_dir": begun_above(Path.cwd()) or DATA_DIR_DEFAULT})
    found = data_folder.up(settings, families=tuple(REVIEW.families))
    if config_file() is None:
        os.environ["STATLIB_CONFIG"] = str(found.config)
    return found


def _is_of(own: LocalStatus, uri: str) -> bool:
    """Whether ``uri`` is that of the folder's own server; also where its file names one that no longer exists."""
    in_force = config_file()
    by_own_file = in_force is not None and in_force.absolute() == own.config
    return uri == own.uri or (by_own_file and not any(name.upper() in _ADDRESS_VARIABLES for name in os.environ))


_ADDRESS_VARIABLES = frozenset({"STATLIB__MONGO", "STATLIB__MONGO__URI"})


def begun_above(start: Path) -> Path | None:
    """The data folder of the nearest folder from ``start`` upwards that holds this user's, or is a working copy of
    statlib; None if there is none. Somebody else's folder is never taken: its settings name the server."""
    for folder in (start, *start.parents):
        data, project = folder / DATA_DIR_DEFAULT, folder / "pyproject.toml"
        for sign in (data / "statlib.toml", project):
            with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
                ours = sign.stat().st_uid == os.getuid()
                if ours and (sign != project or _names_statlib(project)):
                    return data
    return None


def _names_statlib(project: Path) -> bool:
    declared = tomllib.loads(project.read_text(encoding="utf-8")).get("project")
    return isinstance(declared, dict) and declared.get("name") == "statlib"


def load(review: LoadedReview) -> LoadedReview:
    """Store a review's project and studies, without screenings, under statistics where the settings do so.

    Returns that review. Loading again adds what is missing and overwrites nothing. Hosts read their allowlist when
    they start: load first. Refuses as ``connect``, ``probe`` and ``store`` do.
    """
    settings = load_settings()
    with connected(settings, app_name="statlib-load") as mongo:
        probe(mongo)
        store(review, mongo, before_studies=lambda project: register(project, mongo, settings))
    return review


@contextmanager
def host(role: Role | str = Role.API, *, settings: Settings | None = None) -> Iterator[Host]:
    """Be a registered host for the length of a block: writers and readers refuse to work outside one.

    Settings are read once, here. Refuses as ``connect``, ``probe`` and ``registered`` do.
    """
    with connected(settings or load_settings(), app_name="statlib-host") as mongo:
        probe(mongo)
        with hosts.registered(mongo, Role(role)) as registered:
            yield registered


def read_bundle(host: Host, project: UUID, requests: Iterable[Request]) -> Bundle:
    """Counters of the review's families, for (family, scope) requests, from one moment. See ``statistics.reader``."""
    return reader.read_bundle(host, REVIEW, project, requests)


@contextmanager
def boundary() -> Iterator[AdminClient]:
    """An operator's client: of the boundary that the settings name, else of one embedded in this process."""
    from statlib.admin import embedded  # noqa: PLC0415

    with embedded.boundary(load_settings(), REVIEW) as client:
        yield client
