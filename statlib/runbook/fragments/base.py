"""What every fragment is: markup, and the same in words beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from html import escape

from statlib.runbook.look import quantities as q
from statlib.runbook.look.stylesheet import notebook_css

NOTHING = "–"
RIGHT = 'style="text-align:right"'  # said in the element, for a host that strips styles


class Fragment(ABC):
    """Something that shows itself in a notebook, in a report and in a terminal."""

    @abstractmethod
    def html(self) -> str:
        """The markup, without the ``.statlib`` element around it; every text in it is escaped."""

    @abstractmethod
    def text(self) -> str:
        """The same in plain text."""

    def __html__(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f'<div class="statlib">{self.html()}</div>'

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, str]:
        bundle = {"text/html": self._repr_html_(), "text/plain": self.text()}
        kept = {kind: body for kind, body in bundle.items() if not include or kind in include}
        return {kind: body for kind, body in kept.items() if not exclude or kind not in exclude}


@dataclass(frozen=True, repr=False)
class Stylesheet(Fragment):
    """The one ``<style>`` of a notebook; plain text has nothing to say about it."""

    def html(self) -> str:
        return f"<style>{notebook_css()}</style>"

    def text(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        return self.html()


def stylesheet_fragment() -> Stylesheet:
    """Show this once, when a run opens; every later fragment relies on it."""
    return Stylesheet()


Value = str | int | float | datetime | Fragment | None


def value_html(value: Value) -> str:
    """A table's or a list's value as markup."""
    if isinstance(value, Fragment):
        return value.html()
    return escape(value_text(value))


def value_text(value: Value) -> str:
    """A table's or a list's value as words."""
    if value is None:
        return NOTHING
    if isinstance(value, Fragment):
        return value.text()
    if isinstance(value, datetime):
        return q.instant(value, seconds=True)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else q.number(value)


def slotted(shown: str, unit: str) -> str:
    """A number and its unit in a slot of its own, so that digits line up under each other."""
    return f'<span class="q">{escape(shown)}<i>{escape(q.NBSP + unit) if unit else ""}</i></span>'


def aligned(right: bool) -> str:
    return f' class="num" {RIGHT}' if right else ""
