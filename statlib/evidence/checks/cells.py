"""The notebook against the journal: each code cell that it declares was executed, with the source that it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from statlib.evidence.bundle import Bundle
from statlib.evidence.entries import CellExecutedData, Entry, EntryKind
from statlib.evidence.findings import Check, Finding
from statlib.evidence.json_values import decode, sha256_of
from statlib.evidence.verdicts import Verdict


class _Output(BaseModel):
    model_config = ConfigDict(extra="allow")
    output_type: str


class _Cell(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str = Field(min_length=1)
    cell_type: str
    source: str | list[str]
    outputs: list[_Output] = []

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else "".join(self.source)


class _Notebook(BaseModel):
    model_config = ConfigDict(extra="allow")
    cells: list[_Cell]
    metadata: dict[str, JsonValue] = {}


def check_cells(bundle: Bundle, entries: Sequence[Entry], declared: Verdict | None) -> Iterator[Finding]:
    """Unexecuted cells are accepted only where the run's own closing verdict says that gates did not decide it.

    A blank cell is not declared: no kernel executes one. Of a cell that ran more than once the last run counts.
    """
    name = bundle.name_of(bundle.notebook)
    try:
        notebook = _Notebook.model_validate(decode(bundle.notebook.read_bytes()))
    except OSError as error:
        yield Finding(Check.CELLS, name, f"cannot be read: {error.strerror}")
        return
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        yield Finding(Check.CELLS, name, f"is no notebook: {'.'.join(map(str, first['loc']))}: {first['msg']}")
        return
    except ValueError as error:
        yield Finding(Check.CELLS, name, f"is not JSON: {error}")
        return
    executed = {
        data.cell: data
        for data in (CellExecutedData.model_validate(e.data) for e in entries if e.kind is EntryKind.CellExecuted)
    }
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code" and cell.text.strip()}
    for cell_id, times in Counter(cell.id for cell in notebook.cells).items():
        if times > 1:
            yield Finding(Check.CELLS, f"{name} cell {cell_id}", f"is there {times} times")
    if not cells:
        yield Finding(Check.CELLS, name, "declares no code cell")
    for index, cell in enumerate(notebook.cells):
        if cell.id in cells:
            yield from _check_cell(f"{name} cell {cell.id}", index, cell, executed.get(cell.id), declared)
    for cell_id in sorted(executed.keys() - cells.keys()):
        yield Finding(Check.CELLS, f"{name} cell {cell_id}", "was executed and is not in the notebook")


def _check_cell(
    subject: str, index: int, cell: _Cell, executed: CellExecutedData | None, declared: Verdict | None
) -> Iterator[Finding]:
    by_gates = declared is None or declared.by_gates
    if executed is None:
        if by_gates:
            yield Finding(Check.CELLS, subject, "was not executed")
        return
    if executed.sha256 != sha256_of(cell.text.encode("utf-8", "surrogatepass")):
        yield Finding(Check.CELLS, subject, "was executed with another source than the notebook shows")
    if executed.index != index:
        yield Finding(Check.CELLS, subject, f"was executed as cell {executed.index} and stands at {index}")
    if declared is not None and declared.passing and any(output.output_type == "error" for output in cell.outputs):
        yield Finding(Check.CELLS, subject, f"ended in an error, in a run whose verdict is {declared}")
