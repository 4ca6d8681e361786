"""Durable data backfills: finite, resumable, fenced repairs of existing rows that end only in validated completion."""

from __future__ import annotations

from pathlib import Path

SCHEMA = Path(__file__).parent / "schema"
