"""Classes over time from decisions that stand: against a recount at each moment."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from statlib.review.documents import AgreementThreshold
from statlib.review.screening import ScreeningClass, screening_class
from statlib.review.timeline import timeline_of

START = datetime(2024, 1, 1, tzinfo=UTC)
decisions = st.lists(
    st.tuples(st.integers(0, 500).map(lambda m: START + timedelta(minutes=m)), st.booleans()), max_size=5
)
thresholds = st.builds(AgreementThreshold, min_screenings=st.integers(1, 3))


@given(st.lists(decisions, max_size=8), thresholds, st.integers(2, 9))
def test_each_moment_counts_the_decisions_made_until_then(
    studies: list[list[tuple[datetime, bool]]], threshold: AgreementThreshold, moments: int
) -> None:
    for moment in timeline_of(studies, threshold, moments=moments):
        recount: Counter[ScreeningClass] = Counter()
        for study in studies:
            made = [included for at, included in study if at <= moment.at]
            recount[screening_class(len(made), sum(made), threshold)] += 1
        assert {class_: n for class_, n in moment.classes.items() if n} == dict(recount)


def test_nothing_decided_has_no_line_and_one_moment_is_one_point() -> None:
    assert timeline_of([[], []], AgreementThreshold()) == ()
    (only,) = timeline_of([[(START, True)], []], AgreementThreshold(min_screenings=1))
    assert (only.at, only.classes[ScreeningClass.INCLUDED], only.classes[ScreeningClass.UNSCREENED]) == (START, 1, 1)
