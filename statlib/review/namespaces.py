"""The namespaces of operations on a study, and which families' moves each answers for."""

from __future__ import annotations

SCREENING_NAMESPACE = "stats.source.screening"
ANNOTATION_NAMESPACE = "stats.source.annotation"

ANNOTATION_FAMILIES = frozenset(
    {"StageAnnotation", "MembershipStageAnnotation", "DomainReconciliation", "ReviewerAnnotation", "QuestionAnswers"}
)
"""Of a write with an operation in either namespace, the annotation one answers for these and the other for the rest."""
