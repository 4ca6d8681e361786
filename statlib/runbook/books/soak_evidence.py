"""The soak: does everything stay exact while reviewers work? Replays a review, observes, and derives gates.

The steps of ``runbooks/soak_evidence.ipynb``, in its order.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from statlib.evidence import soak_captures as soak
from statlib.evidence.capture_reader import CaptureReader
from statlib.evidence.derivation import derive
from statlib.evidence.expectations import EXPECTATIONS, Expectation
from statlib.evidence.results import Comparison
from statlib.kernel.plurals import plural
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES, Project, Study
from statlib.review.loading.detection import detect
from statlib.review.loading.registration import register
from statlib.review.loading.review import LoadedReview, annotated, event_counts, replayed
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import store
from statlib.runbook.application import application_host
from statlib.runbook.catalogue import Runbook
from statlib.runbook.fragments import GateTable, KeyValues, Quantity
from statlib.runbook.live import Live
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.patience import backfill_together_when_allowed
from statlib.runbook.run import Run
from statlib.runbook.soak import observers
from statlib.runbook.soak.captured import NOT_LOADED, NotLoaded
from statlib.runbook.soak.findings import soak_findings
from statlib.runbook.soak.mutations import MutationMix, planned
from statlib.runbook.soak.page_reads import RECOUNTED, ReadMix
from statlib.runbook.soak.receipts import receipts_since
from statlib.runbook.soak.window import Load, WindowSummary, run_window
from statlib.runbook.soak.work import Plan
from statlib.statistics.documents import Mode, TrackingMode

SIMULATED = "simulated"
FAMILIES = tuple(REVIEW.families)
SESSIONS_SHARE = 0.3
PROBLEMS_NAMED = 20


class Cadence(BaseModel):
    """How often, in seconds, each observation is made; a rebuild every 0 s is none. Every ``quiet_s`` the savers rest
    while every family is compared. A submission that is not confirmed for ``patience_s`` ends the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read_s: float = Field(default=0.05, gt=0, le=3_600)
    parity_s: float = Field(default=1.0, gt=0, le=3_600)
    rebuild_s: float = Field(default=10.0, ge=0, le=86_400)
    quiet_s: float = Field(default=2.5, gt=0, le=86_400)
    patience_s: float = Field(default=120.0, gt=0, le=86_400)


class Thresholds(BaseModel):
    """What the gates hold the run to, beside the window's length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operations_min: int = Field(default=1_000, ge=1)
    reads_min: int = Field(default=300, ge=1)
    comparisons_min: int = Field(default=20, ge=1)
    fallback_rate_max: float = Field(default=0.1, ge=0, le=1)
    bytes_per_operation_max: float = Field(default=4_096.0, gt=0)


class SoakParameters(ActingParameters):
    """What an operator may say to a soak."""

    data: str = Field(default=SIMULATED, min_length=1, description="'simulated', or the folder of an export")
    studies: int = Field(default=1_250, ge=10, le=100_000, description="simulated: records under review")
    review: str = Field(default="", max_length=400, description="an export of several: the one to replay, or the first")
    seed: int = Field(default=20_260_309, ge=0, description="another seed: another simulated review, reads, mutations")
    reviewers: int = Field(default=6, ge=1, le=64, description="concurrent savers (threads)")
    rate_per_s: float = Field(default=50.0, ge=0, le=10_000, description="submissions a second; 0: as fast as possible")
    duration_s: float = Field(default=60.0, gt=0, description="the window lasts at least so long; a real soak 7 days")
    reads: ReadMix = Field(default=ReadMix(), description="weights of the pages that are read")
    mutations: MutationMix = Field(default=MutationMix(), description="generated beside the record, per recorded event")
    cadence: Cadence = Field(default=Cadence(), description="seconds between reads, comparisons and rebuilds")
    thresholds: Thresholds = Field(default=Thresholds(), description="gates: least and greatest values")


SoakRun = Run[SoakParameters]


class Preflight(BaseModel):
    """What would be done, and to what."""

    deployment: str
    server: str
    review: str
    recorded: str
    simulated: str
    studies: int
    reviewers_on_record: int
    decisions: int
    decisions_that_change_nothing: int
    acts_on_sessions: int
    generated_submissions: int
    edits: int
    rows_not_loaded: int


class LoadedProject(BaseModel):
    """The project that this run loaded for itself."""

    project: UUID
    name: str
    studies: int
    events: int


class Opened(BaseModel):
    """The gates as the soak found or set them, and when it began, by the server's clock."""

    fleet: str
    project: str
    began_at: AwareDatetime


class Backfilled(BaseModel):
    """Scopes published and scopes found right as they were; and how long it took, a wait for the grace included."""

    published: int
    current: int
    races_lost: int
    exact: bool
    took_s: float

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("scopes published", self.published),
                ("right as they were", self.current),
                ("races lost", self.races_lost),
                ("served and exact", "yes" if self.exact else "no"),
                ("took, the grace included", Quantity(self.took_s, "s")),
            )
        )


class Closing(BaseModel):
    """What was left when the savers had finished."""

    published: int
    receipts: int
    counters_compared: dict[str, int]
    studies_as_recorded: int
    studies_that_differ: int


def preflight(run: SoakRun) -> Preflight:
    """Read the data and ask the server; change nothing."""
    review = _review(run)
    counts, plan = event_counts(review.events), _plan(run, review)
    with connected(run.settings, app_name="statlib-runbook") as mongo:
        facts = probe(mongo)
    if review.problems:
        named = [str(problem) for problem in review.problems[:PROBLEMS_NAMED]]
        run.captures.write(NOT_LOADED, NotLoaded(rows=len(review.problems), named=named))
    provenance = review.project.provenance
    return Preflight(
        deployment=run.settings.deployment,
        server=f"MongoDB {facts.version}",
        review=provenance.source or review.project.name,
        recorded=provenance.recorded or "nothing",
        simulated=provenance.simulated or "nothing",
        studies=len(review.studies),
        reviewers_on_record=len(review.project.memberships),
        decisions=counts.submitted,
        decisions_that_change_nothing=counts.unchanged,
        acts_on_sessions=len(review.annotations),
        generated_submissions=plan.generated,
        edits=len(plan.edits),
        rows_not_loaded=len(review.problems),
    )


def load(run: SoakRun) -> LoadedProject:
    """Store the review as a project of this run's own, under statistics from its first study on."""
    review = _review(run)
    with connected(run.settings, app_name="statlib-runbook") as mongo:
        store(review, mongo, before_studies=lambda project: register(project, mongo, run.settings))
    events = len(review.in_order)
    run.captures.write(
        soak.LOADED,
        soak.Loaded(
            events_total=events,
            events_distinct=events - event_counts(review.events).unchanged,
            provenance=review.project.provenance.model_dump(mode="json"),
        ),
    )
    project = review.project
    return LoadedProject(project=project.id, name=project.name, studies=len(review.studies), events=events)


def open_gates(run: SoakRun, loaded: LoadedProject) -> Opened:
    """Open what is closed, through the boundary."""
    client = run.client
    status = client.status(loaded.project)
    if status.fleet_mode != Mode.ENABLED:
        client.set_fleet_mode(enabled=True, request_id=run.request_id("open the fleet"))
    if status.project_mode != Mode.ENABLED:
        client.set_narrow_gate(loaded.project, enabled=True, request_id=run.request_id("open the gate"))
    status = client.status(loaded.project)
    return Opened(fleet=status.fleet_mode, project=str(status.project_mode), began_at=client.server_time())


def backfill(run: SoakRun, loaded: LoadedProject) -> Backfilled:
    """Publish every family, and prove it served and exact, before the first save."""
    return _backfill(run, loaded.project, "backfill")


def soak_window(run: SoakRun, loaded: LoadedProject) -> WindowSummary:
    """Replay and observe."""
    asked = run.parameters
    review = _review(run)
    run.captures.write(soak.THRESHOLDS, _thresholds(asked, review.project))
    load_ = Load(
        workers=asked.reviewers,
        rate_per_s=asked.rate_per_s,
        duration_s=asked.duration_s,
        read_every_s=asked.cadence.read_s,
        parity_every_s=asked.cadence.parity_s,
        rebuild_every_s=asked.cadence.rebuild_s,
        quiet_every_s=asked.cadence.quiet_s,
        patience_s=asked.cadence.patience_s,
        families=FAMILIES,
        reads=asked.reads,
        seed=asked.seed,
    )
    plan = _plan(run, review)
    with application_host(load_settings()) as host, Live() as live:  # settings as they are since the load
        return run_window(run, host, plan, load=load_, show=live.show)


def close(run: SoakRun, loaded: LoadedProject, opened: Opened) -> Closing:
    """Backfill what is stale, read the receipts back, and hold the source against the record."""
    backfilled = _backfill(run, loaded.project, "closing backfill")
    receipts = receipts_since(run, loaded.project, opened.began_at)
    families = run.client.status(loaded.project).families
    run.captures.write(
        soak.BACKLOG,
        soak.Backlog(
            rebuilds_unresolved=sum(family.rebuilding for family in families),
            stale_families=[family.family for family in families if not family.served],
            stale_scopes=sum(family.scopes - family.current for family in families),
        ),
    )
    scopes = _compare_everything(run, loaded.project)
    same, differing = _against_the_record(run, loaded.project)
    if differing:
        raise Fault(
            f"{differing} studies do not hold the decisions and sessions on record",
            remedy="Compare operations.jsonl with the export; do not trust this run.",
        )
    return Closing(
        published=backfilled.published,
        receipts=receipts,
        counters_compared=scopes,
        studies_as_recorded=same,
        studies_that_differ=differing,
    )


def gates(run: SoakRun) -> GateTable:
    """Every gate, derived from the captures just as the report and the verifier derive it."""
    return GateTable(derive(CaptureReader(run.folder.evidence, run.journal.entries), run.journal.entries).gates)


def _review(run: SoakRun) -> LoadedReview:
    """The review that the parameters name, as a project of this run's own."""
    asked = run.parameters
    if asked.data == SIMULATED:
        return _simulated(run)
    folder = Path(asked.data)
    name = f"{folder.resolve().name}, run {run.run_id}"
    return detect(folder, name=name, review=asked.review or None).load(folder)


def _simulated(run: SoakRun) -> LoadedReview:
    """So large that it and what is generated beside it fill the window at the rate asked for."""
    asked = run.parameters
    events, sessions = None, 2 * asked.studies
    if asked.rate_per_s:
        whole = round(asked.rate_per_s * asked.duration_s)
        recorded = max(1, whole * whole // (whole + asked.mutations.submissions(whole)))
        sessions = round(SESSIONS_SHARE * recorded)
        events = recorded - sessions
    name = f"Simulated review, seed {asked.seed}, run {run.run_id}"
    return SimulatedReview(
        asked.studies, max(3, asked.reviewers), asked.seed, events=events, sessions=sessions, name=name
    ).load()


def _plan(run: SoakRun, review: LoadedReview) -> Plan:
    return planned(review, run.parameters.mutations, run.parameters.seed)


def _thresholds(asked: SoakParameters, project: Project) -> soak.SoakThresholds:
    least = asked.thresholds
    return soak.SoakThresholds(
        duration_s=asked.duration_s,
        operations_min=least.operations_min,
        reads_min=least.reads_min,
        families=_counted(project),
        comparisons_per_family_min=least.comparisons_min,
        fallback_rate_max=least.fallback_rate_max,
        bytes_per_operation_max=least.bytes_per_operation_max,
        recounted=RECOUNTED,
    )


def _counted(project: Project) -> tuple[str, ...]:
    """The families that count anything in the project: those of annotation need a stage, say."""
    context = REVIEW.domain.context(project.to_bson(), TrackingMode.TRACKED)
    return tuple(name for name, family in REVIEW.families.items() if family.declared_scopes(context))


def _backfill(run: SoakRun, project: UUID, purpose: str) -> Backfilled:
    began = time.monotonic()
    request_id = run.request_id(purpose)
    done = backfill_together_when_allowed(run.client, project, FAMILIES, request_id=request_id).families
    return Backfilled(
        published=sum(len(one.rebuild.published) for one in done),
        current=sum(len(one.rebuild.current) for one in done),
        races_lost=max(one.races_lost for one in done),
        exact=all(one.parity.exact for one in done),
        took_s=round(time.monotonic() - began, 1),
    )


def _compare_everything(run: SoakRun, project: UUID) -> dict[str, int]:
    """{family: scopes compared}, every counter of every family, when all is done; and the gate of what differs."""
    with run.captures.lines(soak.PARITY) as rows:
        observers.parity(run.client, project, FAMILIES, rows)()
    found = run.client.parity(project, FAMILIES)
    wrong = [one.family for one in found if not one.exact]
    expectation = Expectation(
        key="families_exact_at_the_end",
        title="Families exact at the end",
        expected=len(FAMILIES),
        measured=len(found) - len(wrong),
        comparison=Comparison.EXACTLY,
        note=f"{plural(sum(one.scopes for one in found), 'scope')} compared"
        + (f"; not exact: {', '.join(wrong)}" if wrong else ""),
    )
    with run.captures.lines(EXPECTATIONS) as rows:
        rows.append(expectation)
    return {one.family: one.scopes for one in found}


def _against_the_record(run: SoakRun, project: UUID) -> tuple[int, int]:
    """(studies whose decisions and sessions are those on record, studies whose are not), by the source itself."""
    review = _review(run)
    decided, standing = replayed(review.events), annotated(review.annotations)
    sessions: dict[UUID, dict[Any, Any]] = {}
    for (annotated_study, stage, who, reconciliation), (status, answers) in standing.items():
        sessions.setdefault(annotated_study, {})[stage, who, reconciliation] = (status, dict(answers))
    found: Counter[bool] = Counter()
    with connected(run.settings, app_name="statlib-runbook") as mongo:
        for document in mongo.collection(STUDIES).find({"ProjectId": project}):
            study = Study.from_bson(document)
            decisions = {s.investigator_id: s.included for s in study.screenings}
            wanted = {s.investigator_id: s.included for s in decided.get(study.id, ())}
            kept = {
                (s.stage_id, s.investigator_id, s.reconciliation): (
                    s.status,
                    {answer.question_id: answer.value for answer in s.answers},
                )
                for s in study.sessions
            }
            same = (decisions, kept, study.slot_reservations) == (wanted, sessions.get(study.id, {}), ())
            found[same] += 1
    return found[True], found[False]


RUNBOOK = Runbook(
    name="soak_evidence",
    summary="Replay a review with concurrent reviewers and prove that every count stays exact.",
    parameters=SoakParameters,
    findings=soak_findings,
)
