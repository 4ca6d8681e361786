"""What must be true of the repository as a whole, whatever a change is about. See CONTRIBUTING."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

import statlib
from statlib.cli.main import main as command_line
from statlib.kernel.refusals import Reason
from tools.coverage_floor import FLOOR_PERCENT, under_the_floor
from tools.reference import PAGES, all_reasons, stale_pages

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "statlib").rglob("*.py"))
NOTEBOOKS = sorted((*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("runbooks/*.ipynb")))
CELL_LINES_MAX = 10

# Put together from parts, so that this file does not hold what it looks for.
REGISTRIES = [f"{name}.{top}" for name, top in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "com"))]
MACHINE_PATHS = [f"/{folder}/" for folder in ("work/main", "work/shared", "tmp/v", "farm")]


def tracked(*patterns: str) -> list[Path]:
    """Files that git keeps or would keep, as text files go."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in cells(notebook) if cell["cell_type"] == "code"]


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return found


def source_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def syntax_of(notebook: Path) -> Iterator[ast.AST]:
    for cell in code_cells(notebook):
        yield from ast.walk(ast.parse(source_of(cell)))


def test_the_contracts_between_the_floors_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in declared["contracts"]}
    assert set(contracts) >= {"floors", "engine", "http", "notebooks"}
    assert contracts["floors"]["exhaustive"], "a new package must be put on a floor"
    assert contracts["engine"]["source_modules"] == ["statlib.statistics"]
    assert "fastapi" in contracts["http"]["forbidden_modules"]
    assert {"IPython", "papermill", "matplotlib"} <= set(contracts["notebooks"]["forbidden_modules"])
    floors = re.findall(r"\w+", " ".join(contracts["floors"]["layers"]))
    below_admin = {f"statlib.{name}" for name in floors[floors.index("evidence") :]}
    assert below_admin == set(contracts["http"]["source_modules"])
    assert below_admin | {"statlib.admin"} == set(contracts["notebooks"]["source_modules"])


@pytest.mark.parametrize("enum", all_reasons(), ids=lambda enum: enum.__name__)
def test_every_reason_tells_an_operator_what_to_do(enum: type[Reason]) -> None:
    assert enum.__doc__
    for reason in enum:
        assert re.fullmatch(r"([A-Z][a-z0-9]*)+", reason.name), f"{reason.name} is stored and sent: PascalCase"
        assert len(reason.remedy.split()) > 2, reason.name
        assert reason.remedy.endswith((".", "`")), f"{reason.name}: a remedy is a sentence"
        commands = " ".join(re.findall(r"`([^`]*)`", reason.remedy))
        assert not re.search(r"\b[A-Z]{2,}\b", commands), f"{reason.name}: a command with a gap; see Refusal's remedy"


def test_a_reason_has_one_name_in_the_whole_library() -> None:
    names = Counter(reason.name for enum in all_reasons() for reason in enum)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("module", sorted(ROOT.glob("statlib/**/bounds.py")), ids=named)
def test_every_bound_says_where_it_comes_from(module: Path) -> None:
    with tokenize.open(module) as lines:
        commented = {t.start[0] for t in tokenize.generate_tokens(lines.readline) if t.type == tokenize.COMMENT}
    bounds = [node for node in ast.parse(module.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    assert bounds
    bare = [f"{named(module)}:{b.lineno}" for b in bounds if not commented & {b.lineno, b.end_lineno, b.lineno - 1}]
    assert bare == []


def test_every_public_name_is_listed_found_and_described() -> None:
    described = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert dir(statlib) == statlib.__all__ == sorted(statlib.__all__)
    for name in statlib.__all__:
        assert getattr(statlib, name) is not None
        assert f"`{name}`" in described, f"ARCHITECTURE.md does not name statlib.{name}"
    with pytest.raises(AttributeError, match="no attribute 'hots'"):
        statlib.hots  # noqa: B018


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_a_module_says_what_it_is_for_and_is_named_after_it(module: Path) -> None:
    assert module.stem not in {"utils", "util", "helpers", "common", "manager", "misc"}
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))), f"{named(module)} has no docstring"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_a_notebook_is_kept_without_what_running_it_left(notebook: Path) -> None:
    for cell in code_cells(notebook):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_a_notebook_s_cells_are_short_and_hold_no_logic(notebook: Path) -> None:
    for cell in code_cells(notebook):
        lines = [line for line in source_of(cell).splitlines() if line.strip()]
        is_parameters = "parameters" in cell["metadata"].get("tags", [])  # one line each, however many there are
        assert is_parameters or len(lines) <= CELL_LINES_MAX, lines[0]
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.comprehension)
    assert [node for node in syntax_of(notebook) if isinstance(node, logic)] == []


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("notebooks/*.ipynb")), ids=named)
def test_prose_comes_before_every_cell_of_a_teaching_notebook(notebook: Path) -> None:
    kinds = [cell["cell_type"] for cell in cells(notebook)]
    assert kinds[0] == "markdown"
    assert ("code", "code") not in set(pairwise(kinds))


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("runbooks/*.ipynb")), ids=named)
def test_a_runbook_s_notebook_imports_the_runbooks_alone(notebook: Path) -> None:
    imported = {node.module for node in syntax_of(notebook) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in syntax_of(notebook) if isinstance(node, ast.Import) for alias in node.names}
    assert imported
    assert [name for name in imported if not str(name).startswith("statlib.runbook.")] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_code_says(page: str) -> None:
    assert page not in stale_pages(), "run: make reference"


@pytest.mark.parametrize("page", tracked("*.md"), ids=named)
def test_a_page_links_to_what_is_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", [p for p in tracked("*.md") if "reference" not in p.parts], ids=named)
def test_a_page_names_commands_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = [*re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL), *re.findall(r"`([^`\n]+)`", text)]
    for words in re.findall(r"(?:^|[\s/])statlib((?: [a-z][a-z-]*)+)", "\n".join(code), re.MULTILINE):
        assert_command(words.split())


def assert_command(words: list[str]) -> None:
    command: click.Command = command_line
    for word in words:
        if not isinstance(command, click.Group):
            return  # an argument
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"there is no command `statlib {' '.join(words)}`"
        command = found


def test_nothing_kept_names_a_registry_or_a_path_of_one_machine() -> None:
    forbidden = re.compile("|".join(map(re.escape, (*REGISTRIES, *MACHINE_PATHS))), re.IGNORECASE)
    found = [
        f"{named(path)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


def dependencies(*, leaving_out: frozenset[str] = frozenset()) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: items for extra, items in project["optional-dependencies"].items() if extra not in leaving_out}
    asked = [*project["dependencies"], *(item for items in extras.values() for item in items)]
    return {re.split(r"[\[<>=;]", one, maxsplit=1)[0] for one in asked} - {"statlib"}


def test_every_dependency_is_pinned_to_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.!+]+( ; .+)?", pin)] == []
    pinned = {re.split("[ =]", pin, maxsplit=1)[0] for pin in pins}
    assert dependencies() - pinned == set(), "run: make pins"


def test_the_architecture_says_why_there_is_each_dependency() -> None:
    rows = "\n".join(re.findall(r"^\|.*\|.*\|$", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert [name for name in sorted(dependencies(leaving_out=frozenset({"dev"}))) if name not in rows] == []


def test_no_test_is_skipped_but_those_on_reviews_that_are_not_there() -> None:
    skipping = re.compile(r"pytest\.(skip|xfail|importorskip)\(|mark\.(skip|xfail)")
    others = [p for p in tracked("tests/*.py") if p.name not in {"real_data.py", Path(__file__).name}]
    assert [named(path) for path in others if skipping.search(path.read_text(encoding="utf-8"))] == []


def test_a_module_under_the_floor_of_coverage_is_named(tmp_path: Path) -> None:
    report = tmp_path / "coverage.json"
    covered = {"a.py": 100.0, "b.py": FLOOR_PERCENT, "c.py": FLOOR_PERCENT - 0.1, "d.py": 3.0}
    files = {name: {"summary": {"percent_covered": percent}} for name, percent in covered.items()}
    report.write_text(json.dumps({"files": files}), encoding="utf-8")
    assert [name for _, name in under_the_floor(report)] == ["d.py", "c.py"]
