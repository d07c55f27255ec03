"""Calls of ``lmdbio simulate``."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from lmdbio import cli


def call(*words: object) -> Result:
    return CliRunner().invoke(cli.cli, ["simulate", *map(str, words)])


def told(*words: object) -> Any:
    result = call(*words, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
