"""Redaction: what this process knows to be secret never reaches a run's folder.

Parameters that carry a credential are refused; this is for what nobody meant to write: an address with a password in a
traceback, a token in a cell's output. Known secrets are masked where they would be stored, in every form that text
takes on the way: as it is, inside JSON, inside HTML, in a URL.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from statlib.admin.tokens import OPERATOR_TOKEN_FILE
from statlib.evidence.journal import Journal
from statlib.kernel.settings import Settings
from statlib.runbook.credentials import credentials_in

MASK = "[secret]"
SHORTEST = 6  # characters; what is shorter stands in ordinary text by chance


@dataclass(frozen=True)
class Redaction:
    """``forms``: every known secret in every form, the longest first, so that none is masked in part."""

    forms: tuple[str, ...]

    def text(self, text: str) -> str:
        for form in self.forms:
            text = text.replace(form, MASK)
        return text

    def value(self, value: Any) -> Any:
        """The same JSON value with every text masked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def redaction_for(settings: Settings) -> Redaction:
    """Of every secret that the settings hold, the password in an address, and the data folder's operator token."""
    forms = {form for secret in _secrets(settings) if len(secret) >= SHORTEST for form in _forms(secret)}
    return Redaction(tuple(sorted(forms, key=len, reverse=True)))


def open_journal(path: Path, settings: Settings) -> Journal:
    """The journal of a run: on the run's clock, and with every known secret masked in it and in its captures."""
    return Journal(path, clock=settings.time, redact=redaction_for(settings).text)


def redact_notebook(path: Path, redaction: Redaction) -> None:
    """Mask what cells showed, and what executing them left in metadata. Sources stay: their hashes are on record."""
    import nbformat  # noqa: PLC0415 - it takes two seconds to load, and a kernel, which needs it not, would wait for it

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    before = json.dumps(notebook)
    if redaction.text(before) == before:
        return
    notebook.metadata = nbformat.from_dict(redaction.value(notebook.metadata))  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(redaction.value(cell.metadata))  # type: ignore[no-untyped-call]
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(redaction.value(one)) for one in cell.outputs]  # type: ignore[no-untyped-call]
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def _secrets(settings: Settings) -> Iterator[str]:
    for secret in credentials_in(settings):
        yield secret
        if "://" in secret and (password := urlsplit(secret).password):
            yield password
            yield unquote(password)
    token = settings.data_dir / OPERATOR_TOKEN_FILE
    if token.is_file():
        yield token.read_text(encoding="ascii").strip()


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield html.escape(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
