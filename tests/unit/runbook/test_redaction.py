"""A secret is masked in every form that text takes on its way into a run's folder, and what is no secret is left."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import nbformat
import pytest
from pydantic import SecretStr

from statlib.admin.tokens import OPERATOR_TOKEN_FILE
from statlib.evidence.entries import EntryKind
from statlib.kernel.settings import AdminSettings, MongoSettings, Settings
from statlib.runbook.redaction import MASK, open_journal, redact_notebook, redaction_for

TOKEN = 'op T0ken"<&é>/marks'
PASSWORD = "p@ss/w0rd"
IN_ADDRESS = "p%40ss%2fw0rd"  # as somebody wrote it, who is no library
ADDRESS = f"mongodb://reader:{IN_ADDRESS}@db.example:27017/?replicaSet=rs0"
OPERATORS = "operators-own-token"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / OPERATOR_TOKEN_FILE).write_text(f"{OPERATORS}\n", encoding="ascii")
    return Settings(
        data_dir=tmp_path, admin=AdminSettings(token=SecretStr(TOKEN)), mongo=MongoSettings(uri=SecretStr(ADDRESS))
    )


def as_json(text: str) -> str:
    return json.dumps(text)


def as_json_in_utf_8(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def as_path(text: str) -> str:
    return quote(text, safe="")


@pytest.mark.parametrize("form", [str, as_json, as_json_in_utf_8, html.escape, as_path, quote_plus])
def test_a_secret_is_masked_in_every_form(form: Callable[[str], str], settings: Settings) -> None:
    shown = redaction_for(settings).text(f"before {form(TOKEN)} after")
    assert shown.replace('"', "") == f"before {MASK} after"


@pytest.mark.parametrize(
    "secret",
    [ADDRESS, IN_ADDRESS, PASSWORD, OPERATORS],
    ids=["the address", "its password as it stands there", "its password as it is typed", "the folder's own token"],
)
def test_what_is_secret_only_in_part_or_in_a_file_is_known_too(secret: str, settings: Settings) -> None:
    assert redaction_for(settings).text(f"[{secret}]") == f"[{MASK}]"


def test_the_longest_form_goes_first_so_that_no_part_of_it_is_left(settings: Settings) -> None:
    longer = settings.model_copy(update={"admin": AdminSettings(token=SecretStr(f"{PASSWORD}-and-more"))})
    assert redaction_for(longer).text(f"{PASSWORD}-and-more") == MASK


def test_what_is_too_short_to_be_told_from_words_is_left(settings: Settings) -> None:
    short = settings.model_copy(update={"admin": AdminSettings(token=SecretStr("gates"))})
    assert redaction_for(short).text("all gates held") == "all gates held"


def test_values_are_masked_at_any_depth_and_in_their_keys(settings: Settings) -> None:
    value = {TOKEN: [1, {"a": TOKEN}, (TOKEN, None)], "n": 2.5}
    assert redaction_for(settings).value(value) == {MASK: [1, {"a": MASK}, [MASK, None]], "n": 2.5}


def test_a_run_s_journal_never_holds_one(settings: Settings, tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.jsonl", settings) as journal:
        journal.append(EntryKind.Note, text=f"the token is {TOKEN}")
    written = (tmp_path / "journal.jsonl").read_text(encoding="utf-8")
    assert "T0ken" not in written
    assert MASK in written


@pytest.mark.parametrize("place", ["outputs", "metadata of a cell", "metadata of the notebook"])
def test_a_notebook_is_masked_wherever_running_it_leaves_text_and_its_sources_stay(
    place: str, settings: Settings, tmp_path: Path
) -> None:
    notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cell: Any = nbformat.v4.new_code_cell(f"print({PASSWORD!r})")  # type: ignore[no-untyped-call]
    notebook.cells = [cell]
    if place == "outputs":
        cell.outputs = [nbformat.v4.new_output("stream", text=TOKEN)]  # type: ignore[no-untyped-call]
    else:
        (cell if "cell" in place else notebook).metadata["papermill"] = {"exception": TOKEN}
    path = tmp_path / "notebook.ipynb"
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    redact_notebook(path, redaction_for(settings))
    kept = path.read_text(encoding="utf-8")
    assert "T0ken" not in kept
    assert MASK in kept
    assert nbformat.read(path, as_version=4).cells[0].source == f"print({PASSWORD!r})"  # type: ignore[no-untyped-call]


def test_a_notebook_without_a_secret_is_not_written_anew(settings: Settings, tmp_path: Path) -> None:
    notebook: Any = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    path = tmp_path / "notebook.ipynb"
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    before = path.stat().st_mtime_ns
    redact_notebook(path, redaction_for(settings))
    assert path.stat().st_mtime_ns == before
