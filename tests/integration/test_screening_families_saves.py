"""A decision moves the rows of every member whom it concerns, up to a hundred; beyond, it outdates the families."""

from __future__ import annotations

from uuid import uuid4

import pytest

from statlib.kernel.settings import Settings
from statlib.review.catalogue import REVIEW
from statlib.review.families import membership_screening, reviewer_screening, search_population
from statlib.review.screening import Decision
from statlib.statistics.reader import ALL, Bundle, Source, read_bundle
from statlib.statistics.reasons import ServeReason
from tests.reviews import Review, review

PERSONAL = (membership_screening.NAME, reviewer_screening.NAME)
FAMILIES = (*PERSONAL, search_population.NAME)


def read(of: Review, *families: str) -> Bundle:
    return read_bundle(of.host, REVIEW, of.project, [(family, ALL) for family in families])


def assert_right(of: Review, bundle: Bundle, source: Source) -> None:
    assert bundle.source is source
    assert bundle.values == {family: of.truth_of(family) for family in bundle.values}


@pytest.mark.req("SCOPEMVP-03")
@pytest.mark.parametrize("members", [100, 101])
def test_a_study_that_is_settled_concerns_a_hundred_members_at_most(emptied: Settings, members: int) -> None:
    with review(emptied, members=members, searches=2, min_screenings=1, families=FAMILIES) as of:
        of.backfill_all()
        assert_right(of, read(of, *FAMILIES), Source.MATERIALISED)
        for who, decision in (
            (of.members[0], Decision.INCLUDE),  # settled
            (of.members[1], Decision.EXCLUDE),  # in conflict
            (uuid4(), Decision.INCLUDE),  # settled again, by somebody who never joined
            (of.members[1], Decision.RETRACT),
        ):
            of.writer.submit(of.studies[0], who, decision)
            found = read(of, *PERSONAL)
            assert_right(of, found, Source.MATERIALISED if members == 100 else Source.AUTHORITATIVE)
            assert found.reason is (None if members == 100 else ServeReason.GuardNotFresh)
            assert_right(of, read(of, search_population.NAME), Source.MATERIALISED)
        of.backfill_all()
        assert_right(of, read(of, *FAMILIES), Source.MATERIALISED)
