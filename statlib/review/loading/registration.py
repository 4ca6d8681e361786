"""What a loaded project needs before its first study is stored, so that no save can ever have passed statistics by."""

from __future__ import annotations

from statlib.kernel.settings import Settings, config_file
from statlib.mongo.connection import Mongo
from statlib.review.catalogue import REVIEW
from statlib.review.documents import Project
from statlib.statistics import storage
from statlib.statistics.documents import Mode
from statlib.statistics.modes import create_under_statistics


def register(project: Project, mongo: Mongo, settings: Settings) -> None:
    """Put the project under statistics where this host's settings do so. Safe to repeat.

    In the embedded default the project joins the allowlist of the data folder's ``statlib.toml`` (hosts read it when
    they start), and a database without any study starts with an open fleet. A deployment of one's own keeps its
    allowlist and modes itself; a project that its allowlist does not name is loaded without statistics.
    """
    embedded = _embedded_settings_are_in_force(settings)
    if embedded:
        from statlib.local import data_folder  # noqa: PLC0415 - needs the extra `local`, which a deployment may lack

        data_folder.allow_project(settings, project.id)
    storage.initialise(mongo, REVIEW, fleet=Mode.ENABLED if embedded else Mode.DISABLED)
    if embedded or (settings.statistics.writes and project.id in settings.statistics.allowlist):
        create_under_statistics(mongo, REVIEW, project.id)


def _embedded_settings_are_in_force(settings: Settings) -> bool:
    in_force = config_file()
    return in_force is not None and in_force.resolve().parent == settings.data_dir.resolve()
