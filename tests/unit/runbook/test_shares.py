"""Bars that are divided into parts: what is drawn, what is told, what is refused."""

from __future__ import annotations

import re

import pytest

from statlib.runbook.look.plots.shares import ROWS_MAX, Row, parts, shares
from statlib.runbook.look.stylesheet import fragment_css

OF = parts("done", "under way", "untouched")


def figure(*rows: Row) -> object:
    return shares("k", "Work", rows, OF, finding="3 of 9 done", source="stored", unit="studies")


def test_every_amount_is_in_the_table_and_every_part_that_occurs_in_the_legend() -> None:
    drawn = shares(
        "work", "Work", [Row("ann", {"done": 300, "untouched": 1_200}), Row("ben", {"done": 50})], OF,
        finding="350 of 1,550 done", source="stored counters", unit="studies",
    )  # fmt: skip
    assert drawn.numbers.rows == (("ann", 300, 0, 1_200, 1_500), ("ben", 50, 0, 0, 50))
    for svg in (drawn.svg_wide, drawn.svg_narrow):
        assert "untouched" in svg
        assert "under way" not in svg, "nobody has any"
        assert "1,200" in svg


def test_a_number_on_a_dark_bar_has_no_outline_of_its_own_colour() -> None:
    drawn = shares("k", "Work", [Row("ann", {"done": 519})], OF, finding="much", source="stored", unit="studies")
    (selector,) = re.findall(r'text\[style\*="([^"]*)"\]\{stroke:none\}', fragment_css())
    (style,) = re.findall(r'<text [^>]*style="([^"]*text-anchor:middle[^"]*)">519<', drawn.svg_wide)
    assert selector in style


def test_a_row_without_anything_is_drawn_empty() -> None:
    drawn = shares("k", "Work", [Row("ann", {})], OF, finding="nothing", source="stored", unit="studies")
    assert drawn.numbers.rows == (("ann", 0, 0, 0, 0),)


def test_rows_beyond_what_a_figure_holds_are_named_and_stay_in_the_table() -> None:
    rows = [Row(f"member {n}", {"done": n + 1}) for n in range(ROWS_MAX + 3)]
    drawn = shares("k", "Work", rows, OF, finding="much", source="stored", unit="studies")
    assert f"The first {ROWS_MAX} of {ROWS_MAX + 3} are drawn." in drawn.what
    assert len(drawn.numbers.rows) == ROWS_MAX + 3
    assert f"member {ROWS_MAX}" not in drawn.svg_wide


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("earns $1 or $2", "earns $1 or $2"),
        (r"$\no such command$", r"$\no such command$"),
        ("李四 🦊 محمد", "李四 🦊 محمد"),
        ("two\nlines\x1b[31m\x00", "two�lines�[31m�"),
        ("\ud800", "�"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("n" * 400, "n" * 46 + "…"),
        ("王" * 400, "王" * 23 + "…"),
    ],
)
def test_any_name_that_a_person_may_have_is_drawn(name: str, shown: str) -> None:
    drawn = shares("k", "Work", [Row(name, {"done": 1})], OF, finding="much", source="stored", unit="studies")
    for svg in (drawn.svg_wide, drawn.svg_narrow):
        assert f">{shown}</text>" in svg
    assert drawn.numbers.rows[0][0] == name, "the table has it whole"


def test_a_figure_of_as_many_rows_and_parts_as_there_may_be_fits_into_its_bytes() -> None:
    of = parts("at target", "completed", "started", "being reconciled", "not ready", "untouched")
    row = Row("&" * 400, {part.name: 1_234_567 for part in of})
    drawn = shares("work", "Work", [row] * ROWS_MAX, of, finding="much", source="stored", unit="studies")
    assert drawn.svg_wide.count("7,407,402") == ROWS_MAX
    assert drawn.svg_wide.count("1,234,567") == ROWS_MAX * len(of)


def test_nothing_to_draw_an_unknown_part_and_too_many_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        figure()
    with pytest.raises(ValueError, match="without a look: odd"):
        figure(Row("ann", {"odd": 1}))
    with pytest.raises(ValueError, match="told apart"):
        parts(*"abcdefg")
