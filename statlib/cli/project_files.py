"""``statlib project search`` and ``decisions``: studies and decisions from a CSV file, sent in requests of their size.

Every row that cannot be read is named with its number; the others are sent. A file that was sent in part is completed
by sending it again: what is stored stays.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import click

from statlib.cli.operate import ask
from statlib.cli.output import answer, counted, json_option
from statlib.kernel.refusals import Refusal, SettingsReason

if TYPE_CHECKING:
    from statlib.admin import edit_wire
    from statlib.admin.client import AdminClient

BYTES_OF_ONE_REQUEST = 48 * 1024
ROWS_OF_ONE_REQUEST = 500
EXIT_ROWS_REFUSED = 1
ROWS_SHOWN = 20

_project = click.argument("project", type=click.UUID)
_request_id = click.option("--request-id", help="Repeat with the same one: what was accepted is not done again.")
_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
Row = tuple[int, Mapping[str, str]]
RowRefused = tuple[int, str]


@click.group()
def search() -> None:
    """Import, rename and remove searches."""


@search.command("import")
@_project
@_file
@click.option("--name", required=True, help="What the search is called.")
@click.option("--source", default="", help="Where its studies come from.")
@click.option("--id", "search_id", type=click.UUID, help="The search's id, to go on with an import.")
@_request_id
@json_option
@click.pass_context
def import_search(  # noqa: PLR0917 - the options of one command
    context: click.Context,
    project: UUID,
    file: Path,
    name: str,
    source: str,
    search_id: UUID | None,
    request_id: str | None,
) -> None:
    """Import the studies of FILE (CSV with a column title, and id where studies have one) as a new search.

    Other columns are kept with the study. Exit codes: 0 all rows, 1 some rows were refused.
    """
    from statlib.admin import edit_wire  # noqa: PLC0415

    identity = search_id or uuid5(project, f"search {name} {source}")
    refused: list[RowRefused] = []
    lines = list(_studies(_rows(file, {"title"}), identity, refused))
    pieces = list(_pieces(lines)) or [[]]
    inserted, present = 0, 0
    for number, piece in enumerate(pieces, 1):
        asked = edit_wire.SearchRequest(
            search=identity,
            name=name,
            source=source,
            studies=tuple(line for _, line in piece),
            complete=number == len(pieces),
        )
        own_id = f"{request_id}-{number}" if request_id else None
        done = ask(partial(_import, project, asked, own_id))
        inserted, present = inserted + done.inserted, present + done.present
        taken = set(done.elsewhere)
        refused += [(row, "StudyElsewhere") for row, line in piece if line.id in taken]
    value = {"search": str(identity), "inserted": inserted, "present": present}
    text = [f"search {identity}: {counted(inserted, 'study', 'studies')} imported, {present:,} present before"]
    _finish(context, value, text, refused)


@search.command("rename")
@_project
@click.argument("search", type=click.UUID)
@click.argument("name")
@_request_id
@json_option
def rename_search(project: UUID, search: UUID, name: str, request_id: str | None) -> None:
    """Call SEARCH by another NAME."""
    from statlib.review.edits import RenameSearch  # noqa: PLC0415

    edit = RenameSearch(search=search, name=name)
    done = ask(lambda client: client.edit(project, edit, request_id=request_id))
    answer(done.model_dump(mode="json"), f"done; project revision {done.revision}")


@search.command("remove")
@_project
@click.argument("search", type=click.UUID)
@_request_id
@json_option
def remove_search(project: UUID, search: UUID, request_id: str | None) -> None:
    """Delete SEARCH with its studies, and with all that reviewers did on them."""
    done = ask(lambda client: client.remove_search(project, search, request_id=request_id))
    answer(
        done.model_dump(mode="json"), f"search {search}: {counted(done.studies, 'study', 'studies')} deleted with it"
    )


@click.command()
@_project
@_file
@_request_id
@json_option
@click.pass_context
def decisions(context: click.Context, project: UUID, file: Path, request_id: str | None) -> None:
    """Apply the decisions of FILE: CSV with study, investigator and decision (Include, Exclude or Retract).

    Exit codes: 0 all rows, 1 some rows were refused.
    """
    refused: list[RowRefused] = []
    lines = list(_decisions(_rows(file, {"study", "investigator", "decision"}), refused))
    applied, unchanged = 0, 0
    for number, piece in enumerate(_pieces(lines), 1):
        rows = [line for _, line in piece]
        own_id = f"{request_id}-{number}" if request_id else None
        done = ask(partial(_apply, project, rows, own_id))
        applied, unchanged = applied + done.applied, unchanged + done.unchanged
        refused += [(piece[one.row - 1][0], one.reason) for one in done.refused]
    text = [f"{counted(applied, 'decision')} applied, {unchanged:,} stood already"]
    _finish(context, {"applied": applied, "unchanged": unchanged}, text, refused)


def _import(
    project: UUID, asked: edit_wire.SearchRequest, request_id: str | None, client: AdminClient
) -> edit_wire.Imported:
    return client.import_search(project, asked, request_id=request_id)


def _apply(
    project: UUID, rows: list[edit_wire.DecisionLine], request_id: str | None, client: AdminClient
) -> edit_wire.DecisionsApplied:
    return client.apply_decisions(project, rows, request_id=request_id)


def _finish(context: click.Context, value: dict[str, Any], text: list[str], refused: list[RowRefused]) -> None:
    refused.sort()
    text += [f"row {row} refused: {reason}" for row, reason in refused[:ROWS_SHOWN]]
    if len(refused) > ROWS_SHOWN:
        text.append(f"{len(refused) - ROWS_SHOWN:,} rows more refused (--json names them all)")
    answer(value | {"refused": [{"row": row, "reason": reason} for row, reason in refused]}, text)
    if refused:
        context.exit(EXIT_ROWS_REFUSED)


def _rows(file: Path, columns: set[str]) -> list[Row]:
    """Rows by their column names in lower case, numbered from 1. Refuses InputUnreadable."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text)
            known = {name: name.strip().lower() for name in reader.fieldnames or ()}
            if missing := sorted(columns.difference(known.values())):
                raise Refusal(SettingsReason.InputUnreadable, f"{file}: no column {', '.join(missing)}")
            return [
                (number, {known[name]: cell or "" for name, cell in row.items() if name in known})
                for number, row in enumerate(reader, 1)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refusal(SettingsReason.InputUnreadable, f"{file}: {type(error).__name__}") from error


def _studies(rows: Iterable[Row], search_id: UUID, refused: list[RowRefused]) -> Iterator[tuple[int, Any]]:
    from statlib.admin import edit_wire  # noqa: PLC0415

    for number, row in rows:
        fields = {_field(name): cell for name, cell in row.items() if name not in {"id", "title"} and cell}
        try:
            identity = UUID(row["id"]) if row.get("id") else uuid5(search_id, f"row {number}")
            yield number, edit_wire.StudyLine(id=identity, title=row["title"], fields=fields)
        except ValueError as error:
            refused.append((number, _said(error)))


def _decisions(rows: Iterable[Row], refused: list[RowRefused]) -> Iterator[tuple[int, Any]]:
    from statlib.admin import edit_wire  # noqa: PLC0415

    for number, row in rows:
        named = {name: row[name].strip() for name in ("study", "investigator", "decision")}
        try:
            yield number, edit_wire.DecisionLine.model_validate(named | {"decision": named["decision"].capitalize()})
        except ValueError as error:
            refused.append((number, _said(error)))


def _field(column: str) -> str:
    """``publication year`` is kept as ``PublicationYear``."""
    return "".join(word.capitalize() for word in re.split(r"[^0-9A-Za-z]+", column) if word)


def _said(error: ValueError) -> str:
    """The first thing that is wrong, in a few words."""
    from pydantic import ValidationError  # noqa: PLC0415

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _pieces(
    lines: Iterable[tuple[int, edit_wire.StudyLine | edit_wire.DecisionLine]],
) -> Iterator[list[tuple[int, Any]]]:
    """As many lines as one request may hold."""
    piece: list[tuple[int, Any]] = []
    held = 0
    for number, line in lines:
        size = len(json.dumps(line.model_dump(mode="json", by_alias=True))) + 2
        if piece and (held + size > BYTES_OF_ONE_REQUEST or len(piece) == ROWS_OF_ONE_REQUEST):
            yield piece
            piece, held = [], 0
        piece.append((number, line))
        held += size
    if piece:
        yield piece
