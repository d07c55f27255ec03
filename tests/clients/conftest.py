"""A fixture that compares and races the client of a file, and a table of all at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.racing import compare_and_race


@pytest.fixture
def race(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Callable[[], None]:
    return lambda: compare_and_race(request.module, tmp_path, record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        row
        for report in terminalreporter.getreports("passed")
        for name, row in report.user_properties
        if name == "client"
    ]
    if not rows:
        return
    terminalreporter.section("clients")
    lines = [
        "| client | version | what it calls | result | py-lmdb warm | lmdbio warm | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        result = f"{row['values']:,} values, {row['odd']} odd calls: equal"
        if row["differs"]:
            result += f" but: {', '.join(row['differs'])}"
        lines.append(
            f"| {row['client']} | {row['version']} | {row['calls']} | {result} "
            f"| {row['lmdb'] * 1e3:.1f} ms | {row['lmdbio'] * 1e3:.1f} ms "
            f"| {row['lmdb'] / row['lmdbio']:.2f} |"
        )
    terminalreporter.write_line("\n".join(lines))
