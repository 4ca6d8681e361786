"""Running a notebook's kernel, watched: what papermill executes, and what really happened to it.

papermill's own account is not believed. A cell counts as executed only when the kernel itself has answered
for it, and what the executed notebook says of each cell is corrected to that.

Invariant: when ``execute`` returns, no process of the kernel's group is left, however the run ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import IO, Any

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import ERROR_MARKER_TAG
from traitlets.config import Config

from statlib.kernel.refusals import Fault

STOP_GRACE_S = 20.0  # an interrupted cell has this long to cancel its operation and release its leases
KERNEL_START_TIMEOUT_S = 60

INJECTED_CELL_ID = "parameters-as-given"

_ENGINE = "statlib"


class Stop(StrEnum):
    """Why a run was ended from outside the notebook."""

    TERMINATED = "SIGTERM"
    INTERRUPTED = "SIGINT"
    TIMEOUT = "the time limit"


@dataclass(frozen=True, slots=True)
class CellDeclared:
    """A code cell that must execute. ``source_sha256`` is of its source as it was sent to the kernel."""

    cell_id: str
    index: int
    source_sha256: str


@dataclass(frozen=True, slots=True)
class CellExecuted:
    """A code cell that the kernel answered for. ``error_name`` is the exception's class; empty: it succeeded."""

    cell_id: str
    index: int
    source_sha256: str
    error_name: str = ""
    error_text: str = ""


@dataclass(slots=True)
class KernelRun:
    """What happened, as far as the kernel answered. ``fault`` is what papermill itself failed with, in one line."""

    declared: tuple[CellDeclared, ...] = ()
    executed: list[CellExecuted] = field(default_factory=list)
    stopped: Stop | None = None
    kernel_died: bool = False
    fault: str = ""

    @property
    def unexecuted(self) -> tuple[CellDeclared, ...]:
        done = {cell.cell_id for cell in self.executed}
        return tuple(cell for cell in self.declared if cell.cell_id not in done)

    @property
    def error(self) -> CellExecuted | None:
        return next((cell for cell in self.executed if cell.error_name), None)


@dataclass(frozen=True, slots=True)
class Observers:
    """Called in order, as the kernel runs: once with every cell, then once for each that has executed."""

    declared: Callable[[tuple[CellDeclared, ...]], None]
    executed: Callable[[CellExecuted], None]


def _sockets_in(folder: Path) -> Config:
    """Sockets of the kernel as files that only their owner can reach; a port could be reached by every user here."""
    return Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})


def execute(
    notebook: Path,
    output: Path,
    parameters: Mapping[str, object],
    *,
    environment: Mapping[str, str],
    observers: Observers,
    timeout_s: float | None = None,
    stop_grace_s: float = STOP_GRACE_S,
) -> KernelRun:
    """Execute ``notebook`` into ``output``, which is kept whatever happens.

    SIGTERM, SIGINT (when called in the main thread) and the end of ``timeout_s`` interrupt the running cell;
    what has not stopped ``stop_grace_s`` later, or at a second signal, is killed. Never raises for what the
    notebook did: the answer says it.
    """
    run = KernelRun()
    with contextlib.ExitStack() as stack:
        # A kernel's own error stream is chatter at its shutdown, and the only witness if it cannot start.
        said = stack.enter_context(tempfile.TemporaryFile())
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="statlib-kernel-")))
        watch = _Watch(run, environment, observers, grace_s=stop_grace_s, said=said)
        for context in (_quiet_logs(), _signals(watch), _deadline(watch, timeout_s)):
            stack.enter_context(context)
        try:
            papermill.execute_notebook(
                notebook,
                output,
                parameters=dict(parameters),
                engine_name=_ENGINE,
                progress_bar=False,
                start_timeout=KERNEL_START_TIMEOUT_S,
                watch=watch,
                config=_sockets_in(sockets),
                raise_on_iopub_timeout=False,
            )
        except DeadKernelError:
            run.kernel_died = True
        except (PapermillExecutionError, _Stopped):
            pass  # the cell's own answer, or the stop, is already on record
        except Exception as error:
            run.fault = f"{_one_line(error)} {watch.last_words()}".strip()
        finally:
            watch.end()
    _correct(notebook, output, run)
    return run


class _Stopped(Exception):
    """Ends the engine between two cells."""


class _Watch:
    """Holds on to the kernel's process group, and answers for which cells it executed."""

    def __init__(
        self,
        run: KernelRun,
        environment: Mapping[str, str],
        observers: Observers,
        *,
        grace_s: float,
        said: IO[bytes],
    ) -> None:
        self.run = run
        self.environment = {**os.environ, **environment}
        self.observers = observers
        self.grace_s = grace_s
        self.group: int | None = None
        self.said = said
        self._grace: threading.Timer | None = None

    def stop(self, reason: Stop) -> None:
        """Interrupt the running cell; at the second call, or when the grace ends, kill the kernel."""
        if self.run.stopped is not None:
            self._signal(signal.SIGKILL)
            return
        self.run.stopped = reason
        self._signal(signal.SIGINT)
        self._grace = threading.Timer(self.grace_s, self._signal, (signal.SIGKILL,))
        self._grace.daemon = True
        self._grace.start()

    def last_words(self) -> str:
        """The last line that the kernel itself wrote to its error stream; empty if it wrote none."""
        self.said.seek(0)
        *_, last = self.said.read().decode("utf-8", "replace").split("\n")[:-1] or [""]
        return last.strip()

    def end(self) -> None:
        """Nothing of the kernel's group survives; a process that a cell left behind is one of it."""
        if self._grace is not None:
            self._grace.cancel()
            self._grace.join()
        self._signal(signal.SIGKILL)
        self.group = None

    def _signal(self, number: signal.Signals) -> None:
        if self.group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group, number)

    def kernel_started(self, client: PapermillNotebookClient) -> None:
        self.group = client.km.provisioner.pgid

    def before_cell(self, **_: Any) -> None:
        if self.run.stopped is not None:
            raise _Stopped

    def after_cell(self, cell: Any, cell_index: int, execute_reply: Mapping[str, Any]) -> None:
        content = execute_reply["content"]
        failed = content["status"] != "ok"
        executed = CellExecuted(
            cell.id,
            cell_index,
            _sha256(cell.source),
            str(content.get("ename", content["status"])) if failed else "",
            str(content.get("evalue", "")) if failed else "",
        )
        self.run.executed.append(executed)
        self.observers.executed(executed)


class _Engine(NBClientEngine):  # type: ignore[misc]
    """papermill's own engine, with the watch's hooks on its client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, *, watch: _Watch, start_timeout: int, config: Config, **_: Any
    ) -> Any:
        client: PapermillNotebookClient = PapermillNotebookClient(
            nb_man,
            kernel_name=kernel_name,
            startup_timeout=start_timeout,
            log=logging.getLogger("papermill"),
            config=config,
            raise_on_iopub_timeout=False,
            on_notebook_start=lambda **_: watch.kernel_started(client),
            on_cell_execute=watch.before_cell,
            on_cell_executed=watch.after_cell,
        )
        _name_injected_cell(nb_man.nb)
        watch.run.declared = _declare(nb_man.nb)
        watch.observers.declared(watch.run.declared)
        return client.execute(env=watch.environment, stderr=watch.said)


papermill_engines.register(_ENGINE, _Engine)


def _name_injected_cell(notebook: Any) -> None:
    # papermill gives it a new id each time; a run that is resumed must find the cell that it executed before.
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = INJECTED_CELL_ID


def _declare(notebook: Any) -> tuple[CellDeclared, ...]:
    return tuple(
        CellDeclared(cell.id, index, _sha256(cell.source))
        for index, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and cell.source.strip()
    )


def _one_line(error: Exception) -> str:
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _sha256(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8")).hexdigest()


def _correct(source: Path, output: Path, run: KernelRun) -> None:
    """Make the executed notebook say of each cell what the kernel said, and nothing of this machine's folders."""
    if not output.is_file():
        raise Fault(f"papermill left no notebook: {run.fault or 'no reason given'}", remedy="Run `statlib doctor`.")
    notebook: Any = nbformat.read(output, as_version=4)  # type: ignore[no-untyped-call]
    # What papermill inserts above a cell that raised would move every cell after it from where it was executed.
    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKER_TAG not in cell.metadata.get("tags", [])]
    failed = {cell.cell_id for cell in run.executed if cell.error_name}
    done = {cell.cell_id for cell in run.executed}
    for cell in notebook.cells:
        if cell.cell_type == "code" and "papermill" in cell.metadata:
            status = "failed" if cell.id in failed else "completed" if cell.id in done else "pending"
            cell.metadata.papermill["status"] = status if cell.source.strip() else "completed"
    account = notebook.metadata.get("papermill", {})
    account.update(input_path=source.name, output_path=output.name)
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _signals(watch: _Watch) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reasons = {signal.SIGTERM: Stop.TERMINATED, signal.SIGINT: Stop.INTERRUPTED}

    def handle(number: int, _: FrameType | None) -> None:
        watch.stop(reasons[signal.Signals(number)])

    before = {number: signal.signal(number, handle) for number in reasons}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """While a run is being sealed there is nothing left to stop: a second of patience, and the report is whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _deadline(watch: _Watch, timeout_s: float | None) -> Iterator[None]:
    if timeout_s is None:
        yield
        return
    timer = threading.Timer(timeout_s, watch.stop, (Stop.TIMEOUT,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """What papermill would log is told once, in the report and in the one line of an error."""
    logger = logging.getLogger("papermill")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
