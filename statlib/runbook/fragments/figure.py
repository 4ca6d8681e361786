"""One question, drawn, with its answer above it and its numbers below."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from statlib.runbook.fragments.base import Fragment
from statlib.runbook.fragments.tables import Table


@dataclass(frozen=True, repr=False)
class Figure(Fragment):
    """One question, drawn wide (880 px) and narrow (350 px), with what was found above it.

    ``finding`` is the bold line; ``what`` says what is plotted, in which unit, by which method and from which
    source. ``numbers`` is the table that folds out below. The two SVGs come from ``look.themed_svg``.
    """

    key: str
    title: str
    finding: str
    what: str
    svg_wide: str
    svg_narrow: str
    numbers: Table

    def html(self) -> str:
        return self.numbered(None)

    def numbered(self, number: int | None) -> str:
        """The figure as the report's ``number``-th; an unnumbered one stands in a notebook cell."""
        name = f"Figure {number}" if number is not None else self.title
        above = f"<span>{name}</span>" if number is not None else ""
        anchor = f' id="fig{number}"' if number is not None else ""
        return (
            f'<figure class="fig-box" data-figure="{escape(self.key)}"{anchor}><figcaption>{above}'
            f"<b>{escape(self.finding)}</b><span>{escape(self.what)}</span></figcaption>"
            f'<div class="wide">{self.svg_wide}</div><div class="narrow">{self.svg_narrow}</div>'
            f"<details><summary>The numbers of {escape(name if number is not None else 'this figure')}</summary>"
            f"{self.numbers.html()}</details></figure>"
        )

    def text(self) -> str:
        return "\n".join([self.finding, self.what, "", self.numbers.text()])
