"""Fragments say the same as markup and as words, and carry nothing that a value could break out of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from statlib.runbook.fragments import (
    Code,
    Column,
    Fragment,
    GateTable,
    GateValues,
    KeyValues,
    Progress,
    Quantity,
    RefusalLine,
    StatusLine,
    Table,
    inside,
    stylesheet_fragment,
)
from statlib.runbook.look import shapes
from statlib.runbook.look.quantities import NBSP
from tests.unit.runbook.report_samples import gate, gates, sample_figures

HOSTILE = "</td><script>alert(1)</script>\"'&"

TABLE = Table(
    "Saves",
    (Column("Arm"), Column("p95", "ms"), Column("Saves", numeric=True)),
    (("fold", 4.8, 2_000), ("transactional", 23.0, None)),
    failing=frozenset({1}),
)


def one_of_each(text: str) -> list[Fragment]:
    return [
        Code(text),
        Quantity(3.5, text),
        StatusLine(shapes.PASSED, text, text),
        RefusalLine(text, text, text),
        Table(text, (Column(text), Column(text, text)), ((text, 1), (text, 2.5))),
        KeyValues(((text, text), (text, 3), (text, Code(text)))),
        Progress(text, 3, 10, text, 1.5, 4.7, text),
        GateTable((gate("k", text, 2, 3, text, note=text, source=text),), links_below="evidence/"),
    ]


@pytest.mark.parametrize("fragment", one_of_each("plain words"), ids=lambda f: type(f).__name__)
def test_plain_text_stands_beside_markup(fragment: Fragment) -> None:
    bundle = fragment._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/html"].startswith('<div class="statlib">')
    assert "plain words" in bundle["text/plain"]
    assert "<" not in bundle["text/plain"]
    assert repr(fragment) == bundle["text/plain"]


def test_a_host_chooses_which_form_it_is_given() -> None:
    code = Code("x")
    assert set(code._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(code._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


@pytest.mark.parametrize("fragment", one_of_each(HOSTILE), ids=lambda f: type(f).__name__)
def test_no_text_becomes_markup(fragment: Fragment) -> None:
    html = fragment._repr_html_()
    assert "<script" not in html
    assert "&lt;script" in html or "%3Cscript" in html


def test_a_figure_shows_its_finding_as_markup_and_as_words() -> None:
    figure = sample_figures(8)[0]
    bundle = figure._repr_mimebundle_()
    assert figure.finding in bundle["text/plain"]
    assert figure.numbers.text() in bundle["text/plain"]
    assert bundle["text/html"].count("<svg") == 2


def test_numbers_are_right_aligned_even_where_styles_are_stripped() -> None:
    html = TABLE.html()
    assert '<td class="num" style="text-align:right"><span class="q">23.0<i>\u00a0ms</i></span></td>' in html
    assert '<th scope="row">fold</th>' in html


def test_numbers_of_a_column_share_their_decimals() -> None:
    assert TABLE.text().splitlines()[2:] == [
        f"fold            4.8{NBSP}ms  2,000",
        f"transactional  23.0{NBSP}ms      –",
    ]


def test_a_failed_row_is_marked() -> None:
    assert TABLE.html().count('<tr class="bad">') == 1


def test_a_column_of_mixed_units_keeps_digits_in_line() -> None:
    mixed = Table(
        "", (Column("What"), Column("Size")), (("a", Quantity(1, "KiB")), ("b", Quantity(2)), ("c", Quantity(3, "B")))
    )
    assert '<table class="u3">' in mixed.html()
    assert '<span class="q">2<i></i></span>' in mixed.html()


def test_a_row_of_another_length_is_refused_by_the_tables_name() -> None:
    with pytest.raises(ValueError, match="table 'Saves': a row of 1 under 2 columns"):
        Table("Saves", (Column("a"), Column("b")), (("only one",),))


def test_values_are_said_in_words() -> None:
    at = datetime(2026, 3, 9, 5, 48, 2, tzinfo=UTC)
    shown = KeyValues.of({"when": at, "nothing": None, "apply": True, "off": False, "count": 1_234}).text()
    assert [line.split(maxsplit=1)[1] for line in shown.splitlines()] == [
        "2026-03-09 05:48:02",
        "–",
        "yes",
        "no",
        "1,234",
    ]


def test_progress_says_count_rate_remaining_and_what_it_waits_for() -> None:
    progress = Progress("Replay", 412, 2_825, "events", 47.2, 51.1, "the closing backfill")
    assert progress.text() == (
        f"Replay: 412 of 2,825{NBSP}events (14{NBSP}%), 47.2{NBSP}events/s, 51{NBSP}s remaining, "
        "waiting for the closing backfill"
    )
    assert 'style="width:14.6%"' in progress.html()


def test_progress_reaches_a_hundred_percent_only_when_done() -> None:
    assert f"(99{NBSP}%)" in Progress("x", 9_999, 10_000, "events").text()
    assert f"(100{NBSP}%)" in Progress("x", 10_000, 10_000, "events").text()


def test_progress_of_an_unknown_total_shows_no_bar() -> None:
    progress = Progress("x", 5, None, "events")
    assert "%" not in progress.html()
    assert progress.text() == f"x: 5{NBSP}events"


def test_a_gate_says_threshold_measured_result_and_raw_data() -> None:
    html = GateTable(gates(failing=True), links_below="evidence/").html()
    assert html.count('class="bad"') == 2
    assert html.count(">Pass</span>") == 9
    assert '<a href="evidence/captures/parity.jsonl"><code>parity.jsonl</code></a>' in html
    assert "captures/operations.jsonl" not in GateTable(gates(failing=True)).html()


def test_a_gate_keeps_its_roles_where_a_phone_drops_the_table_layout() -> None:
    html = GateTable(gates(failing=False)).html()
    assert html.count("<tr") == html.count('role="row"') == 12
    assert html.count("<td") == html.count('role="cell"')
    assert html.count("<th") - html.count("<thead") == html.count('role="rowheader"') + html.count(
        'role="columnheader"'
    )


def test_gates_in_plain_text_line_up() -> None:
    lines = GateTable((gate("lag", "Fold lag, p95", 2, 3.6, "s"), gate("x", "Mismatches", 0, None))).text().splitlines()
    assert lines[1].split("  ")[0] == "Fold lag, p95"
    assert lines[1].endswith("Fail")
    assert "not measured" in lines[2]
    assert len({line.index("F") for line in lines[2:]} | {lines[2].index("Fail")}) == 1


@pytest.mark.parametrize(
    ("limit", "measured", "unit", "said"),
    [
        (604_800.0, 604_900.0, "s", ("≤ 604,800", "604,900")),
        (604_800.0, 700_000.0, "s", ("≤ 7 d 00 h", "8 d 02 h")),
        (2.0, 2.0004, "s", ("≤ 2.0000", "2.0004")),
        (0.5, 0.31, "%", ("≤ 0.50", "0.31")),
        (100.0, 128.0, "%", ("≤ 100", "128")),
        (5.0, None, "s", ("≤ 5", "not measured")),
    ],
)
def test_a_gates_numbers_are_never_rounded_into_agreement(
    limit: float, measured: float | None, unit: str, said: tuple[str, str]
) -> None:
    values = GateValues.of(gate("k", "t", limit, measured, unit))
    assert (values.limit.replace(NBSP, " "), values.measured.replace(NBSP, " ")) == said


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up.json", "https://example.org/x", "a/../../b", "javascript:alert(1)"]
)
def test_a_link_never_leaves_the_bundle(path: str) -> None:
    assert inside(path) == "#gates"


def test_a_link_inside_the_bundle_is_quoted() -> None:
    assert inside('evidence/captures/a "b".json') == "evidence/captures/a%20%22b%22.json"


def test_the_stylesheet_is_one_style_element_and_silent_in_plain_text() -> None:
    bundle = stylesheet_fragment()._repr_mimebundle_()
    assert bundle["text/plain"] == ""
    assert bundle["text/html"].startswith("<style>")
    assert bundle["text/html"].count("<style>") == 1
