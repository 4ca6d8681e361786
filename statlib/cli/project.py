"""``statlib project``: edits of a review, each one call of the boundary's client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

import click
from pydantic import ValidationError

from statlib.cli.operate import ask
from statlib.cli.output import answer, counted, json_option
from statlib.cli.project_files import decisions, search
from statlib.kernel.refusals import Refusal
from statlib.review.documents import AnswerKind, StageKind

if TYPE_CHECKING:
    from statlib.admin import edit_wire
    from statlib.review.edits import Edit

_Command = TypeVar("_Command", bound=Callable[..., Any])
_project = click.argument("project", type=click.UUID)
_request_id = click.option(
    "--request-id", help="Repeat with the same one: an accepted request returns its first outcome and does nothing."
)
_options = click.option("--option", "options", multiple=True, help="One option of a choice; give each in its order.")
SCOPES_SHOWN = 10


def _edit(command: _Command) -> _Command:
    """What every edit takes beside its own arguments."""
    return _project(_request_id(json_option(command)))


@click.group()
def project() -> None:
    """Edit a review; what the edit outdates is served from the source until it is backfilled."""


@project.command()
@_edit
@click.argument("name")
def rename(project: UUID, name: str, request_id: str | None) -> None:
    """Give PROJECT another NAME."""
    _carry_out(project, request_id, "RenameProject", name=name)


@project.command()
@_edit
@click.option("--min-screenings", type=click.IntRange(1, 1_000), required=True, help="Screenings that a study needs.")
@click.option("--agreement-ratio", type=float, required=True, help="Share of them that must agree, 0.5 < ratio ≤ 1.")
def threshold(project: UUID, min_screenings: int, agreement_ratio: float, request_id: str | None) -> None:
    """Set when screenings of a study suffice, and recalculate every study's inclusion.

    Readers are refused (503) until it has ended; saves go on. Repeated, it recalculates and outdates nothing.
    """
    edit = _make("SetThreshold", min_screenings=min_screenings, agreement_ratio=agreement_ratio)
    _rewritten(ask(lambda client: client.set_threshold(project, edit, request_id=request_id)))


@project.group()
def stage() -> None:
    """Add, rename, retarget and remove stages."""


@stage.command("add")
@_edit
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in StageKind]),
    default="Annotation",
    show_default=True,
    help="What reviewers do there.",
)
@click.option("--target", type=click.IntRange(1, 1_000), default=2, show_default=True, help="Sessions a study needs.")
@click.option("--id", "stage_id", type=click.UUID, help="The stage's id; a new one if it is not given.")
def add_stage(project: UUID, name: str, kind: str, target: int, stage_id: UUID | None, request_id: str | None) -> None:  # noqa: PLR0917 - the options of one command
    """Add a stage called NAME."""
    new = stage_id or uuid4()
    _carry_out(project, request_id, "AddStage", new=new, stage=new, name=name, stage_kind=kind, target=target)


@stage.command("rename")
@_edit
@click.argument("stage", type=click.UUID)
@click.argument("name")
def rename_stage(project: UUID, stage: UUID, name: str, request_id: str | None) -> None:
    """Call STAGE by another NAME."""
    _carry_out(project, request_id, "RenameStage", stage=stage, name=name)


@stage.command("target")
@_edit
@click.argument("stage", type=click.UUID)
@click.argument("target", type=click.IntRange(1, 1_000))
def set_target(project: UUID, stage: UUID, target: int, request_id: str | None) -> None:
    """Set how many sessions a study needs on STAGE."""
    _carry_out(project, request_id, "SetTarget", stage=stage, target=target)


@stage.command("remove")
@_edit
@click.argument("stage", type=click.UUID)
def remove_stage(project: UUID, stage: UUID, request_id: str | None) -> None:
    """Remove STAGE with its questions, if nobody has worked on it."""
    _carry_out(project, request_id, "RemoveStage", stage=stage)


@project.group()
def member() -> None:
    """Let investigators join and leave."""


@member.command()
@_edit
@click.argument("investigator", type=click.UUID)
@click.option("--name", default="", help="What they are called.")
def join(project: UUID, investigator: UUID, name: str, request_id: str | None) -> None:
    """Make INVESTIGATOR a member of PROJECT."""
    _carry_out(project, request_id, "Join", investigator=investigator, name=name)


@member.command()
@_edit
@click.argument("investigator", type=click.UUID)
def leave(project: UUID, investigator: UUID, request_id: str | None) -> None:
    """End INVESTIGATOR's membership. What they decided and annotated stays, and counts."""
    _carry_out(project, request_id, "Leave", investigator=investigator)


@project.group()
def question() -> None:
    """Add, reword and remove questions, and change the options of a choice."""


@question.command("add")
@_edit
@click.argument("stage", type=click.UUID)
@click.argument("text")
@click.option(
    "--answer",
    "kind",
    type=click.Choice([kind.value for kind in AnswerKind]),
    required=True,
    help="What the question asks for.",
)
@_options
@click.option("--id", "question_id", type=click.UUID, help="The question's id; a new one if it is not given.")
def add_question(  # noqa: PLR0917 - the options of one command
    project: UUID,
    stage: UUID,
    text: str,
    kind: str,
    options: tuple[str, ...],
    question_id: UUID | None,
    request_id: str | None,
) -> None:
    """Ask TEXT on STAGE."""
    new = question_id or uuid4()
    fields = {"question": new, "stage": stage, "text": text, "answer": kind, "options": options}
    _carry_out(project, request_id, "AddQuestion", new=new, **fields)


@question.command()
@_edit
@click.argument("question", type=click.UUID)
@click.argument("text")
def reword(project: UUID, question: UUID, text: str, request_id: str | None) -> None:
    """Put QUESTION in other words; its answers stay."""
    _carry_out(project, request_id, "RewordQuestion", question=question, text=text)


@question.command("remove")
@_edit
@click.argument("question", type=click.UUID)
def remove_question(project: UUID, question: UUID, request_id: str | None) -> None:
    """Remove QUESTION, if nobody has answered it."""
    _carry_out(project, request_id, "RemoveQuestion", question=question)


@question.command("options")
@_edit
@click.argument("question", type=click.UUID)
@_options
@click.option("--rename", "renamed", nargs=2, multiple=True, metavar="OLD NEW", help="Answers are renamed with it.")
def set_options(
    project: UUID,
    question: UUID,
    options: tuple[str, ...],
    renamed: tuple[tuple[str, str], ...],
    request_id: str | None,
) -> None:
    """Set all options of QUESTION, the new names of renamed ones among them.

    Readers are refused (503) until stored answers are renamed; saves go on.
    """
    pairs = tuple({"old": old, "new": new} for old, new in renamed)
    edit = _make("SetOptions", question=question, options=options, renamed=pairs)
    _rewritten(ask(lambda client: client.set_options(project, edit, request_id=request_id)))


project.add_command(search)
project.add_command(decisions)


def _carry_out(project: UUID, request_id: str | None, kind: str, new: UUID | None = None, **fields: Any) -> None:
    """One edit of one transaction. ``new``: the id of what it adds."""
    edit = _make(kind, **fields)
    done = ask(lambda client: client.edit(project, edit, request_id=request_id))
    value = done.model_dump(mode="json") | ({"id": str(new)} if new else {})
    answer(value, [*([f"id {new}"] if new else []), *_edited(done)])


def _make(kind: str, **fields: Any) -> Any:
    from statlib.admin.reasons import AdminReason  # noqa: PLC0415
    from statlib.review import edits  # noqa: PLC0415

    model: type[Edit] = getattr(edits, kind)
    try:
        return model(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        named = ".".join(map(str, first["loc"]))
        raise Refusal(AdminReason.RequestInvalid, f"{named}: {first['msg']}") from error


def _rewritten(done: edit_wire.Rewritten) -> None:
    lines = [f"{counted(done.visited, 'study', 'studies')} visited, {done.changed:,} changed"]
    lines += _edited(done.edited) if done.edited else ["completed what an interrupted request had begun"]
    answer(done.model_dump(mode="json"), lines)


def _edited(done: edit_wire.Edited) -> list[str]:
    if not done.changed:
        return ["nothing to change: it was so already"]
    lines = [f"done; project revision {done.revision}"]
    lines += [f"outdated: {family}" for family in done.families]
    lines += [f"outdated: {one.family} {one.scope}" for one in done.scopes[:SCOPES_SHOWN]]
    if len(done.scopes) > SCOPES_SHOWN:
        lines.append(f"outdated: {len(done.scopes) - SCOPES_SHOWN} scopes more (--json names them all)")
    return lines
