"""A command, a number, a state, a refusal: what fits into one line or into a cell."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from statlib.runbook.fragments.base import Fragment, slotted
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes
from statlib.runbook.look.shapes import Shape, status_html


@dataclass(frozen=True, repr=False)
class Code(Fragment):
    """A command, a path or an identifier."""

    content: str

    def html(self) -> str:
        return f"<code>{escape(self.content)}</code>"

    def text(self) -> str:
        return self.content


@dataclass(frozen=True, repr=False)
class Quantity(Fragment):
    """A number with its unit; ``decimals`` as ``quantities.number`` takes it."""

    value: float
    unit: str = ""
    decimals: int | None = None

    def html(self) -> str:
        shown = q.number(self.value, self.decimals)
        return slotted(shown, self.unit) if self.unit else shown

    def text(self) -> str:
        return q.with_unit(self.value, self.unit, self.decimals)


@dataclass(frozen=True, repr=False)
class StatusLine(Fragment):
    """A state in words with its shape, and what there is to say about it."""

    shape: Shape
    words: str
    detail: str = ""

    def html(self) -> str:
        detail = f' <span class="soft">{escape(self.detail)}</span>' if self.detail else ""
        return f'<div class="line">{status_html(self.shape, self.words)}{detail}</div>'

    def text(self) -> str:
        return f"{self.words}: {self.detail}" if self.detail else self.words


@dataclass(frozen=True, repr=False)
class RefusalLine(Fragment):
    """A typed no and what to do about it."""

    reason: str
    detail: str
    remedy: str

    def html(self) -> str:
        line = StatusLine(shapes.REFUSED, f"Refused: {self.reason}", self.detail).html()
        return f'{line}<p class="remedy">{escape(self.remedy)}</p>'

    def text(self) -> str:
        return "\n".join(part for part in (f"Refused: {self.reason}", self.detail, self.remedy) if part)
