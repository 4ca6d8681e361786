"""The lesson about the fold: what its figures tell, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from statlib.runbook.fold_tour import Sample, Stream
from statlib.runbook.look.plots.folding import POINTS_MAX, ROWS_MAX, FoldPoint, fold_over_time

START = datetime(2026, 1, 2, 9, 0, tzinfo=UTC)


def point(served: int, stored: int, *, counted: int | None = None, pending: int = 0, after_s: float = 0.0) -> FoldPoint:
    at = START + timedelta(seconds=after_s)
    return FoldPoint(at, served, stored, served if counted is None else counted, pending)


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def rising(count: int) -> tuple[FoldPoint, ...]:
    return tuple(point(n + 1, n, pending=1, after_s=n / 10) for n in range(count))


@pytest.mark.parametrize(
    ("points", "finding"),
    [
        ((point(3, 3),), "exact in 1 of 1 sample; the row was behind it in 0"),
        ((point(3, 2, pending=1), point(3, 3)), "exact in 2 of 2 samples; the row was behind it in 1"),
        ((point(3, 2, counted=4), point(3, 3)), "exact in 1 of 2 samples; the row was behind it in 1"),
    ],
)
def test_the_finding_counts_what_was_exact_and_where_the_row_was_behind(
    points: tuple[FoldPoint, ...], finding: str
) -> None:
    figure = fold_over_time(points, counter="Inclusions", source="a test")
    assert plain(figure.finding) == f"The served number was {finding}"


def test_both_numbers_are_named_in_either_width() -> None:
    figure = fold_over_time(rising(8), counter="Inclusions", source="a test")
    assert "8 served" in figure.svg_wide
    assert "7 in the row" in figure.svg_wide
    for svg in (figure.svg_wide, figure.svg_narrow):
        assert "entries pending" in svg
        assert "in the row" in svg


def test_samples_beyond_what_a_figure_holds_are_told_and_the_last_is_kept() -> None:
    figure = fold_over_time(rising(POINTS_MAX + 60), counter="Inclusions", source="a test")
    assert f"Of {POINTS_MAX + 60} samples, {POINTS_MAX} are drawn." in figure.what
    assert len(figure.numbers.rows) == ROWS_MAX
    assert figure.numbers.rows[-1][1] == POINTS_MAX + 60


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        fold_over_time((), counter="Inclusions", source="a test")


def test_a_sample_shows_row_and_pending_apart_where_the_row_was_served() -> None:
    lines = plain(Sample(point(13, 12, pending=1), "").text()).splitlines()
    assert lines[0] == "13 served from its row and what is pending, with 1 entry pending"
    assert [line.split()[-4:] for line in lines if line.startswith("Served")] == [["12", "0", "1", "13"]]


def test_a_sample_says_why_the_studies_were_counted_instead() -> None:
    lines = Sample(point(13, 12, pending=1), "GuardNotFresh").text().splitlines()
    assert lines[0].startswith("13 served from the studies themselves")
    assert [line.split()[-4:] for line in lines if "(GuardNotFresh)" in line] == [["0", "13", "0", "13"]]
    assert "<svg" in Sample(point(13, 12), "GuardNotFresh").html()


def test_one_inexact_sample_makes_a_stream_inexact() -> None:
    assert Stream(rising(3), 3).exact
    wrong = Stream((*rising(3), point(4, 4, counted=5)), 4)
    assert not wrong.exact
    assert "3 of 4 samples" in plain(wrong.text())
    assert "<svg" in wrong.html()
