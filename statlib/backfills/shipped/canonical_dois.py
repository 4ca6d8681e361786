"""Canonical DOIs of loaded study records.

Exports spell one identifier in many ways: with a resolver's address, a prefix, capitals, a full stop behind. The
repaired column holds the one form in which equal identifiers are equal. Many studies share a project, so the key is
compound; a record without an identifier gets none, and is no gap.
"""

from __future__ import annotations

from statlib.backfills.definitions import BatchBound, Definition, key

_WRONG = "doi_canonical IS DISTINCT FROM statlib_canonical_doi(doi)"
CANONICAL_DOIS = Definition(
    id="canonical-dois",
    title="Canonical DOIs of study records",
    key=key(("project_id", "uuid"), ("study_id", "uuid")),
    source="statlib_study_record",
    mutate=f"UPDATE statlib_study_record SET doi_canonical = statlib_canonical_doi(doi) WHERE {{window}} AND {_WRONG}",
    validate=f"SELECT project_id, study_id FROM statlib_study_record WHERE {{window}} AND {_WRONG}",
    requires="to_regprocedure('statlib_canonical_doi(text)') IS NOT NULL",
    bound=BatchBound(rows_max=5_000, transaction_s=10.0, lock_s=2.0, target_s=0.1),
)
