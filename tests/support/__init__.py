"""Helpers that several tests share: databases, programs, small data sets."""

from __future__ import annotations

from pathlib import Path

#: The folders that paths in tests start from.
TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
