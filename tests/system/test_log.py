"""The logger hears each text once, and a program that does not listen pays and sees nothing."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from lmdbio.system import log


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_logged", set())


def test_a_text_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lmdbio"):
        for text in ("a: why", "b: why", "a: why"):
            log.log(text)
    assert caplog.record_tuples == [("lmdbio", 20, "a: why"), ("lmdbio", 20, "b: why")]


def test_a_text_that_nobody_heard_is_told_when_somebody_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "lmdbio"):
        log.log("a: why")
        assert not caplog.records
    with caplog.at_level(logging.INFO, "lmdbio"):
        log.log("a: why")
        assert len(caplog.records) == 1


def test_what_was_told_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LOGGED_MAX", 3)
    logging.getLogger("lmdbio").setLevel(logging.INFO)
    try:
        for number in range(10):
            log.log(f"{number}: why")
            assert len(log._logged) <= 3
    finally:
        logging.getLogger("lmdbio").setLevel(logging.NOTSET)


def test_a_handler_may_open_data_sets_itself(caplog: pytest.LogCaptureFixture) -> None:
    class Curious(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.log(record.getMessage())  # the same text: no end otherwise
            heard.append(record.getMessage())

    heard: list[str] = []
    handler = Curious()
    logging.getLogger("lmdbio").addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "lmdbio"):
            log.log("a: why")
    finally:
        logging.getLogger("lmdbio").removeHandler(handler)
    assert heard == ["a: why"]


def test_a_program_without_logging_sees_nothing() -> None:
    code = "from lmdbio.system.log import WARNING, log; log('a: why', WARNING)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
