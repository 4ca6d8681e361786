"""Tokens can be read, shapes differ, and numbers are said as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statlib.evidence.results import Comparison
from statlib.evidence.verdicts import Verdict
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes, tokens
from statlib.runbook.look.stylesheet import fragment_css, notebook_css, report_css
from statlib.runbook.look.tokens import TOKENS, Token
from statlib.runbook.look.verdicts import LOOKS, headline

AA = 4.5
NON_TEXT = 3.0
TEXT_EVERYWHERE = (tokens.INK, tokens.INK_2, tokens.LINK, tokens.PASS, tokens.CAUTION, tokens.FAIL, tokens.SERIES_1)
TEXT_ON_PAPER = (tokens.SERIES_2, tokens.SERIES_3)
GROUNDS = (tokens.PAPER, tokens.RAISED, tokens.FAIL_WASH)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_wcag_defines_it() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS, ids=lambda token: token.name)
@pytest.mark.parametrize("text", TEXT_EVERYWHERE, ids=lambda token: token.name)
def test_text_reaches_aa_on_every_ground(text: Token, ground: Token, theme: str) -> None:
    assert contrast(getattr(text, theme), getattr(ground, theme)) >= AA


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", TEXT_ON_PAPER, ids=lambda token: token.name)
def test_series_reach_aa_on_paper(text: Token, theme: str) -> None:
    assert contrast(getattr(text, theme), getattr(tokens.PAPER, theme)) >= AA


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axes_and_outlines_can_be_seen(theme: str) -> None:
    assert contrast(getattr(tokens.RULE_2, theme), getattr(tokens.PAPER, theme)) >= NON_TEXT


def test_each_token_is_declared_once_and_nothing_else_is_a_colour() -> None:
    css = report_css()
    for token in TOKENS:
        assert css.count(f"--{token.name}:light-dark({token.light},{token.dark});") == 1
    stated = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", css))
    assert stated == {colour for token in TOKENS for colour in (token.light, token.dark)} | {"#fff"}
    assert re.search(r"\b(rgb|hsl|oklch)a?\(", css) is None


def test_every_variable_that_the_stylesheet_uses_is_declared() -> None:
    css = report_css()
    assert set(re.findall(r"var\(--([\w-]+)", css)) <= set(re.findall(r"--([\w-]+):", css))


def rules(css: str) -> list[str]:
    """Every selector of a stylesheet, without the conditions around them."""
    flat = re.sub(r"@(?:media|container)[^{]*\{", "", css)
    return [one.strip("} ") for one in re.findall(r"([^{}]+|\})\{[^{}]*\}", flat)]


@pytest.mark.parametrize("css", [fragment_css(), notebook_css()], ids=["fragments", "notebook"])
def test_every_selector_of_the_fragments_stands_under_their_class(css: str) -> None:
    selectors = [part for rule in rules(css) for part in split_selectors(rule)]
    assert len(selectors) > 50
    assert [s for s in selectors if ".statlib" not in s] == []


def split_selectors(rule: str) -> list[str]:
    """At the commas that separate selectors, not at those within parentheses."""
    return re.split(r",(?![^()]*\))", rule)


def test_the_notebook_stylesheet_outranks_two_classes_an_element_and_a_pseudo_class() -> None:
    assert ".statlib.statlib.statlib table" in notebook_css()
    assert "!important" not in notebook_css()


def test_each_shape_has_its_own_outline() -> None:
    assert len({shape.body for shape in shapes.SHAPES}) == len(shapes.SHAPES)


def test_each_verdict_has_its_own_shape_but_for_the_two_full_passes() -> None:
    assert set(LOOKS) == set(Verdict)
    assert LOOKS[Verdict.PASSED].shape is LOOKS[Verdict.SOAK_PASSED].shape
    assert len({look.shape for look in LOOKS.values()}) == len(Verdict) - 1


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict.PASSED, "Passed"),
        (Verdict.SOAK_PASSED, "Soak passed"),
        (Verdict.REHEARSAL_PASSED, "Rehearsal passed"),
        (Verdict.FAILED, "Soak failed: 2 of 11 gates"),
        (Verdict.DRY_RUN_ONLY, "Dry run only"),
        (Verdict.REFUSED, "Refused: GateSkew"),
        (Verdict.INTERRUPTED, "Interrupted: GateSkew"),
        (Verdict.FAULT, "Fault: GateSkew"),
    ],
)
def test_the_headline_says_the_verdict_in_words(verdict: Verdict, said: str) -> None:
    assert headline(verdict, subject="Soak", failed=2, gates=11, cause="GateSkew") == said


def test_a_failure_without_gates_and_subject_still_has_a_headline() -> None:
    assert headline(Verdict.FAILED, subject="", failed=0, gates=0, cause="") == "Failed"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1_234_567, "1,234,567"),
        (-2.5, "−2.5"),
        (0.31, "0.31"),
        (0.5, "0.5"),
        (46.7667, "46.8"),
        (123.456, "123"),
        (0.000123, "0.000123"),
        (-0.0, "0"),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
        (float("nan"), "not a number"),
    ],
)
def test_numbers_are_short_and_use_a_true_minus(value: float, said: str) -> None:
    assert q.number(value) == said


def test_a_rounded_zero_has_no_sign() -> None:
    assert q.number(-0.004, 1) == "0.0"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.0031, "3.1 ms"),
        (0.42, "0.42 s"),
        (3, "3 s"),
        (3.25, "3.2 s"),
        (41, "41 s"),
        (59.7, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3_599.9, "1 h 00 min"),
        (13 * 3_600 + 2_400, "13 h 40 min"),
        (7 * 86_400 + 860, "7 d 00 h"),
        (86_399, "24 h 00 min"),
        (-125, "−2 min 05 s"),
    ],
)
def test_durations_say_their_two_largest_units(seconds: float, said: str) -> None:
    assert q.duration(seconds).replace(q.NBSP, " ") == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (421_888, "412 KiB"), (5 * 2**40, "5,120 GiB")],
)
def test_sizes_are_in_binary_units(count: int, said: str) -> None:
    assert q.size(count).replace(q.NBSP, " ") == said


def test_instants_are_said_in_utc() -> None:
    at = datetime(2026, 3, 9, 7, 48, 2, tzinfo=timezone(timedelta(hours=2)))
    assert q.instant(at) == "2026-03-09 05:48"
    assert q.instant(datetime(2026, 3, 9, tzinfo=UTC), seconds=True) == "2026-03-09 00:00:00"


@given(
    st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-3),
    st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-3),
    st.sampled_from([Comparison.AT_MOST, Comparison.AT_LEAST]),
)
def test_rounded_numbers_compare_as_the_measured_ones_do(measured: float, limit: float, comparison: Comparison) -> None:
    decimals = q.decimals_that_agree(measured, limit, comparison.holds)
    if decimals < q.DECIMALS_MAX:
        shown = [float(q.number(v, decimals).replace(",", "").replace(q.MINUS, "-")) for v in (measured, limit)]
        assert comparison.holds(*shown) == comparison.holds(measured, limit)


def test_a_value_just_over_its_limit_is_not_shown_as_the_limit() -> None:
    decimals = q.decimals_that_agree(2.0004, 2.0, Comparison.AT_MOST.holds)
    assert q.number(2.0004, decimals) == "2.0004"
