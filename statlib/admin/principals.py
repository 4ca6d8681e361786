"""Principals and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,79}"  # no colon: "jwt:" and "job:" name principals of other authorities


class Capability(StrEnum):
    """What a principal may do. Membership of a project grants none of them."""

    APPLICATION_ADMINISTRATOR = "application-administrator"  # acts on statistics
    DEPLOYMENT_OPERATOR = "deployment-operator"  # acts on data backfills
    SOURCE_OPERATOR = "source-operator"  # acts on project sources
    AUDITOR = "auditor"  # reads everything, acts on nothing


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, on whose word (``authority``), and what that word allows."""

    name: str
    capabilities: frozenset[Capability]
    authority: str = "token"
