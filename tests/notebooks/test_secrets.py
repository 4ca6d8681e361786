"""Whatever a cell shows, a step refuses or a traceback quotes: no known secret reaches any byte of the archive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statlib.evidence.verify import verify
from statlib.kernel.settings import load_settings
from statlib.runbook.archive import find_runs
from statlib.runbook.catalogue import Runbook
from statlib.runbook.execution import run_headless
from statlib.runbook.parameters import parse_parameters
from statlib.runbook.redaction import MASK
from tests.notebooks.conftest import PREFLIGHT_CELL, WriteNotebook

TOKEN = 'op-T0ken"<&with>marks'
PASSWORD = "p@ss/w0rd-of-the-database"
ADDRESS = "mongodb://reader:p%40ss%2Fw0rd-of-the-database@127.0.0.1:1/?replicaSet=rs0"
QUOTE = (
    "import os\nfrom statlib.kernel.settings import load_settings\nsettings = load_settings()\n"
    "print(settings.admin.token.get_secret_value())\n"
    "run.note('the token is ' + settings.admin.token.get_secret_value())\n"
    "run.captures.write('leak', {'uri': settings.mongo.uri.get_secret_value()})\n"
    "from urllib.parse import unquote, urlsplit\n"
    "password = unquote(urlsplit(settings.mongo.uri.get_secret_value()).password)\n"
    "raise RuntimeError('cannot reach ' + settings.mongo.uri.get_secret_value() + ' with ' + password)"
)


def test_no_secret_stands_in_any_byte_of_an_archived_run(
    tiny: Runbook, write_notebook: WriteNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATLIB__ADMIN__TOKEN", TOKEN)
    monkeypatch.setenv("STATLIB__MONGO__URI", ADDRESS)
    monkeypatch.setenv("STATLIB__EVIDENCE__ANCHOR", "off")  # there is no deployment at that address
    write_notebook(PREFLIGHT_CELL, QUOTE, "run.close()")
    given = {"effects": str(tmp_path / "effects.txt"), "apply": True, "confirm": "review-tests"}
    parameters = parse_parameters(tiny.parameters, given)
    ended = run_headless(tiny, parameters, settings=load_settings(), archive=tmp_path / "reports")

    assert ended.exit_code == 6
    (folder,) = find_runs(tmp_path / "reports")
    files = [path for path in folder.final.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".ipynb", ".html", ".json", ".jsonl"}
    forms = (TOKEN, json.dumps(TOKEN)[1:-1], "op-T0ken", PASSWORD, "p%40ss", "w0rd-of-the-database")
    found = [(path.name, form) for path in files for form in forms if form.encode() in path.read_bytes()]
    assert found == []
    assert MASK in folder.notebook.read_text(encoding="utf-8")
    assert MASK in folder.journal.read_text(encoding="utf-8")
    assert [str(finding) for finding in verify(folder.final).findings] == []
