"""Settings, tables and JSON of ``lmdbio simulate``, for policies and for modes."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
from rich.table import Table

from lmdbio.cli.output import plain, wide_console

__all__ = ["Run", "Setting", "Settings", "combinations", "refuse_targets", "tell"]

Settings = list[tuple[str, list[str]]]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Run(Generic[Found]):
    """The outcomes with some values.

    Attributes:
        settings: values that were changed, by their keys.
        found: the outcomes.
        about: other facts of the run for JSON.
    """

    settings: dict[str, str]
    found: Sequence[Found]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The settings, to be read."""
        return ", ".join(f"{key}={value}" for key, value in self.settings.items())


class Setting(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A key and one value or several: ``tier1.capacity=10G,20G``."""

    name = "setting"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[str]]:
        key, equals, values = str(value).partition("=")
        if not equals or not all(part.strip() for part in values.split(",")):
            self.fail(f"{value!r} is not KEY=VALUE or KEY=VALUE,VALUE", param, ctx)
        return key.strip(), [part.strip() for part in values.split(",")]


def combinations(settings: Settings) -> list[dict[str, str]]:
    """Return every combination of the values."""
    keys = [key for key, _ in settings]
    if len(set(keys)) < len(keys):
        raise click.UsageError("--set has the same key twice; its values go into one, with commas")
    return [
        dict(zip(keys, one, strict=True)) for one in itertools.product(*(v for _, v in settings))
    ]


def refuse_targets(page_file: str | None, target: str | None) -> None:
    """Raise OSError where a file cannot be written; rather now than after the work."""
    for name in filter(None, (page_file, target if target != "-" else None)):
        file = Path(name)
        if not file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(file.parent))
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(file))


def tell(
    runs: Sequence[Run[Found]],
    target: str | None,
    title: str,
    *,
    table_of: Callable[[Sequence[Found]], Table],
    reasons_of: Callable[[Sequence[Found]], dict[str, str | None]],
    as_json: Callable[[Sequence[Found]], dict[str, Any]],
) -> None:
    """Print tables, unless JSON goes to standard output; write JSON.

    Args:
        runs: runs to print, at least one.
        target: a file for JSON, "-" for standard output, None for none.
        title: title of the tables.
        table_of: function that draws outcomes.
        reasons_of: function from outcomes to the reason why each cannot be, or None, by its name.
        as_json: outcomes as an object.
    """
    if target != "-":
        for run in runs:
            click.echo(f"{title}{', ' + run.words if run.words else ''}\n")
            wide_console().print(table_of(run.found))
            click.echo()
            for name, reason in reasons_of(run.found).items():
                if reason:
                    click.echo(f"{name}: {reason}")
    if target is None:
        return
    told = [{"set": run.settings, **run.about, **as_json(run.found)} for run in runs]
    text = json.dumps(
        plain(told[0] if len(told) == 1 else {"runs": told}), indent=2, allow_nan=False
    )
    if target == "-":
        click.echo(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
