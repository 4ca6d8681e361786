"""ASReview and SYNERGY labels: one final label per record, and nobody on record who gave it.

Records are known by their row, because ids are blank or occur twice in real exports. Who decided is made up: two
simulated reviewers and an arbiter (``error_model``), which the provenance says. The label itself stays on the study as
recorded (``SourceLabel``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statlib.kernel.refusals import Refusal
from statlib.review.documents import AgreementThreshold, Provenance
from statlib.review.loading.error_model import ErrorModel, simulated
from statlib.review.loading.recording import STARTED_AT, THRESHOLD_DEFAULT, Recorder, made_up_time
from statlib.review.loading.review import LoadedReview, LoadReason, Naming
from statlib.review.loading.tables import Row, Table, headers, only, others, read_table
from statlib.review.screening import Decision

FORMAT = "labels"
SEED_DEFAULT = 20_240_108
LABEL_COLUMNS = ("label_included", "asreview_label", "included")
REVIEW, ROW = "review", "row"
MEANINGS: Mapping[str, bool | None] = {
    "1": True,
    "1.0": True,
    "0": False,
    "0.0": False,
    "": None,  # not labelled yet
    "-1": None,
}
REVIEWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Labels:
    """Loader of a folder with one file of labels, which may hold several reviews: then each is a project of its own.

    ``review`` names one of them; ``seed`` is the error model's.
    """

    name: str | None = None
    review: str | None = None
    seed: int = SEED_DEFAULT
    threshold: AgreementThreshold = THRESHOLD_DEFAULT

    @property
    def format(self) -> str:
        return "ASReview or SYNERGY labels"

    @property
    def expects(self) -> str:
        return (
            f"one file with a column {' or '.join(LABEL_COLUMNS)}, and for several reviews columns {REVIEW} and {ROW}"
        )

    def recognises(self, folder: Path) -> bool:
        return any(_label_column(header) for header in headers(folder).values())

    def load(self, folder: Path) -> LoadedReview:
        """The one review that the file holds, or that ``review`` names. Refuses ReviewNotNamed if there are several,
        or none of that name; else as ``load_all``."""
        table, reviews = self._read(folder)
        wanted = [name for name in reviews if self.review in (None, name)]
        if len(wanted) != 1:
            held = ", ".join([*list(reviews)[:REVIEWS_SHOWN], *(["…"] if len(reviews) > REVIEWS_SHOWN else [])])
            raise Refusal(LoadReason.ReviewNotNamed, f"{table.name} holds {len(reviews):,} reviews: {held}")
        return self._loaded(folder, table, wanted[0], reviews[wanted[0]])

    def load_all(self, folder: Path) -> tuple[LoadedReview, ...]:
        """Every review of the file, in file order.

        Refuses FormatUnknown and FormatAmbiguous unless exactly one file fits, ExportUnreadable for one that cannot
        be read. Rows without a readable label are reported with the first review.
        """
        if self.review is not None:
            return (self.load(folder),)
        table, reviews = self._read(folder)
        loaded = [self._loaded(folder, table, name, rows) for name, rows in reviews.items()]
        return (loaded[0], *(replace(review, problems=()) for review in loaded[1:]))

    def _read(self, folder: Path) -> tuple[Table, dict[str, list[Row]]]:
        """The file, and its well-formed rows by review; a file without a review column is one review, named ''."""
        fitting = [path for path, header in headers(folder).items() if _label_column(header)]
        table = read_table(only(folder, "file of labels", fitting, self.expects))
        column = _label_column(table.header)
        reviews: dict[str, list[Row]] = {}
        keys: dict[tuple[str, str], int] = {}
        for row in table.rows():
            review, key = row.get(REVIEW), _key(row)
            if REVIEW in row.values and not review:
                table.report(row.number, f"{REVIEW} is empty")
            elif not key:
                table.report(row.number, f"{ROW} is empty")
            elif (review, key) in keys:
                table.report(row.number, f"{ROW} {key} occurs already in row {keys[review, key]}")
            elif row[column] not in MEANINGS:
                table.report(row.number, f"{column} {row[column]!r} is not a label (1, 0, or empty)")
            else:
                keys[review, key] = row.number
                reviews.setdefault(review, []).append(row)
        return table, reviews or {"": []}

    def _loaded(self, folder: Path, table: Table, review: str, rows: Sequence[Row]) -> LoadedReview:
        whole = self.name or folder.resolve().name
        # A review that was asked for by name bears the given name alone.
        project = f"{whole}, {review}" if review and not (self.name and self.review) else whole
        recorder = Recorder(Naming(FORMAT, project))
        column = _label_column(table.header)
        labels = [MEANINGS[row[column]] for row in rows]
        for row, label in zip(rows, labels, strict=True):
            recorder.record(_key(row), row.get("title") or _placeholder(row), extra=row.values, label=label)
        model = simulated(labels, self.seed, review)
        for reviewer in model.reviewers:
            recorder.join(reviewer.name, STARTED_AT)
        for seq, made in enumerate(model.decisions, 1):
            decision = Decision.INCLUDE if made.included else Decision.EXCLUDE
            recorder.decide(seq, _key(rows[made.record]), made.reviewer, decision, made_up_time(seq))
        return recorder.finish(
            _provenance(table, review, column, model),
            self.threshold,
            problems=table.problems,
            unread=others(headers(folder), table.name),
        )


def _label_column(header: Sequence[str]) -> str:
    """The column of labels; empty if the header is not of this format."""
    return next((column for column in LABEL_COLUMNS if column in header), "")


def _key(row: Row) -> str:
    return row[ROW] if ROW in row.values else str(row.number)


def _placeholder(row: Row) -> str:
    return f"Record {_key(row)} (no title exported)"


def _provenance(table: Table, review: str, column: str, model: ErrorModel) -> Provenance:
    return Provenance(
        source=f"ASReview or SYNERGY labels: {table.source}" + (f", review {review}" if review else ""),
        recorded=f"Records, each known by its row, and their final labels ({column}).",
        simulated=(
            f"Reviewers and all their decisions. {model.described} Times count seconds from "
            f"{STARTED_AT:%Y-%m-%d %H:%M} UTC."
        ),
        seed=model.seed,
    )
