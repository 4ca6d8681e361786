"""A read sees what is pending, in one command and exactly; or it counts the source and names what is in the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statlib.kernel.settings import Settings
from statlib.mongo.command_counter import counting
from statlib.statistics.overlay import NOTHING_PENDING
from statlib.statistics.reader import Source
from tests.folding import fold_off, fold_on
from tests.pending_studies import screen
from tests.reviews import ALL_FAMILIES, Review, host_of, review, settings_for, stage


@pytest.fixture
def served(emptied: Settings) -> Iterator[Review]:
    """A folding review whose every family is Fresh."""
    with review(
        emptied, studies=4, families=ALL_FAMILIES, members=3, stages=[stage()], searches=1, fold=True
    ) as opened:
        opened.backfill_all()
        fold_on(opened.mongo, opened.project)
        yield opened


@pytest.mark.req("OVERLAY-03", "OVERLAY-20", "INV-02")
def test_what_is_pending_is_served_with_what_is_stored(served: Review) -> None:
    before = served.read_all()
    assert (before.source, before.pending) == (Source.MATERIALISED, NOTHING_PENDING)
    for study in served.studies[:3]:
        screen(served, study, served.members[0])
    for mode in (fold_on, fold_off):
        mode(served.mongo, served.project)
        found = served.read_all()
        assert (found.source, found.reason) == (Source.MATERIALISED, None)
        assert found.values == served.whole_truth() != before.values
        assert found.pending.entries == 3


@pytest.mark.req("OVERLAY-01", "OVERLAY-04", "OVERLAY-06")
def test_a_read_is_one_command_but_the_first_that_a_process_makes_of_a_folding_project(
    served: Review, emptied: Settings
) -> None:
    screen(served, served.studies[0], served.members[0])
    with host_of(settings_for(emptied, served.project, families=ALL_FAMILIES)) as host:
        of = Review(host.mongo, host, served.project, served.studies)
        for commands in (2, 1, 1):
            with counting(host.mongo.client) as sent:
                found = of.read_all()
            assert (found.source, found.pending.entries) == (Source.MATERIALISED, 1)
            assert sent.names == ("aggregate",) * commands
