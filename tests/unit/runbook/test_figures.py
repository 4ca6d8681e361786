"""Figures stay small, keep to the tokens, and show what the data say."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Drawing

from statlib.runbook.fragments import Figure
from statlib.runbook.look import canvas as c
from statlib.runbook.look import figures as f
from statlib.runbook.look import thinning
from statlib.runbook.look.themed_svg import _relative
from statlib.runbook.look.tokens import TOKENS
from tests.unit.runbook import report_samples as samples

START = samples.START
MINUTE = timedelta(minutes=1)


def points_of(count: int) -> tuple[Figure, ...]:
    return (*samples.sample_figures(count, 302.4, failing=True), samples.latency_summary())


@pytest.fixture(scope="module", params=[1, 2, 60, 2_000], ids=lambda n: f"{n}-points")
def drawn(request: pytest.FixtureRequest) -> tuple[Figure, ...]:
    return points_of(request.param)


def svgs(figures: tuple[Figure, ...]) -> list[str]:
    return [svg for figure in figures for svg in (figure.svg_wide, figure.svg_narrow)]


def test_each_drawing_is_within_its_size(drawn: tuple[Figure, ...]) -> None:
    assert [len(svg.encode()) for svg in svgs(drawn) if len(svg.encode()) > f.SVG_BYTES_MAX] == []


def test_colours_are_variables_of_tokens_and_nothing_else(drawn: tuple[Figure, ...]) -> None:
    variables = {token.variable for token in TOKENS}
    for svg in svgs(drawn):
        painted = re.findall(r"(?:fill|stroke):([^;\"]+)", svg)
        assert painted
        assert set(painted) - {"none"} <= variables
        assert re.findall(r"#[0-9a-fA-F]{6}", re.sub(r"var\(--[\w-]+,#[0-9a-f]{6}\)", "", svg)) == []


def test_every_text_is_text_and_named_in_a_token(drawn: tuple[Figure, ...]) -> None:
    for svg in svgs(drawn):
        texts = re.findall(r"<text [^>]*>", svg)
        assert len(texts) > 2
        assert all("fill:var(--" in text for text in texts)
        assert "font-family" not in "".join(texts)


def test_nothing_in_a_drawing_styles_or_loads_anything_else(drawn: tuple[Figure, ...]) -> None:
    for svg in svgs(drawn):
        assert "<style" not in svg
        assert "<metadata" not in svg
        assert "xlink" not in svg
        assert set(re.findall(r'href="([^"]*)"', svg)) <= {f"#{i}" for i in re.findall(r' id="([^"]*)"', svg)}


def test_identifiers_do_not_meet_on_one_page(drawn: tuple[Figure, ...]) -> None:
    identifiers = [identifier for svg in svgs(drawn) for identifier in re.findall(r' id="([^"]*)"', svg)]
    assert len(identifiers) == len(set(identifiers))


def test_a_drawing_is_named_for_those_who_cannot_see_it(drawn: tuple[Figure, ...]) -> None:
    for figure in drawn:
        assert f'<title id="{figure.key}-w-t">{figure.title}</title>' in figure.svg_wide
        assert 'role="img"' in figure.svg_narrow


def test_wide_is_880_and_narrow_350_units(drawn: tuple[Figure, ...]) -> None:
    assert {re.search(r'viewBox="0 0 (\S+)', figure.svg_wide)[1] for figure in drawn} == {"880"}  # type: ignore[index]
    assert {re.search(r'viewBox="0 0 (\S+)', figure.svg_narrow)[1] for figure in drawn} == {"350"}  # type: ignore[index]


def test_the_same_data_give_the_same_bytes() -> None:
    once, again = (f.saves_over_time(samples.saves(8), source="x") for _ in range(2))
    assert once == again


def test_drawing_leaves_the_settings_of_others_alone() -> None:
    before = dict(mpl.rcParams)
    f.saves_over_time(samples.saves(3), source="x")
    assert dict(mpl.rcParams) == before


def test_many_panels_share_what_a_figure_may_weigh() -> None:
    readings = [f.StoragePoint(at, at * 7.0 + (at * 37 % 11)) for at in range(2_000)]
    storage = f.storage_growth({f"pmProjectStatisticsCollection{n}": readings for n in range(14)}, source="s", limit=9)
    intervals = [
        f.LatencyInterval(
            START + n * MINUTE, f"outcome {k}", 5, 3.0 + n * 31 % 7, 9.0 + n * 17 % 13, 20.0 + n * 13 % 19
        )
        for n in range(1_000)
        for k in range(7)
    ]
    latency = f.save_latency_over_time(intervals, source="s")
    families = [
        f.ParityPoint(START + n * MINUTE, f"MembershipStageAnnotation{k}", n % 97 > 0)
        for n in range(300)
        for k in range(12)
    ]
    parity = f.parity_over_time(families, [], source="s")
    assert max(len(svg.encode()) for svg in svgs((storage, latency, parity))) <= f.SVG_BYTES_MAX
    assert "The 2 that grow slowest are only in the numbers." in storage.what
    assert len(storage.numbers.rows) == 14


# --- what captions say ---------------------------------------------------------------


def test_captions_say_when_points_were_left_out() -> None:
    saves, latency, _, storage, screening, _ = points_of(2_000)
    for figure in (saves, latency, storage):
        assert "every extreme is among them" in figure.what
    assert "Of 2,000 readings, 80 at equal distances are drawn." in screening.what
    assert all("are drawn" not in figure.what for figure in points_of(20))


def test_saves_state_what_was_confirmed_and_what_was_not() -> None:
    intervals = [
        f.SavesInterval(START, 10, 100, stale=3),
        f.SavesInterval(START + timedelta(seconds=10), 10, 50, exhausted=2),
    ]
    figure = f.saves_over_time(intervals, source="operations.jsonl")
    assert figure.finding.replace("\u00a0", " ") == (
        "150 saves confirmed, 7.5 a second on average; not confirmed: 3 stale, 2 exhausted"
    )
    assert [row[2:] for row in figure.numbers.rows] == [(100, 10.0, 3, 0, 0), (50, 5.0, 0, 2, 0)]
    assert "✕ 2 exhausted" in figure.svg_wide


def test_saves_that_were_all_confirmed_say_so() -> None:
    figure = f.saves_over_time([f.SavesInterval(START, 1, 5)], source="x")
    assert figure.finding.endswith("every submission was confirmed")
    assert ">none<" in figure.svg_wide


def test_the_numbers_of_saves_add_up_however_many_intervals_there_are() -> None:
    intervals = samples.saves(1_001)
    figure = f.saves_over_time(intervals, source="x")
    assert len(figure.numbers.rows) == 24
    assert sum(row[2] for row in figure.numbers.rows if isinstance(row[2], int)) == sum(i.confirmed for i in intervals)


@pytest.mark.parametrize(
    ("exact", "finding"),
    [
        ([True, True], "All 2 comparisons were exact"),
        ([True], "The one comparison was exact"),
        ([True, False, True], "1 of 3 comparisons differed"),
        ([None], "No comparison took place"),
        ([None, True, True], "All 2 comparisons were exact"),
    ],
)
def test_parity_states_what_the_comparisons_showed(exact: list[bool | None], finding: str) -> None:
    points = [f.ParityPoint(START + n * MINUTE, "ProjectScreening", e) for n, e in enumerate(exact)]
    figure = f.parity_over_time(points, [], source="parity.jsonl")
    assert figure.finding.replace("\u00a0", " ") == finding
    assert figure.numbers.rows == (("ProjectScreening", exact.count(True), exact.count(False), exact.count(None)),)


def test_a_single_mismatch_among_thousands_is_drawn() -> None:
    points = [f.ParityPoint(START + n * MINUTE, "ProjectScreening", n != 4_321) for n in range(9_000)]
    exact = [f.ParityPoint(START + n * MINUTE, "ProjectScreening", True) for n in range(9_000)]
    one, none = (f.parity_over_time(p, [], source="x") for p in (points, exact))
    fail = "stroke:var(--fail,#b02a12)"
    assert fail in one.svg_wide
    assert fail in one.svg_narrow
    assert fail not in none.svg_wide + none.svg_narrow


def test_reads_that_fell_back_are_counted_beside_those_served() -> None:
    reads = [f.ReadsInterval(START + n * MINUTE, 60, 100, int(n == 3)) for n in range(10)]
    figure = f.parity_over_time([f.ParityPoint(START, "F", True)], reads, source="x")
    assert "1 of 1,001 reads fell back to the source" in figure.finding.replace("\u00a0", " ")
    assert figure.numbers.rows[-1] == ("Bundle reads", 1_000, 1, None)


def test_the_slope_is_the_one_that_the_gate_reads() -> None:
    exact_line = {"pmStudy": [f.StoragePoint(n, 500 + 250.0 * n) for n in range(10)]}
    figure = f.storage_growth(exact_line, source="x", limit=200)
    assert figure.numbers.rows[0][3:] == pytest.approx((250.0, 250.0, 250.0))
    assert figure.finding == "pmStudy grows fastest, by 250 (250 to 250) B per operation, and passes the limit of 200"
    assert figure.numbers.failing == {0}
    assert "✕ pmStudy" in figure.svg_wide


def test_a_growth_below_its_limit_is_not_marked() -> None:
    figure = f.storage_growth({"pmStudy": [f.StoragePoint(n, 250.0 * n) for n in range(10)]}, source="x", limit=300)
    assert "✕" not in figure.svg_wide
    assert figure.finding.endswith("all stay below the limit of 300")


def test_too_few_readings_give_no_slope() -> None:
    figure = f.storage_growth({"pmStudy": [f.StoragePoint(n, n) for n in range(3)]}, source="x", limit=1)
    assert figure.finding == "Too few readings to fit a slope"
    assert "too few readings" in figure.svg_wide


def test_a_collection_that_shrinks_stays_on_the_axis() -> None:
    figure = f.storage_growth({"a": [f.StoragePoint(n, 9_000 - 100 * n) for n in range(10)]}, source="x")
    ys = [float(y) for y in re.findall(r"M\S+ (-?[\d.]+)h\.01", figure.svg_wide)]
    height = float(re.search(r'height="([\d.]+)"', figure.svg_wide)[1])  # type: ignore[index]
    assert ys
    assert all(0 <= y <= height for y in ys)


def test_screening_names_each_class_with_its_last_count() -> None:
    figure = f.screening_progress(samples.screening(10), source="x")
    last = samples.screening(10)[-1].studies
    for name in (f"{last['Included']} included", f"{last['Conflict']} in conflict", f"{last['Excluded']:,} excluded"):
        assert name in figure.svg_wide
        assert name in figure.svg_narrow


def test_a_screening_class_without_a_look_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="without a look: Postponed"):
        f.screening_progress([f.ScreeningPoint(START, {"Postponed": 3})], source="x")


EMPTY: list[Callable[[], Any]] = [
    lambda: f.saves_over_time([], source="x"),
    lambda: f.save_latency([], source="x"),
    lambda: f.save_latency_over_time([], source="x"),
    lambda: f.parity_over_time([], [], source="x"),
    lambda: f.storage_growth({}, source="x"),
    lambda: f.storage_growth({"a": []}, source="x"),
    lambda: f.screening_progress([], source="x"),
]


@pytest.mark.parametrize("draw", EMPTY)
def test_nothing_to_draw_is_refused(draw: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"^no .* to draw$"):
        draw()


def test_a_latency_that_a_log_scale_cannot_show_is_refused() -> None:
    with pytest.raises(ValueError, match="log scale"):
        f.save_latency([f.LatencySummary("", "fold", 1, 0.0, 1.0, 2.0)], source="x")


# --- from matplotlib's SVG to the page's ----------------------------------------------


@pytest.mark.parametrize("colour", ["#123456", "black", "red"])
def test_a_colour_outside_the_tokens_is_refused(colour: str) -> None:
    fig = Drawing(facecolor="none")
    fig.add_axes((0, 0, 1, 1)).set_axis_off()
    fig.text(0.5, 0.5, "x", color=colour)
    with pytest.raises(ValueError, match="none of the tokens"):
        f.themed_svg(fig, "k")


def test_a_drawing_that_weighs_too_much_is_refused() -> None:
    fig = Drawing(facecolor="none")
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    with mpl.rc_context({"path.simplify": False}):
        ax.plot([n * 37 % 1_009 for n in range(9_000)], color=c.FIRST)
        with pytest.raises(ValueError, match="more than 25,000"):
            f.themed_svg(fig, "k")


def test_a_title_is_escaped() -> None:
    fig = Drawing(facecolor="none")
    svg = f.themed_svg(fig, "k", title="<b>&", description='"<i>')
    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg
    assert "<i>" not in svg


@given(st.lists(st.tuples(st.integers(-9_999, 9_999), st.integers(-9_999, 9_999)), min_size=2, max_size=40))
def test_a_relative_path_reaches_the_same_points(raw: list[tuple[int, int]]) -> None:
    points = [(x / 100, y / 100) for x, y in raw]
    absolute = f"M{points[0][0]:g} {points[0][1]:g}L" + " ".join(f"{x:g} {y:g}" for x, y in points[1:])
    numbers = re.findall(r"-?(?:\d+\.?\d*|\.\d+)", _relative(absolute))
    x, y = float(numbers[0]), float(numbers[1])
    reached = [(x, y)]
    for dx, dy in zip(numbers[2::2], numbers[3::2], strict=True):
        x, y = x + float(dx), y + float(dy)
        reached.append((x, y))
    assert len(reached) == len(points)
    for got, wanted in zip(reached, points, strict=True):
        assert got == pytest.approx(wanted, abs=0.006 * len(points))


# --- thinning and placing -----------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=400), st.integers(4, 60))
def test_thinning_keeps_first_last_and_both_extremes(values: list[float], most: int) -> None:
    kept = thinning.kept_indexes(values, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= max(most, min(len(values), most))
    assert {0, len(values) - 1} <= set(kept)
    assert max(values) == max(values[at] for at in kept)
    assert min(values) == min(values[at] for at in kept)


@given(st.integers(1, 3_000), st.integers(1, 120))
def test_stretches_cover_everything_once(count: int, most: int) -> None:
    stretches = thinning.stretches_of(count, most)
    assert [at for stretch in stretches for at in stretch] == list(range(count))
    assert len(stretches) <= most
    assert max(map(len, stretches)) - min(map(len, stretches)) <= 1


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8).map(sorted))
def test_labels_never_touch_where_there_is_room(places: list[float]) -> None:
    moved = c.apart(places, 15, 200)
    assert all(later - earlier >= 15 - 1e-9 for earlier, later in pairwise(moved))
    assert moved[-1] <= 200 + 1e-9


@pytest.mark.parametrize(
    ("span_s", "texts"),
    [
        (60, ["05:48:15", "05:48:30", "05:48:45", "05:49:00"]),
        (3_600, ["06:00", "06:15", "06:30", "06:45"]),
        (86_400, ["06:00", "12:00", "18:00", "10 Mar"]),
        (7 * 86_400, ["11 Mar", "13 Mar", "15 Mar"]),
    ],
)
def test_ticks_fall_on_round_times_of_utc(span_s: float, texts: list[str]) -> None:
    start = datetime(2026, 3, 9, 5, 48, 2, tzinfo=UTC)
    ticks = c.time_ticks(start, span_s, 4)
    assert [text for _, text in ticks][: len(texts)] == texts
    assert len(ticks) <= 5
    assert all(0 <= offset <= span_s for offset, _ in ticks)


@pytest.mark.parametrize(
    ("start", "span_days", "most", "texts"),
    [
        (datetime(2024, 2, 3, tzinfo=UTC), 340, 4, ["3 Feb 2024", "3 Aug 2024"]),
        (datetime(2024, 2, 3, tzinfo=UTC), 3 * 365, 4, ["2025", "2026", "2027"]),
        (datetime(1970, 1, 1, tzinfo=UTC), 20_000, 4, ["1980", "2000", "2020"]),
        (datetime(1, 1, 1, tzinfo=UTC), 3_652_058, 8, ["2000", "4000", "6000", "8000"]),
        (datetime(9999, 12, 31, 23, 59, 50, tzinfo=UTC), 9 / 86_400, 4, ["23:59:50", "23:59:55"]),
    ],
)
def test_a_date_that_is_far_off_leaves_an_axis_readable(
    start: datetime, span_days: float, most: int, texts: list[str]
) -> None:
    ticks = c.time_ticks(start, span_days * 86_400, most)
    assert [text for _, text in ticks] == texts
    assert all(0 <= offset <= span_days * 86_400 for offset, _ in ticks)


@pytest.mark.parametrize("greatest", [0, 0.06, 1, 7, 62, 999, 1_000, 28_002_098])
def test_a_count_axis_starts_at_zero_and_reaches_its_greatest(greatest: float) -> None:
    ax = Drawing().add_axes((0, 0, 1, 1))
    c.count_axis(ax, greatest)
    low, high = ax.get_ylim()
    assert low == 0
    assert high >= greatest
    assert len(ax.get_yticks()) <= 6


def test_figures_of_one_report_share_their_time() -> None:
    saves, latency, parity, _, _ = samples.sample_figures(60)
    ticks = [
        re.findall(r'<text x="([\d.]+)"[^>]*>(\d\d:\d\d:\d\d)<', figure.svg_wide) for figure in (saves, latency, parity)
    ]
    assert ticks[0]
    assert ticks[0] == ticks[1] == ticks[2]


def test_data_beyond_the_shared_time_widen_the_axis() -> None:
    wanted = c.Span(START, 60)
    assert c.Span.covering(wanted, START, START + timedelta(seconds=90)).seconds == 90
    assert c.Span.covering(wanted, START + timedelta(seconds=9), START + timedelta(seconds=20)) == wanted
