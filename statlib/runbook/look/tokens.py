"""Colours by their purpose, each once, for light and for dark.

Everything that is drawn or styled names a token; a colour stated anywhere else is an error that the figures
refuse and the tests find. Text tokens keep a contrast of 4.5 : 1 on every ground that they are meant for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """One colour: ``name`` is its CSS variable, ``light`` and ``dark`` are ``#rrggbb``."""

    name: str
    light: str
    dark: str
    purpose: str

    @property
    def variable(self) -> str:
        """How an SVG refers to it: the variable, and the light value where no stylesheet is."""
        return f"var(--{self.name},{self.light})"


PAPER = Token("paper", "#fcfcfa", "#15181b", "the page")
RAISED = Token("raised", "#f3f4f1", "#1d2125", "code, and what the pointer is over")
RULE = Token("rule", "#dcdfdd", "#31373c", "hairlines and grids")
RULE_2 = Token("rule-2", "#868f94", "#6b757c", "axes, table heads, outlines")
INK = Token("ink", "#1b1f22", "#e5e8ea", "text and values")
INK_2 = Token("ink-2", "#555e65", "#a7b0b6", "notes, labels, units")
LINK = Token("link", "#0b56a0", "#8cc0f2", "links and the focus ring")
PASS = Token("pass", "#14664d", "#6cc7a5", "passed, done")
CAUTION = Token("caution", "#7a5200", "#e0b454", "refused, interrupted")
FAIL = Token("fail", "#b02a12", "#ff9478", "failed, limits")
FAIL_WASH = Token("fail-wash", "#fbefeb", "#2a1d1a", "the ground of a failed row")
SERIES_1 = Token("s1", "#1f62a8", "#74b3ed", "the first series")
SERIES_2 = Token("s2", "#a64f08", "#eba45f", "the second series")
SERIES_3 = Token("s3", "#687076", "#98a2a9", "context: what the others are compared with")

TOKENS = (
    PAPER, RAISED, RULE, RULE_2, INK, INK_2, LINK, PASS, CAUTION, FAIL, FAIL_WASH, SERIES_1, SERIES_2, SERIES_3,
)  # fmt: skip


def declarations() -> str:
    """The tokens as CSS custom properties, each a ``light-dark()`` pair."""
    return "".join(f"--{token.name}:light-dark({token.light},{token.dark});" for token in TOKENS)
