"""How a project's fold stands, and waiting for its mode to end: what the fold's runbooks share."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel

from statlib.admin import fold_wire
from statlib.kernel.refusals import Refusal
from statlib.runbook.fragments import KeyValues, Progress, Value
from statlib.runbook.live import Live
from statlib.runbook.patience import POLL_S
from statlib.runbook.project import ProjectParameters
from statlib.runbook.run import Run
from statlib.statistics.bounds import FOLD_WRITER_GRACE_S, HEARTBEAT_PERIOD_S
from statlib.statistics.documents import FoldMode
from statlib.statistics.reasons import OperateReason

SILENT_MAX_S = 2 * HEARTBEAT_PERIOD_S  # a worker that is restarted meanwhile is waited for


class FoldStanding(BaseModel):
    """Fold mode, what is pending, and who folds, at one moment."""

    fold: fold_wire.FoldStanding

    @property
    def pending(self) -> int:
        """Documents with anything pending; 0 where the index is not there, since nothing can fold without it."""
        return self.fold.pending.studies if self.fold.pending else 0

    @property
    def unable(self) -> list[str]:
        """Live hosts that have the project under statistics and whose saves do not fold."""
        return [host.id for host in self.fold.hosts if host.included and not (host.fold and host.protocols)]

    def shown(self) -> KeyValues:
        pending, beats = self.fold.pending, [beat.age_s for beat in self.fold.heartbeats]
        rows: list[tuple[str, Value]] = [
            ("fold mode", self.fold.fold_mode),
            ("tripwire", "as it should be" if self.fold.tripped else "not as it should be: reset the project's fold"),
            ("index of pending entries", self.fold.index),
            ("studies with anything pending", pending.studies if pending else "unknown without the index"),
            ("entries pending", pending.entries if pending else "unknown without the index"),
            ("fold worker", "live" if self.fold.worker_live else "none live"),
            ("seconds since its last heartbeat", round(min(beats), 1) if beats else "never seen"),
            ("live hosts", len(self.fold.hosts)),
            ("of them, hosts that do not fold", ", ".join(self.unable) or "none"),
            ("records in quarantine", self.fold.quarantined),
            ("rows that the ledger still takes", self.fold.ledger.headroom),
        ]
        return KeyValues(tuple(rows), one_column=True)


def fold_standing(run: Run[Any]) -> FoldStanding:
    """How the fold of the run's project stands now. Refuses ControlMissing."""
    parameters: ProjectParameters = run.parameters
    return FoldStanding(fold=run.client.fold(parameters.project))


def wait_until_disabled(run: Run[Any]) -> FoldStanding:
    """Look again and again until the fold worker has ended the mode; the grace of writers is the shortest it takes.

    Refuses FoldFleetUnsupported when no fold worker showed a sign of life for ``SILENT_MAX_S``: nobody would end it.
    Interrupting the wait leaves nothing behind, and a later run takes it up.
    """
    began = heard = time.monotonic()
    with Live() as live:
        while True:
            found = fold_standing(run)
            if found.fold.fold_mode == FoldMode.DISABLED:
                return found
            now = time.monotonic()
            if found.fold.worker_live:
                heard = now
            elif now - heard > SILENT_MAX_S:
                raise Refusal(OperateReason.FoldFleetUnsupported, "no live fold worker ends the mode")
            waited_s, left = now - began, found.pending
            waiting = f"the fold worker; {left:,} studies have anything pending" if left else "the fold worker"
            live.show(Progress("Waiting", waited_s, max(FOLD_WRITER_GRACE_S, waited_s), "s", waiting_for=waiting))
            time.sleep(POLL_S)
