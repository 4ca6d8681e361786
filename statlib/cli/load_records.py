"""``statlib load --postgres``: the line that it adds to the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statlib.kernel.settings import Settings
from statlib.review.loading.review import LoadedReview


def copied_records(reviews: Iterable[LoadedReview], settings: Settings) -> Iterator[str]:
    """Copy each review's records and decisions, and say how many rows that added."""
    from statlib.review.loading.records import copy_records  # noqa: PLC0415 - the extra `postgres`

    for review in reviews:
        copied = copy_records(review, settings)
        yield f"postgres   {review.project.name}: {copied.studies:,} records and {copied.decisions:,} decisions added"
