"""How far a long wait has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from statlib.runbook.fragments.base import Fragment
from statlib.runbook.look import quantities as q


@dataclass(frozen=True, repr=False)
class Progress(Fragment):
    """How far a long wait has come. ``total`` and ``rate_per_s`` are None while they are unknown.

    ``waiting_for`` says what is being polled, and ``remaining_s`` how long that will take if it keeps its rate.
    """

    what: str
    done: float
    total: float | None
    unit: str
    rate_per_s: float | None = None
    remaining_s: float | None = None
    waiting_for: str = ""

    def html(self) -> str:
        share = self._share()
        bar = (
            f'<div class="bar" aria-hidden="true"><span style="width:{100 * share:.1f}%"></span></div>'
            if share is not None
            else ""
        )
        parts = " · ".join(f'<span class="unbroken">{escape(part)}</span>' for part in self._parts())
        waiting = f'<div class="note">Waiting for {escape(self.waiting_for)}</div>' if self.waiting_for else ""
        return f'<div class="line"><b>{escape(self.what)}</b>{bar}<div class="soft">{parts}</div>{waiting}</div>'

    def text(self) -> str:
        waiting = [f"waiting for {self.waiting_for}"] if self.waiting_for else []
        return f"{self.what}: " + ", ".join([*self._parts(), *waiting])

    def _share(self) -> float | None:
        return None if not self.total else min(1.0, max(0.0, self.done / self.total))

    def _parts(self) -> Iterable[str]:
        of = f" of {q.number(self.total)}" if self.total is not None else ""
        share = self._share()
        yield f"{q.number(self.done)}{of}{q.NBSP}{self.unit}" + (
            f" ({floor_percent(share)}{q.NBSP}%)" if share is not None else ""
        )
        if self.rate_per_s is not None:
            yield q.with_unit(self.rate_per_s, f"{self.unit}/s")
        if self.remaining_s is not None:
            yield f"{q.duration(self.remaining_s)} remaining"


def floor_percent(share: float) -> int:
    """Rounded down: 100 % is shown only when everything is done."""
    return int(100 * share)
