"""Served counters held against a count of the raw files that the review was recorded in, for the notebook
``statistics_explorer``.

The count is pandas' alone (``statlib.examples.transparency_export``); here are only the names that it needs and the
table of both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statlib.examples import transparency_export
from statlib.kernel.refusals import Refusal
from statlib.review.documents import Project
from statlib.review.loading.review import LoadReason
from statlib.runbook.fragments import Column, Fragment, StatusLine, Table
from statlib.runbook.look import quantities as q
from statlib.runbook.look import shapes

DIFFERENCES_SHOWN = 20

Counted = Mapping[str, Mapping[str, Mapping[str, int]]]
"""{family: {scope: counters}}. Counters that are 0 may be absent."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def counted(folder: str) -> Counted:
    """Every family counted from the raw files in ``folder``; nothing where ``folder`` is empty.

    People, searches, stages and questions go by the names that the files use. Refuses ExportUnreadable where a file
    is missing.
    """
    if not folder:
        return {}
    missing = [name for name in transparency_export.FILES if not (Path(folder) / name).is_file()]
    if missing:
        raise Refusal(LoadReason.ExportUnreadable, f"{folder} does not hold {', '.join(missing)}")
    return transparency_export.families(Path(folder))


def by_name(values: Counted, project: Project) -> Counted:
    """Counters with the names that raw files use in place of ids: questions are Q01, Q02 … in the project's order.

    Who shares a name with somebody, or has none, keeps the id: two scopes never become one.
    """
    names = {str(member.investigator_id): member.name for member in project.memberships}
    names |= {str(search.id): search.name for search in project.searches}
    names |= {str(stage.id): stage.name for stage in project.stages}
    names |= {str(question.id): f"Q{number:02}" for number, question in enumerate(project.questions, 1)}
    bearers = Counter(names.values())
    own = {id_: name for id_, name in names.items() if name and bearers[name] == 1}

    def spelt(text: str) -> str:
        return _UUID.sub(lambda found: own.get(found[0], found[0]), text)

    return {
        family: {spelt(scope): {spelt(key): count for key, count in found.items()} for scope, found in scopes.items()}
        for family, scopes in values.items()
    }


@dataclass(frozen=True, repr=False)
class Comparison(Fragment):
    """Both counts of every family, and the counters on which they differ. ``source`` says where ``served`` is from."""

    served: Counted
    raw: Counted
    source: str

    def html(self) -> str:
        return "".join(part.html() for part in self._parts())

    def text(self) -> str:
        return "\n".join(part.text() for part in self._parts())

    @property
    def differing(self) -> tuple[tuple[str, str, str, int, int], ...]:
        """(family, scope, counter, served, from the raw files), in order, a scope of one side alone included."""
        return tuple(
            (family, scope, key, *both)
            for family in self._families
            for (scope, key), both in self._paired(family).items()
            if both[0] != both[1]
        )

    @property
    def _families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.served, *self.raw)))

    def _paired(self, family: str) -> dict[tuple[str, str], tuple[int, int]]:
        """{(scope, counter): (served, raw)} of all that either count has, but for what is 0 in both."""
        served, raw = self.served.get(family, {}), self.raw.get(family, {})
        pairs = {
            (scope, key): (served.get(scope, {}).get(key, 0), raw.get(scope, {}).get(key, 0))
            for scope in sorted({*served, *raw})
            for key in sorted({*served.get(scope, {}), *raw.get(scope, {})})
        }
        return {at: both for at, both in pairs.items() if any(both)}

    def _parts(self) -> list[Fragment]:
        differing = self.differing
        pairs = {family: self._paired(family) for family in self._families}
        whole = sum(map(len, pairs.values()))
        if not differing:
            said = StatusLine(shapes.PASSED, f"Equal: all {q.number(whole)} counters", self.source)
        else:
            words = f"Different: {q.number(len(differing))} of {q.plural(whole, 'counter')}"
            said = StatusLine(shapes.FAILED, words, self.source)
        equal = {family: sum(a == b for a, b in found.values()) for family, found in pairs.items()}
        rows = tuple(
            (family, len(found), sum(a for a, _ in found.values()), sum(b for _, b in found.values()),
             "all" if equal[family] == len(found) else f"{q.number(equal[family])} of {q.number(len(found))}")
            for family, found in pairs.items()
        )  # fmt: skip
        failing = frozenset(at for at, row in enumerate(rows) if row[-1] != "all")
        columns = (
            Column("Family"),
            Column("Counters", numeric=True),
            Column("Served, added up", numeric=True),
            Column("Raw files, added up", numeric=True),
            Column("Equal", numeric=True),
        )
        parts = [said, Table("Every counter, served and counted from the raw files", columns, rows, failing)]
        return [*parts, _differences(differing)] if differing else parts


def _differences(differing: tuple[tuple[str, str, str, int, int], ...]) -> Fragment:
    more = len(differing) - DIFFERENCES_SHOWN
    title = "Counters that differ" + (f", the first {DIFFERENCES_SHOWN} of {q.number(len(differing))}" * (more > 0))
    names = ("Family", "Scope", "Counter", "Served", "Raw files")
    columns = tuple(Column(name, numeric=name in names[3:]) for name in names)
    return Table(title, columns, differing[:DIFFERENCES_SHOWN])
