"""Building the index of pending entries, in an agreed quiet hour, with the time that it took on record.

The steps of ``runbooks/build_pending_index.ipynb``, in its order.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from statlib.admin import fold_wire, wire
from statlib.kernel.refusals import Refusal
from statlib.review.documents import STUDIES
from statlib.runbook.catalogue import Runbook
from statlib.runbook.expectations import expect
from statlib.runbook.fragments import KeyValues
from statlib.runbook.parameters import ActingParameters
from statlib.runbook.reasons import RunbookReason
from statlib.runbook.run import Run
from statlib.statistics.pending_index import IndexState


class BuildParameters(ActingParameters):
    """``quiet_hour``: kept with the report, as the agreement that the build was made under."""

    quiet_hour: str = Field(default="", max_length=200, description="the agreed quiet hour: when, and by whom or where")


BuildRun = Run[BuildParameters]


class IndexStanding(BaseModel):
    """The index, and the collection that a build scans."""

    index: fold_wire.IndexStanding
    source: wire.Size

    @property
    def ready(self) -> bool:
        return self.index.state == IndexState.READY

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("index of pending entries", self.index.state),
                ("studies that a build scans", self.source.documents),
                ("their size, bytes", self.source.size_bytes),
            ),
            one_column=True,
        )


class Built(BaseModel):
    """What the build took, to be held against the size of what it scanned."""

    state: str
    built: bool
    seconds: float
    documents: int
    size_bytes: int


def standing(run: BuildRun) -> IndexStanding:
    """The index and the source as they are now."""
    sizes = {size.collection: size for size in run.client.storage().collections}
    return IndexStanding(index=run.client.pending_index(), source=sizes[STUDIES])


class Plan(BaseModel):
    """What building would do."""

    state: str
    documents: int
    quiet_hour: str

    def shown(self) -> KeyValues:
        return KeyValues(
            (
                ("studies to scan", 0 if self.state == IndexState.READY else self.documents),
                ("agreed quiet hour", self.quiet_hour or "not given: give quiet_hour to act"),
                ("to do", "nothing" if self.state == IndexState.READY else "build it, and wait until it is ready"),
            ),
            one_column=True,
        )


def plan(run: BuildRun) -> Plan:
    """What acting would do, from the state of this moment."""
    found = standing(run)
    return Plan(state=found.index.state, documents=found.source.documents, quiet_hour=run.parameters.quiet_hour)


def build(run: BuildRun) -> Built:
    """Build it; one that is there is left alone. Refuses QuietHourUnconfirmed, and what the server refuses."""
    if not run.parameters.quiet_hour.strip():
        raise Refusal(RunbookReason.QuietHourUnconfirmed, "quiet_hour is empty")
    done = run.client.build_pending_index(request_id=run.request_id("build"))
    size = standing(run).source
    return Built(
        state=done.state,
        built=done.built,
        seconds=done.seconds,
        documents=size.documents,
        size_bytes=size.size_bytes,
    )


def verify(run: BuildRun) -> IndexStanding:
    """Look again, and put on record what must hold."""
    found = standing(run)
    expect(run, "ready", "Index of pending entries ready", expected=1, measured=int(found.ready))
    return found


RUNBOOK = Runbook(
    name="build_pending_index",
    summary="Build the index that fold mode needs, in an agreed quiet hour.",
    parameters=BuildParameters,
)
