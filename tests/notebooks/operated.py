"""A deployment as an operator meets it: a settings file, a review that is served, runbooks run on it as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from statlib.kernel.identifiers import new_token
from statlib.kernel.settings import Settings, load_settings
from statlib.local.config_file import write_embedded
from statlib.local.replica_set import ReplicaSet
from statlib.mongo.connection import Mongo, connected
from statlib.passes.audit import AUDIT, REQUEST
from statlib.passes.operations import OPERATION
from statlib.review.catalogue import REVIEW
from statlib.review.documents import PROJECTS, STUDIES
from statlib.review.families.project_screening import NAME as FAMILY
from statlib.review.loading.registration import register
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import store
from statlib.review.screening_writer import ScreeningWriter
from statlib.statistics import hosts
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import CONTROL, LEASE, MEMBER, Mode
from statlib.statistics.hosts import Role
from statlib.statistics.modes import set_narrow_gate
from statlib.statistics.reader import Source, read_bundle
from statlib.statistics.status import project_status
from tests.oracles.project_screening import project_screening
from tests.reviews import action

REPOSITORY = Path(__file__).resolve().parents[2]
GRACE_S = 60.0
PATIENCE_S = 120.0
STUDIES_COUNT = 40
DECISIONS = 60


@dataclass(frozen=True)
class Standing:
    """What closing and opening again must bring back: modes, what is served, and every counter."""

    fleet: str
    gate: str | None
    served: Mapping[str, bool]
    states: Mapping[str, str]
    counters: Mapping[str, int]
    source: str


@dataclass(frozen=True)
class Operated:
    """The deployment. ``mongo`` belongs to the test: what runs as a process has a client of its own."""

    mongo: Mongo
    settings: Settings
    project: UUID
    archive: Path

    def standing(self) -> Standing:
        with hosts.registered(self.mongo, Role.API) as host:
            status = project_status(host, REVIEW, self.project)
            bundle = read_bundle(host, REVIEW, self.project, [(FAMILY, "project")])
        return Standing(
            fleet=status.fleet_mode,
            gate=status.project_mode,
            served={family.family: family.served for family in status.families},
            states={family.family: family.state for family in status.families},
            counters=dict(bundle.counters(FAMILY)),
            source=bundle.source.name,
        )

    def truth(self) -> dict[str, int]:
        """The naive count of what stands in the studies."""
        project = self.mongo.collection(PROJECTS).find_one({"_id": self.project})
        assert project is not None
        studies = list(self.mongo.collection(STUDIES).find({"ProjectId": self.project}))
        counted = project_screening(studies, project["AgreementThreshold"])
        return {key: value for key, value in counted.items() if value}

    def documents(self) -> dict[str, bytes]:
        """Every document of the database but the boundary's own records, as the bytes that it is stored in."""
        raw: Any = CodecOptions(document_class=RawBSONDocument)
        found: dict[str, Any] = {
            name: self.mongo.database.get_collection(name, codec_options=raw).find()
            for name in sorted(self.mongo.database.list_collection_names())
            if name not in {AUDIT, REQUEST}
        }
        return {name: b"".join(sorted(document.raw for document in documents)) for name, documents in found.items()}

    def openings(self) -> int:
        control = self.mongo.collection(CONTROL).find_one({"_id": self.project})
        assert control is not None
        return int(control["OpeningCount"])

    def mode(self) -> str:
        control = self.mongo.collection(CONTROL).find_one({"_id": self.project})
        assert control is not None
        return str(control["Mode"])

    def live_hosts(self) -> list[str]:
        return [str(member["_id"]) for member in self.mongo.collection(MEMBER).find(hosts.live_filter(self.mongo))]

    def host_records(self) -> int:
        return self.mongo.collection(MEMBER).count_documents({})

    def held_leases(self) -> list[dict[str, Any]]:
        unexpired = {"$expr": {"$gt": ["$ExpiresAtUtc", self.mongo.clock.mongo_now()]}}
        return [lease for name in (LEASE, OPERATION) for lease in self.mongo.collection(name).find(unexpired)]

    def actions(self) -> list[str]:
        """What the audit holds, in order: the action of every control attempt, accepted or not."""
        return [str(record["Action"]) for record in self.mongo.collection(AUDIT).find().sort("_id")]

    def accepted(self) -> list[str]:
        """Request ids of accepted actions on this project, in order; a repeated effect would be here twice."""
        found = self.mongo.collection(AUDIT).find({"Outcome": "Accepted", "Target": {"$regex": str(self.project)}})
        return [str(record["RequestId"]) for record in found.sort("_id")]

    def waits_for_grace(self) -> bool:
        """Whether a backfill has been put off because an opening is young."""
        wanted = {"Outcome": "Rejected", "Reason": "WriterGracePending"}
        return self.mongo.collection(AUDIT).find_one(wanted) is not None

    def pass_grace(self) -> None:
        """Move every clock of the deployment past the grace; what runs now says that it ran accelerated."""
        self.mongo.clock.advance(GRACE_S + 1)

    def gate(self, *, enabled: bool) -> None:
        """Turn the narrow gate below the boundary, as something that happened before the runbook."""
        set_narrow_gate(self.mongo, REVIEW, self.project, enabled=enabled, action=action())

    @contextmanager
    def running(self, runbook: str, *words: str, given: Mapping[str, str | None] | None = None) -> Iterator[Running]:
        """``statlib runbook run``, acting unless told otherwise; ended with the block at the latest. ``given``: None
        leaves a parameter out."""
        usual = {"project": str(self.project), "apply": "true", "confirm": str(self.project)}
        parameters = {key: value for key, value in {**usual, **(given or {})}.items() if value is not None}
        assignments = [part for key, value in parameters.items() for part in ("-p", f"{key}={value}")]
        command = [sys.executable, "-m", "statlib.cli.main", "runbook", "run", runbook, *assignments]
        process = subprocess.Popen(
            [*command, "--archive", str(self.archive), "--json", *words],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Running(process)
        finally:
            process.kill()
            process.communicate(timeout=30)

    def run(
        self, runbook: str, *words: str, given: Mapping[str, str | None] | None = None, past_grace: bool = False
    ) -> Ended:
        """Run it to its end. ``past_grace``: pass the grace for it once it waits."""
        with self.running(runbook, *words, given=given) as running:
            if past_grace:
                until(self.waits_for_grace, while_alive=running.process)
                self.pass_grace()
            return running.ended()


@dataclass(frozen=True)
class Ended:
    exit_code: int
    answer: Mapping[str, Any]
    errors: str

    @property
    def report(self) -> Path:
        return Path(self.answer["path"])


@dataclass(frozen=True)
class Running:
    """A runbook under way, as a process of its own with a kernel below it."""

    process: subprocess.Popen[str]

    def ended(self) -> Ended:
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        return Ended(self.process.returncode, json.loads(out) if out else {}, errors)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL the executor alone; return when it and the kernel that it leaves behind are gone."""
        kernels = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(timeout=30)
        gone, alive = psutil.wait_procs(kernels, timeout=30)
        assert gone, "the executor had a kernel"
        assert alive == []


def until(true: Callable[[], bool], *, while_alive: subprocess.Popen[str] | None = None) -> None:
    """Return once ``true()`` is; AssertionError after two minutes, or when the process ends before."""
    never = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{true} did not come to be"
        if while_alive is not None and while_alive.poll() is not None:
            out, errors = while_alive.communicate(timeout=30)
            raise AssertionError(f"it ended before: {out}{errors}")
        never.wait(0.1)


@contextmanager
def operated(server: ReplicaSet, folder: Path) -> Iterator[Operated]:
    """A deployment on ``server`` whose settings stand in ``folder``; its one project is half screened and served.

    The caller sets STATLIB_CONFIG to ``folder / "data" / "statlib.toml"`` before.
    """
    config = folder / "data" / "statlib.toml"
    assert os.environ["STATLIB_CONFIG"] == str(config)
    config.parent.mkdir(mode=0o700)
    write_embedded(config.parent, uri=server.uri, database=f"t{new_token()}", families=REVIEW.families)
    review = SimulatedReview(studies=STUDIES_COUNT, reviewers=3, events=DECISIONS).load()
    with connected(load_settings(), app_name="statlib-tests") as mongo:
        store(review, mongo, before_studies=lambda project: register(project, mongo, mongo.settings))
    with connected(load_settings(), app_name="statlib-tests") as mongo:
        with hosts.registered(mongo, Role.API) as host:
            backfill(host, REVIEW, review.project.id, FAMILY)
            writer = ScreeningWriter(host, review.project.id)
            for event in review.events:
                writer.submit(event.study_id, event.investigator_id, event.decision, at=event.at)
            for family in REVIEW.families:
                backfill(host, REVIEW, review.project.id, family)
        found = Operated(mongo, load_settings(), review.project.id, folder / "reports")
        standing = found.standing()
        assert standing.gate == Mode.ENABLED
        assert standing.source == Source.MATERIALISED.name
        assert set(standing.served.values()) == {True}
        assert standing.counters == found.truth()
        try:
            yield found
        finally:
            mongo.client.drop_database(mongo.database)
