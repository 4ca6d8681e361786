"""Which format a folder holds, by the header lines of its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.review.loading.annotation.export import AnnotationExport
from statlib.review.loading.labels import SEED_DEFAULT, Labels
from statlib.review.loading.rayyan import RayyanLog
from statlib.review.loading.review import Loader, LoadReason
from statlib.review.loading.spreadsheet import Spreadsheet
from statlib.review.loading.syrf import SyrfScreening
from statlib.review.loading.tables import headers
from statlib.review.loading.two_stage import TwoStageReview

HEADER_NAMES_SHOWN = 8
FILES_SHOWN = 5


def loaders(name: str | None = None, *, review: str | None = None, seed: int | None = None) -> tuple[Loader, ...]:
    """Every format that is read from a folder. ``name`` overrides the project's name, ``review`` picks one of several
    reviews, ``seed`` is for what a format leaves to simulation."""
    seeded = SEED_DEFAULT if seed is None else seed
    return (
        RayyanLog(name=name),
        SyrfScreening(name=name),
        Spreadsheet(name=name),
        TwoStageReview(name=name, stage=review),
        AnnotationExport(name=name),
        Labels(name=name, review=review, seed=seeded),
    )


def detect(folder: Path, *, name: str | None = None, review: str | None = None, seed: int | None = None) -> Loader:
    """The one loader whose format ``folder`` holds.

    Refuses FormatUnknown and FormatAmbiguous, saying what was found and what was looked for, ExportUnreadable for what
    is not a readable folder, and ReviewNotNamed where ``review`` is to pick from a format that holds but one.
    """
    offered = loaders(name, review=review, seed=seed)
    fitting = [loader for loader in offered if loader.recognises(folder)]
    if len(fitting) == 1:
        if review is not None and not isinstance(fitting[0], Labels | TwoStageReview):
            raise Refusal(LoadReason.ReviewNotNamed, f"{folder} ({fitting[0].format}) is one review, not {review!r}")
        return fitting[0]
    looked_for = "; ".join(f"{loader.format}: {loader.expects}" for loader in offered)
    if fitting:
        formats = " and ".join(loader.format for loader in fitting)
        raise Refusal(LoadReason.FormatAmbiguous, f"{folder} fits {formats} (looked for {looked_for})")
    raise Refusal(LoadReason.FormatUnknown, f"{folder} holds {_found(folder)} (looked for {looked_for})")


def _found(folder: Path) -> str:
    found = [f"{path.name} with {_shown(header)}" for path, header in headers(folder).items()]
    more = f" and {len(found) - FILES_SHOWN} more" if len(found) > FILES_SHOWN else ""
    return ", ".join(found[:FILES_SHOWN]) + more if found else "no CSV file"


def _shown(header: Sequence[str]) -> str:
    if not header:
        return "no header line"
    more = ", …" if len(header) > HEADER_NAMES_SHOWN else ""
    return f"columns {', '.join(header[:HEADER_NAMES_SHOWN])}{more}"
