"""What a process of an earlier release does with a project, told as one JSON document; run by its path, not imported.

Only that release is on its path. It reads, tries to publish, and saves one decision, with the functions that it had.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from uuid import UUID

import statlib
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.review.catalogue import REVIEW
from statlib.review.screening import Decision
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import hosts
from statlib.statistics.backfill import backfill
from statlib.statistics.hosts import Host
from statlib.statistics.reader import ALL, read_bundle
from statlib.statistics.rebuild import rebuild


def read(host: Host, project: UUID) -> dict[str, Any]:
    bundle = read_bundle(host, REVIEW, project, [(family, ALL) for family in REVIEW.families])
    return {
        "source": bundle.source.value,
        "reason": bundle.reason.name if bundle.reason else None,
        "values": {
            family: {scope: dict(counters) for scope, counters in scopes.items()}
            for family, scopes in bundle.values.items()
        },
    }


def refusals(host: Host, project: UUID) -> list[str]:
    """What it answers to attempts at publishing a family, forced ones included."""
    told = []
    for publish in (backfill, rebuild):
        for force in (False, True):
            try:
                publish(host, REVIEW, project, "ProjectScreening", force=force)
                told.append("published")
            except Refusal as refusal:
                told.append(refusal.reason.name)
    return told


def main(project: UUID, study: UUID, investigator: UUID) -> None:
    with (
        connected(load_settings(), app_name="an earlier release") as mongo,
        hosts.registered(mongo, hosts.Role.API) as host,
    ):
        told = {"of": statlib.__file__, "before": read(host, project), "refused": refusals(host, project)}
        ScreeningWriter(host, project).submit(study, investigator, Decision.INCLUDE)
        told["after"] = read(host, project)
        print(json.dumps(told), flush=True)
        sys.stdin.readline()  # a live host until it is told to end


if __name__ == "__main__":
    main(*map(UUID, sys.argv[1:]))
