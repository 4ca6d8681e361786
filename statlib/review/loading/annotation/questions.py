"""Which sort of answer each question asks for, told by the answers: an export has the texts, not the forms."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from statlib.review.documents import AnswerKind

BOOLEANS = {"yes": True, "no": False}
OPTIONS_MAX = 200
"""A question with more different answers than this is taken to be answered in words of one's own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question. ``options`` in the order in which they were first given."""

    key: str
    text: str
    kind: AnswerKind
    options: tuple[str, ...] = ()

    def value(self, text: str) -> bool | int | str:
        """An answer of this question as a session stores it."""
        if self.kind is AnswerKind.BOOLEAN:
            return BOOLEANS[text.lower()]
        if self.kind is AnswerKind.INTEGER:
            return int(text)
        return normal(text)


def asked(texts: Mapping[str, str], in_words: Iterable[str], given: Mapping[str, Iterable[str]]) -> dict[str, Asked]:
    """Questions by key. ``texts``: all there are; ``in_words``: keys of those whose answers are free text; ``given``:
    every answer that occurs, by key.

    Only yes and no: Boolean. Only whole numbers in plain decimal: Integer. Else a choice among what occurs.
    """
    free = set(in_words)
    return {key: _asked(key, text, key in free, given.get(key, ())) for key, text in texts.items()}


def normal(text: str) -> str:
    """NFC: two spellings of one letter are one answer."""
    return unicodedata.normalize("NFC", text)


def _asked(key: str, text: str, free: bool, given: Iterable[str]) -> Asked:
    options = tuple(dict.fromkeys(map(normal, given)))
    if free or not options or len(options) > OPTIONS_MAX:
        return Asked(key, text, AnswerKind.TEXT)
    if all(option.lower() in BOOLEANS for option in options):
        return Asked(key, text, AnswerKind.BOOLEAN)
    if all(_plain_integer(option) for option in options):
        return Asked(key, text, AnswerKind.INTEGER)
    return Asked(key, text, AnswerKind.CHOICE, options)


def _plain_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 18 and str(int(text)) == text
