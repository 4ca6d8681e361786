"""Status: a shape and a word, and only then a colour.

Every state that a run, a gate or a step can be in has its own outline, so that it is told apart without
colour, in print and at a glance. The shapes are inline SVG: a page or a cell needs nothing else to show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from html import escape


class Tone(StrEnum):
    """The token that a status is coloured with."""

    PASS = "pass"  # noqa: S105 (a colour, no password)
    FAIL = "fail"
    CAUTION = "caution"
    PLAIN = "plain"


@dataclass(frozen=True)
class Shape:
    """An outline on a grid of 16 units. ``body`` is SVG that is painted in the current colour."""

    name: str
    tone: Tone
    body: str

    def svg(self) -> str:
        return f'<svg class="shape" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">{self.body}</svg>'


def _stroked(element: str, width: float, colour: str = "currentColor") -> str:
    return f'<{element} fill="none" stroke="{colour}" stroke-width="{width}"/>'


_ON = "var(--paper,#fcfcfa)"

PASSED = Shape(
    "passed",
    Tone.PASS,
    '<circle cx="8" cy="8" r="7.4" fill="currentColor"/>' + _stroked('path d="M4.5 8.3 7 10.8l4.6-5.3"', 1.9, _ON),
)
REHEARSED = Shape(
    "rehearsed",
    Tone.PASS,
    _stroked('circle cx="8" cy="8" r="6.7"', 1.6) + _stroked('path d="M4.8 8.2 7.1 10.5l4.1-4.7"', 1.7),
)
DRY = Shape("dry", Tone.PLAIN, _stroked('circle cx="8" cy="8" r="6.7" stroke-dasharray="2.6 2.66"', 1.6))
FAILED = Shape(
    "failed",
    Tone.FAIL,
    '<rect x=".7" y=".7" width="14.6" height="14.6" rx="1.5" fill="currentColor"/>'
    + _stroked('path d="m4.6 4.6 6.8 6.8m0-6.8-6.8 6.8"', 1.9, _ON),
)
REFUSED = Shape(
    "refused",
    Tone.CAUTION,
    _stroked('path d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"', 1.6) + _stroked('path d="M4.2 8h7.6"', 1.9),
)
INTERRUPTED = Shape(
    "interrupted",
    Tone.CAUTION,
    '<path d="M2.8 1.5h3.7v13H2.8zm6.7 0h3.7v13H9.5z" fill="currentColor"/>',
)
FAULTED = Shape(
    "faulted",
    Tone.FAIL,
    '<path d="M8 .9 15.6 15H.4z" fill="currentColor"/>' + _stroked('path d="M8 5.6v4.6m0 1.5v1.7"', 1.7, _ON),
)
PENDING = Shape("pending", Tone.PLAIN, _stroked('circle cx="8" cy="8" r="3.2"', 1.6))

SHAPES = (PASSED, REHEARSED, DRY, FAILED, REFUSED, INTERRUPTED, FAULTED, PENDING)


def status_html(shape: Shape, words: str, *, strong: bool | None = None) -> str:
    """The shape with its words. Words of a failing status are heavy, unless ``strong`` says otherwise."""
    heavy = shape.tone in (Tone.FAIL, Tone.CAUTION) if strong is None else strong
    weight = " strong" if heavy else ""
    return f'<span class="st {shape.tone.value}{weight}">{shape.svg()}<span>{escape(words)}</span></span>'
