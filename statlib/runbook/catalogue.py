"""The catalogue: which runbooks this installation has, and where their notebooks are.

A runbook is a module that defines ``RUNBOOK``. Those in ``statlib.runbook.books`` are found by themselves;
an application adds its own through entry points of the group ``statlib.runbooks`` (``name = package.module``).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from statlib.kernel.refusals import Fault, Refusal
from statlib.runbook import books
from statlib.runbook.parameters import RunbookParameters
from statlib.runbook.reasons import RunbookReason

if TYPE_CHECKING:  # rendering needs libraries that listing the runbooks does not
    from statlib.runbook.findings import Derive

ENTRY_POINT_GROUP = "statlib.runbooks"
NOTEBOOK_FOLDER_VARIABLE = "STATLIB_RUNBOOKS"


@dataclass(frozen=True, slots=True)
class Runbook:
    """What is known of a runbook without opening its notebook.

    ``summary`` is one sentence. ``rollback`` names the runbook that undoes this one; None: it leaves nothing to
    undo. ``confirms`` names the parameter whose value an operator repeats to act; None: the deployment's name.
    ``offline``: it asks nothing of a deployment, so one that does not answer is no reason not to begin.
    ``findings`` derives what the report says beyond gates. ``notebook`` is the notebook's file; by default
    ``NAME.ipynb`` in the folder of runbooks.
    """

    name: str
    summary: str
    parameters: type[RunbookParameters]
    rollback: str | None = None
    confirms: str | None = None
    offline: bool = False
    findings: Derive | None = None
    notebook: Path | None = None

    @property
    def path(self) -> Path:
        """The notebook's file. Refuses RunbookUnknown if there is none."""
        path = self.notebook or notebook_folder() / f"{self.name}.ipynb"
        if not path.is_file():
            raise Refusal(
                RunbookReason.RunbookUnknown,
                f"the notebook of {self.name} is not at {path}; {NOTEBOOK_FOLDER_VARIABLE} names the folder",
            )
        return path


def notebook_folder() -> Path:
    """Where the notebooks are: the folder that STATLIB_RUNBOOKS names, else ``runbooks`` here, else beside the code."""
    if named := os.environ.get(NOTEBOOK_FOLDER_VARIABLE):
        return Path(named)
    here = Path("runbooks")
    return here if here.is_dir() else Path(__file__).resolve().parents[2] / "runbooks"


def find_runbook(name: str) -> Runbook:
    """The runbook of that name. Refuses RunbookUnknown, naming those there are."""
    modules = _shipped()
    if name not in modules:  # asking every installed package for its entry points takes longer than all else here
        modules = _modules()
    if name not in modules:
        known = ", ".join(sorted(modules)) or "none"
        raise Refusal(RunbookReason.RunbookUnknown, f"no runbook {name!r}; there are: {known}")
    return _load(name, modules[name])


def all_runbooks() -> tuple[Runbook, ...]:
    """Every runbook of this installation, by name."""
    return tuple(_load(name, module) for name, module in sorted(_modules().items()))


def _modules() -> Mapping[str, str]:
    return {**{point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}, **_shipped()}


def _shipped() -> Mapping[str, str]:
    return {found.name: f"{books.__name__}.{found.name}" for found in pkgutil.iter_modules(books.__path__)}


def _load(name: str, module_name: str) -> Runbook:
    module: ModuleType = importlib.import_module(module_name)
    runbook = getattr(module, "RUNBOOK", None)
    if not isinstance(runbook, Runbook) or runbook.name != name:
        raise Fault(
            f"{module_name} does not define the runbook {name}",
            remedy="Let the module define RUNBOOK = Runbook(name=…) under its own name.",
        )
    return runbook
