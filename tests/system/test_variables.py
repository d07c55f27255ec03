"""Variables of the environment, quickly.

Goal: the texts are those of the environment now, however it was changed.
Method: ``os.environ`` and ``os.environb``, and a Python without the short way.
"""

from __future__ import annotations

import importlib
import os

import pytest

from lmdbio.system import variables

NAMES = (b"LMDBIO_A", b"LMDBIO_B")


def test_a_variable_is_seen_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert variables.texts(NAMES) == (None, None)
    monkeypatch.setenv("LMDBIO_A", "ä")
    os.environb[b"LMDBIO_B"] = b"\xff"
    assert variables.texts(NAMES) == ("ä".encode(), b"\xff")
    del os.environ["LMDBIO_B"]
    assert variables.texts(NAMES) == ("ä".encode(), None)


def test_a_python_that_keeps_them_otherwise_is_asked_by_the_usual_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variables, "_kept", os.environb)
    test_a_variable_is_seen_as_it_is_now(monkeypatch)


def test_the_short_way_is_there() -> None:
    """Where it is not, each opening takes some microseconds longer: look for another one."""
    assert importlib.reload(variables)._kept is not os.environb
