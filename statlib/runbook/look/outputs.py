"""Outputs of executed cells, made safe and small enough to stand inside a report.

Invariant: nothing that comes out of here runs or loads anything. Elements and attributes are an allow-list;
scripts, styles, frames and every address with a scheme are removed, whatever wrote them. What does not fit is
replaced by a sentence that says how large it was and where it is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

import mistune
import nh3

from statlib.runbook.look import quantities as q

OUTPUT_BYTES_MAX = 20_000

# Space-separated, since one name a line would hide what is absent from the list.
_SVG_TAGS = "svg g path circle rect line polyline polygon text tspan title desc defs use clipPath"
_HTML_TAGS = """a b blockquote br caption code dd details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i li ol p
    pre span strong sub summary sup table tbody td tfoot th thead tr u ul"""
_SVG_ATTRIBUTES = """aria-hidden aria-labelledby clip-path cx cy d fill fill-opacity height href points r role rx ry
    stroke stroke-dasharray stroke-linecap stroke-width transform viewBox width x x1 x2 y y1 y2 id style class"""
_STYLES = """text-align fill fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap
    stroke-linejoin opacity font-size font-weight text-anchor width"""
_HTML_ATTRIBUTES = {
    "*": "class role title",
    "a": "href",
    "figure": "data-figure",
    "td": "colspan rowspan style data-l",
    "th": "colspan rowspan scope style",
    "span": "style",
}
_ATTRIBUTES = {tag: set(names.split()) for tag, names in _HTML_ATTRIBUTES.items()}
_ATTRIBUTES |= {tag: set(_SVG_ATTRIBUTES.split()) for tag in _SVG_TAGS.split()}

_PLAIN = re.compile(r"[\w#.,% -]*(?:var\(--[\w-]+(?:,#[0-9a-f]{6})?\))?")
_OWN_CLIP = re.compile(r"url\(#[\w-]+\)")

_markdown = mistune.create_markdown(escape=True)


@dataclass(frozen=True)
class CellOutput:
    """One output as the notebook holds it: ``html`` where it has one, and ``text`` beside it."""

    text: str
    html: str = ""


def cleaned(html: str) -> str:
    """``html`` without anything that runs, loads, or styles more than itself."""
    return nh3.clean(
        html,
        tags={*_HTML_TAGS.split(), *_SVG_TAGS.split()},
        clean_content_tags={"script", "style"},
        attributes=_ATTRIBUTES,
        attribute_filter=_harmless,
        url_schemes=set(),
        link_rel=None,
    )


def _harmless(_tag: str, name: str, value: str) -> str | None:
    """The attribute as it may stay: references stay inside the bundle, styles to a few properties and plain values."""
    if name == "href":
        return None if value.startswith(("//", "\\")) else value
    if name == "clip-path":
        return value if _OWN_CLIP.fullmatch(value) else None
    if name == "style":
        pairs = (pair.split(":", 1) for pair in value.split(";") if ":" in pair)
        kept = [
            (k.strip(), v.strip()) for k, v in pairs if k.strip() in _STYLES.split() and _PLAIN.fullmatch(v.strip())
        ]
        return ";".join(f"{k}:{v}" for k, v in kept) or None
    return value


def prose_html(markdown: str) -> str:
    """A Markdown cell. Links out lose their address, since a report points nowhere but into its bundle."""
    rendered = _markdown(markdown)
    return cleaned(rendered if isinstance(rendered, str) else escape(markdown))


def output_html(output: CellOutput, room: int, figures: dict[str, int]) -> str:
    """The output as the report embeds it, in at most ``room`` bytes or as a sentence that says what is missing.

    A figure that the report draws anyway (``figures``: key to number) becomes a link to it.
    """
    shown = re.search(r'data-figure="([^"]*)"', output.html)
    if shown and shown[1] in figures:
        number = figures[shown[1]]
        return f'<a href="#fig{number}">Figure {number}</a>'
    body = cleaned(output.html).strip() if output.html else ""
    if not body:
        body = f"<pre>{escape(output.text)}</pre>" if output.text.strip() else ""
    weight = len(body.encode())
    if weight > min(room, OUTPUT_BYTES_MAX):
        return (
            f'<p class="soft">An output of {q.size(weight)} is left out here; notebook.ipynb of this bundle has it.</p>'
        )
    return body
