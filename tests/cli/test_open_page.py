"""A page opens in a browser on a desktop, for somebody who looks, and nowhere else.

Method: the environment of a desktop, of ssh, and of none; the opener is replaced, so that no
browser starts here.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import pytest

from lmdbio.cli.output import open_page

DESKTOP = {"DISPLAY": ":0"}


class Opener:
    """Takes the place of a browser, and notes what it is to open."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, url: str) -> bool:
        self.opened.append(url)
        return True


@pytest.mark.parametrize(
    ("variables", "is_seen", "opens"),
    [
        (DESKTOP, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        (DESKTOP, False, False),
        ({}, True, False),
        ({"DISPLAY": ""}, True, False),
        (DESKTOP | {"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, True, False),
        (DESKTOP | {"SSH_TTY": "/dev/pts/0"}, True, False),
    ],
)
def test_a_page_opens_on_a_desktop_alone(
    variables: dict[str, str],
    is_seen: bool,
    opens: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    opener = Opener()
    monkeypatch.setattr(webbrowser, "get", lambda name: opener)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_seen, raising=False)
    monkeypatch.chdir(tmp_path)
    assert open_page(Path("a page.html")) == opens
    assert opener.opened == [f"{tmp_path.as_uri()}/a%20page.html"] * opens


def test_a_desktop_without_a_browser_opens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("SSH_TTY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(webbrowser, "_browsers", {})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert open_page(tmp_path / "page.html") is False
