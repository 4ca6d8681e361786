"""Whether what statistics serve of a review is what a naive count of its stored documents says, family by family."""

from __future__ import annotations

from collections.abc import Iterable

from statlib.review.catalogue import REVIEW
from statlib.statistics.counters import without_zeros
from statlib.statistics.reader import Request, Source, read_bundle
from tests.reviews import ALL_FAMILIES, Review


def unserved(opened: Review) -> dict[str, frozenset[str]]:
    """Declared scopes per family of the host that storage does not serve. Whatever is read, served from storage or
    counted for the reader, is asserted to be exact."""
    lacking: dict[str, frozenset[str]] = {}
    for family in ALL_FAMILIES:
        if family in opened.host.families:
            truth = opened.truth_of(family)
            if truth and not _served(opened, truth, [(family, scope) for scope in truth]):
                lacking[family] = frozenset(s for s in truth if not _served(opened, truth, [(family, s)]))
    return lacking


def _served(opened: Review, truth: dict[str, dict[str, int]], requests: Iterable[Request]) -> bool:
    asked = list(requests)
    bundle = read_bundle(opened.host, REVIEW, opened.project, asked)
    for family, scope in asked:
        assert isinstance(scope, str)
        assert without_zeros(bundle.counters(family, scope)) == without_zeros(truth[scope]), (family, scope, bundle)
    return bundle.source is Source.MATERIALISED
