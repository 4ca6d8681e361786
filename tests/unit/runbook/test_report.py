"""The page says what ran and how it ended, loads nothing, and stays small whatever it is given."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from typing import Any

import pytest

from statlib.evidence.results import GateResult
from statlib.evidence.verdicts import Verdict
from statlib.runbook.fragments import Code, Figure
from statlib.runbook.look.outputs import CellOutput, cleaned, output_html, prose_html
from statlib.runbook.report import (
    REPORT_BYTES_MAX,
    DataKind,
    Highlight,
    Report,
    ReportCell,
    render_report,
)
from tests.unit.runbook.report_samples import HEAD, latency_summary, sample

HOSTILE = """</style></title>"'><script>alert(1)</script><img src=https://example.org/x onerror=alert(1)>{{ 7*7 }}"""
VOID = {"meta", "link", "br", "wbr", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, in order, and whether they close as they open."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.astray: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.astray.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))  # no-break spaces included

    def meta(self, name: str) -> str | None:
        return next(a.get("content") for tag, a in self.elements if tag == "meta" and a.get("name") == name)

    def addresses(self) -> list[str]:
        return [
            value or ""
            for tag, attributes in self.elements
            for name, value in attributes.items()
            if name in ("href", "src", "srcset", "action", "data", "poster", "xlink:href") and tag != "link"
        ]


def first_screen(html: str) -> str:
    return html[: html.index('<section id="gates"')]


@pytest.fixture(scope="module", params=list(Verdict), ids=lambda v: v.value)
def report(request: pytest.FixtureRequest) -> Report:
    return sample(request.param, points=20)


def test_every_verdict_renders_with_its_words_and_marks(report: Report) -> None:
    html = render_report(report)
    page = Page(html)
    assert f"<h1>{report.headline}</h1>" in html
    assert page.meta("statlib-verdict") == report.verdict.value
    assert page.meta("statlib-journal-head") == HEAD
    assert page.astray == []
    assert page.open == []
    for said in (report.runbook, report.deployment, report.principal, report.capability, report.lead):
        assert said in page.text


def test_the_page_loads_and_runs_nothing(report: Report) -> None:
    html = render_report(report)
    page = Page(html)
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "iframe", "object", "embed", "img", "base", "form", "template"})
    assert [name for _, a in page.elements for name in a if name.startswith("on")] == []
    assert [a for a in page.addresses() if re.match(r"[a-zA-Z][\w+.-]*:|//|\\", a)] == []
    assert [a["href"] for tag, a in page.elements if tag == "link"] == ["data:,"]
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "script-src" not in policy


def test_links_within_the_page_lead_somewhere(report: Report) -> None:
    page = Page(render_report(report))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert [a for a in page.addresses() if a.startswith("#") and a[1:] not in ids] == []


def test_the_first_screen_says_that_data_were_simulated(report: Report) -> None:
    screen = first_screen(render_report(report))
    assert '<span class="kind sim">Simulated data</span>' in screen
    assert '<span class="kind sim">Simulated: Reviewers’ pace</span>' in screen
    assert '<span class="kind">Recorded: Screening decisions</span>' in screen


def test_recorded_data_alone_are_not_called_simulated() -> None:
    base = sample(Verdict.SOAK_PASSED, points=8)
    recorded = tuple(replace(source, kind=DataKind.RECORDED) for source in base.provenance)
    html = render_report(replace(base, provenance=recorded))
    assert "imulated data" not in html
    assert 'class="kind sim"' not in html


def test_the_first_screen_says_why_this_was_only_a_rehearsal() -> None:
    base = sample(Verdict.REHEARSAL_PASSED, points=8)
    assert "The window was held for 61 s instead of seven days." in first_screen(render_report(base))
    assert "A rehearsal, not a soak." in first_screen(render_report(base))
    assert "A rehearsal" not in render_report(replace(base, rehearsal=""))


def test_a_rehearsal_of_anything_else_is_not_measured_by_a_soak() -> None:
    text = Page(render_report(replace(sample(Verdict.REHEARSAL_PASSED, points=8), soak=False))).text
    assert "A rehearsal. The window was held" in text
    assert "not a soak" not in text


def test_what_did_not_fail_is_not_listed_among_what_failed() -> None:
    report = replace(sample(Verdict.FAILED, points=8), highlights=(Highlight("Save latency, p95", 9, "ms"),))
    text = Page(first_screen(render_report(report))).text
    failed, _, measured = text.partition("Also measured")
    for gate in report.failing:
        assert gate.title in failed.partition("What failed")[2]
    assert "Save latency" not in failed
    assert "Save latency" in measured
    passed = replace(sample(Verdict.REHEARSAL_PASSED, points=8), highlights=report.highlights)
    assert "Also measured" not in render_report(passed)


def test_failing_gates_stand_on_the_first_screen_with_value_limit_and_figure() -> None:
    text = Page(first_screen(render_report(sample(Verdict.FAILED, points=8)))).text
    assert "Parity mismatches 2 limit 0 Figure 3" in text
    assert "fastest collection 1,460 B/operation limit ≤ 1,200 B/operation Figure 4" in text
    assert "9 gates passed" in text


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.INTERRUPTED, Verdict.FAULT])
def test_a_run_that_was_stopped_says_why_where_and_the_remedy_first(verdict: Verdict) -> None:
    stopped = sample(verdict)
    assert stopped.halt is not None
    text = Page(first_screen(render_report(stopped))).text
    for said in (stopped.halt.cause, stopped.halt.detail, stopped.halt.at_step, stopped.halt.remedy):
        assert said in text


def test_next_steps_are_numbered_in_order_with_their_commands() -> None:
    failed = sample(Verdict.FAILED, points=8)
    steps = re.search(r'<ol class="next">(.*?)</ol>', render_report(failed), re.DOTALL)
    assert steps is not None
    assert re.findall(r"<b>(.*?)</b>", steps[1]) == [step.lead for step in failed.next_steps]
    assert re.findall(r'<code class="do">(.*?)</code>', steps[1]) == [s.command for s in failed.next_steps if s.command]


def test_a_run_without_an_end_and_a_step_without_a_close_say_so() -> None:
    text = Page(render_report(sample(Verdict.FAULT))).text
    assert "end not recorded" in text
    assert "1 not closed" in text
    assert "Incomplete" in text


def test_gates_stand_in_declared_order() -> None:
    passed = sample(Verdict.REHEARSAL_PASSED, points=8)
    table = re.search(r'<section id="gates".*?</section>', render_report(passed), re.DOTALL)
    assert table is not None
    named = re.findall(r'role="rowheader" scope="row">([^<]*)', table[0])
    assert named == [gate.title for gate in passed.gates]


def test_a_page_of_two_thousand_points_a_series_is_within_its_size() -> None:
    base = sample(Verdict.FAILED, points=2_000, seconds=302.4)
    html = render_report(replace(base, figures=(*base.figures, latency_summary())))
    assert len(html.encode()) <= REPORT_BYTES_MAX


def test_cells_that_do_not_fit_are_left_out_with_a_word() -> None:
    base = sample(Verdict.FAILED, points=2_000, seconds=302.4)
    many = tuple(
        ReportCell(
            n, f"Cell {n}", "x = 1\n" * 600, "prose " * 400, (CellOutput("y" * 19_000), CellOutput("z" * 40_000))
        )
        for n in range(60)
    )
    html = render_report(replace(base, cells=many))
    assert len(html.encode()) <= REPORT_BYTES_MAX
    assert html.count('<details class="cell">') == 60
    assert "Left out here for its size" in html
    assert "An output of 39.1\u00a0KiB is left out here" in html


def test_a_long_cell_says_how_much_of_its_code_is_missing() -> None:
    base = replace(sample(Verdict.REFUSED), cells=(ReportCell(1, "Long", "a" * 4_321),))
    assert "… 321 further characters: see notebook.ipynb" in render_report(base)


def hostile(value: Any) -> Any:
    """``value`` with every text in it made hostile; drawings and enums stay."""
    if isinstance(value, GateResult):
        texts = dict.fromkeys(("title", "unit", "source", "note", "threshold_text"), HOSTILE)
        return value.model_copy(update=texts)
    if isinstance(value, Figure):
        return replace(value, key=HOSTILE, title=HOSTILE, finding=HOSTILE, what=HOSTILE, numbers=hostile(value.numbers))
    if isinstance(value, Verdict | DataKind) or value is None:
        return value
    if type(value) is str:
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(hostile(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value)})
    return value


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda v: v.value)
def test_no_text_of_a_report_becomes_markup(verdict: Verdict) -> None:
    page = Page(render_report(hostile(sample(verdict, points=8))))
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "iframe"})
    assert [name for _, a in page.elements for name in a if name.startswith("on")] == []
    assert [a for a in page.addresses() if re.match(r"[a-zA-Z][\w+.-]*:|//", a)] == []
    assert page.astray == []
    assert page.open == []
    assert "49" not in page.meta("statlib-run")  # type: ignore[operator]
    assert page.meta("statlib-journal-head") == HOSTILE


# --- outputs of cells -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "html",
    [
        "<script>alert(1)</script>",
        "<b onclick=alert(1)>x</b>",
        "<img src=https://example.org/a.png>",
        '<a href="javascript:alert(1)">x</a>',
        '<a href="https://example.org">x</a>',
        '<a href="//example.org/x">x</a>',
        '<svg><g clip-path="url(https://example.org/x)"></g></svg>',
        '<span style="fill:url(https://example.org);text-align:expression(alert(1))">x</span>',
        "<iframe src=x></iframe>",
        "<style>*{display:none}</style>",
        '<div style="background:url(https://example.org)">x</div>',
        '<svg><script>alert(1)</script><use href="https://example.org#x"/></svg>',
        "<svg><foreignObject><img src=x onerror=alert(1)></foreignObject></svg>",
        "<math><mtext><table><mglyph><style><img src onerror=alert(1)>",
        '<form action="https://example.org"><input></form>',
        '<link rel=stylesheet href=x><meta http-equiv=refresh content="0;url=x"><base href=x>',
    ],
)
def test_outputs_of_cells_keep_nothing_that_runs_or_loads(html: str) -> None:
    page = Page(cleaned(html))
    allowed = {"a", "b", "div", "span", "svg", "use", "g", "table"}
    assert {tag for tag, _ in page.elements} <= allowed
    assert page.addresses() in ([], [""])
    assert [v for _, a in page.elements for n, v in a.items() if n.startswith("on") or "url" in (v or "")] == []
    assert "alert" not in cleaned(html)


def test_a_fragment_survives_being_embedded() -> None:
    html = latency_summary().numbers.html()
    kept = cleaned(html)
    assert kept.count("<td") == html.count("<td")
    assert 'style="text-align:right"' in kept
    assert 'class="num"' in kept


def test_a_drawing_survives_being_embedded() -> None:
    kept = cleaned(latency_summary().svg_wide)
    assert "viewBox" in kept
    assert "var(--s1,#1f62a8)" in kept


def test_a_figure_that_the_report_draws_is_linked_not_repeated() -> None:
    figure = latency_summary()
    output = CellOutput(figure.text(), figure._repr_html_())
    assert output_html(output, 10**6, {"latency": 4}) == '<a href="#fig4">Figure 4</a>'


def test_an_output_without_markup_is_shown_as_text() -> None:
    assert output_html(CellOutput("1 < 2"), 10**6, {}) == "<pre>1 &lt; 2</pre>"
    assert output_html(CellOutput(""), 10**6, {}) == ""


def test_prose_is_markdown_whose_links_point_nowhere_outside() -> None:
    html = prose_html("## Why\n\n*Because* of [this](https://example.org) and [that](docs/x.md). <script>1</script>")
    assert "<h2>Why</h2>" in html
    assert "<em>Because</em>" in html
    assert "example.org" not in html
    assert 'href="docs/x.md"' in html
    assert "<script" not in html


def test_a_cell_that_did_not_run_says_so() -> None:
    html = render_report(sample(Verdict.FAILED, points=8))
    assert "4 of 5 executed." in html
    assert "<i>not executed</i>" in html


def test_values_of_parameters_and_environment_are_shown() -> None:
    base = replace(sample(Verdict.REFUSED), parameters=(("arm", Code("fold")), ("rate", 2.5)), environment=())
    html = render_report(base)
    assert "<dt>arm</dt><dd><code>fold</code></dd>" in html
    assert "<dt>rate</dt><dd>2.5</dd>" in html
    assert "Environment" not in html
