"""SearchPopulation: how many studies each search brought. Counter of a search: ``Studies``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from statlib.review.evidence import ReviewContext, StudyEvidence
from statlib.review.scopes import search_scope
from statlib.statistics.catalogue import Document, Effect, Pipeline
from statlib.statistics.counters import Counters

NAME = "SearchPopulation"


class SearchPopulation:
    """One scope per search. No save of a study moves it: studies come and go under staged fences."""

    name = NAME

    def declared_scopes(self, context: ReviewContext) -> tuple[str, ...]:
        return tuple(map(search_scope, context.searches))

    def parameters(self, context: ReviewContext, scope: str) -> Any:
        return ()

    def aggregation(self, project: UUID, context: ReviewContext) -> Pipeline:
        return [{"$match": {"ProjectId": project}}, {"$group": {"_id": "$SearchId", "Studies": {"$sum": 1}}}]

    def collect(self, groups: Iterable[Document], context: ReviewContext) -> Mapping[str, Counters]:
        found = {group["_id"]: group["Studies"] for group in groups}
        return {search_scope(search): {"Studies": found.get(search, 0)} for search in context.searches}

    def derive(self, before: StudyEvidence, after: StudyEvidence, context: ReviewContext) -> Effect:
        """A study that changes its search outdates both of them."""
        if before.search == after.search:
            return Effect()
        concerned = {before.search, after.search}.intersection(context.searches)
        return Effect(stale_scopes=frozenset(search_scope(search) for search in concerned if search is not None))
