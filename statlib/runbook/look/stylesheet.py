"""The stylesheet of the fragments, and of the page that a report adds around them.

Invariant: every selector of the fragments stands under ``.statlib`` and the tokens are declared on it, so
that a notebook's own look is never touched.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from statlib.runbook.look.tokens import declarations

# A notebook styles its outputs with selectors of up to two classes, an element and a pseudo-class.
# Naming our own class three times outranks them without a single !important.
OUTRANKING = ".statlib.statlib.statlib"


@cache
def fragment_css() -> str:
    """Tokens and the rules for tables, status lines and figures, compact."""
    return compact(f".statlib{{{declarations()}}}{_read('statlib.css')}")


@cache
def notebook_css() -> str:
    """The same rules, strong enough to hold inside JupyterLab's own."""
    return re.sub(r"\.statlib(?![\w-])", OUTRANKING, fragment_css())


@cache
def report_css() -> str:
    """The fragments' rules and then the page's."""
    return fragment_css() + compact(_read("report.css"))


def compact(css: str) -> str:
    """Without comments and line breaks."""
    return re.sub(r"\s*\n\s*", "", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))


def _read(name: str) -> str:
    return (files("statlib.runbook.look") / name).read_text(encoding="utf-8")
