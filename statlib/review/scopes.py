"""Names of the scopes that the review families count in, built and read here alone."""

from __future__ import annotations

from uuid import UUID

PROJECT_SCOPE = "project"


def member_scope(member: UUID) -> str:
    return f"member/{member}"


def search_scope(search: UUID) -> str:
    return f"search/{search}"


def stage_scope(stage: UUID) -> str:
    return f"stage/{stage}"


def stage_member_scope(stage: UUID, member: UUID) -> str:
    return f"stage/{stage}/member/{member}"


def stage_of(scope: str) -> UUID:
    """The stage of a scope that ``stage_scope`` or ``stage_member_scope`` named."""
    return UUID(scope.split("/")[1])
