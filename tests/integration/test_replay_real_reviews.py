"""Recorded decisions through the real writer, concurrently: the source and its counters end where the record does."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.review.documents import STUDIES
from statlib.review.loading.detection import detect
from statlib.review.loading.registration import register
from statlib.review.loading.review import LoadedReview, replayed
from statlib.review.loading.store import store
from statlib.runbook.soak.delivering import Deliverer
from statlib.runbook.soak.mutations import NOTHING, planned
from statlib.runbook.soak.savers import Savers
from statlib.runbook.soak.schedule import Schedule
from statlib.statistics import storage
from statlib.statistics.backfill import backfill
from statlib.statistics.documents import RECEIPT, Mode
from statlib.statistics.hosts import Host
from statlib.statistics.reader import Source, read_bundle
from tests.oracles.rayyan_pandas import final_states, project_screening_of_final_states
from tests.oracles.real_data import real_review
from tests.reviews import FAMILY, host_of, settings_for

WORKERS = 4


class Rows:
    """The capture's rows, kept in memory."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def append(self, row: dict[str, Any], /) -> None:
        with self._lock:
            self.rows.append(row)


def replay(host: Host, review: LoadedReview) -> list[dict[str, Any]]:
    """Store the review under statistics, backfill, and submit every decision until it is confirmed."""
    storage.initialise(host.mongo, REVIEW, fleet=Mode.ENABLED)
    store(review, host.mongo, before_studies=lambda project: register(project, host.mongo, host.mongo.settings))
    backfill(host, REVIEW, review.project.id, FAMILY)
    rows, schedule = Rows(), Schedule(planned(review, NOTHING, seed=1).work, 0)
    savers = Savers(Deliverer(host, review.project.id), schedule, rows)
    threads = savers.start(WORKERS)
    for thread in threads:
        thread.join(timeout=240)
    assert not any(thread.is_alive() for thread in threads)
    assert (savers.failures, savers.lost, schedule.remaining) == ([], 0, 0)
    return rows.rows


@pytest.mark.timeout(400)
def test_a_replayed_rayyan_log_ends_as_the_exporting_platform_shows_it(settings: Settings) -> None:
    folder = real_review("rayyan_accident_prone")
    review = detect(folder).load(folder)
    names = {member.investigator_id: member.name for member in review.project.memberships}
    with host_of(settings_for(settings, review.project.id)) as host:
        rows = replay(host, review)
        confirmed = [row for row in rows if row["outcome"] in ("saved", "duplicate")]
        assert len({row["event"] for row in confirmed}) == 2_825
        assert sum(row["noop"] for row in confirmed) == 187
        assert host.mongo.collection(RECEIPT).count_documents({"ProjectId": review.project.id}) == 2_825

        found: dict[tuple[str, str], bool | None] = {}
        for study in host.mongo.collection(STUDIES).find({"ProjectId": review.project.id}):
            for screening in study["Screenings"]:
                found[study["SourceKey"], names[screening["InvestigatorId"]]] = screening["Included"]
        platform = final_states(folder)
        assert Counter(state is None for state in platform.values()) == {False: 2_506, True: 4}
        assert found == {pair: state for pair, state in platform.items() if state is not None}

        bundle = read_bundle(host, REVIEW, review.project.id, [(FAMILY, "project")])
        assert bundle.source is Source.MATERIALISED
        assert bundle.counters(FAMILY) == project_screening_of_final_states(folder)


@pytest.mark.timeout(400)
def test_a_replayed_spreadsheet_ends_with_every_decision_and_arbitration(settings: Settings) -> None:
    folder = real_review("dimitrov_snhl")
    review = detect(folder).load(folder)
    with host_of(settings_for(settings, review.project.id)) as host:
        rows = replay(host, review)
        assert len({row["event"] for row in rows if row["outcome"] == "saved"}) == len(review.events) == 3_002
        expected = replayed(review.events)
        for study in host.mongo.collection(STUDIES).find({"ProjectId": review.project.id}):
            wanted = {s.investigator_id: s.included for s in expected[study["_id"]]}
            assert {s["InvestigatorId"]: s["Included"] for s in study["Screenings"]} == wanted
        counters = read_bundle(host, REVIEW, review.project.id, [(FAMILY, "project")]).counters(FAMILY)
        assert (counters["Class/Included"], counters["Class/Excluded"]) == (16, 1_482)
        assert counters["Decisions"] == 3_002
