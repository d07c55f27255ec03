"""A number that makes no sense is answered by its name, with those that do.

Goal: whichever way it comes (an argument of Records, Reader, Loader or open, a variable, an option
of a command), a number that is negative, far too large, or none at all raises ValueError or
TypeError with the name and the range; nothing hangs, and nothing overflows on the way to C.

Method: the same odd values through every door; all options of all commands that take a number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import torch
from lmdbio.cli import cli
from lmdbio.machine.overrides import VARIABLES
from tests.support import databases

HUGE = 10**20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("odd") / "db"
    with databases.open_writable(folder, 1) as env:
        databases.write(env, [(b"%08d" % i, b"value") for i in range(60)])
    return str(folder)


DOORS: dict[str, Callable[..., Any]] = {
    "Records": lambda path, **words: lmdbio.Records(path, **words).read([1, 2]),
    "Reader": lambda path, **words: next(iter(lmdbio.Reader(path, 2, **words))),
    "Loader": lambda path, **words: next(iter(torch.Loader(path, 2, **words))),
    "open": lambda path, **words: lmdbio.open(path, readonly=True, lock=False, **words),
}
ALL, THREE = tuple(DOORS), ("Records", "Reader", "Loader")

#: The doors of each argument, the range that it has, and a number that is too small for it.
ARGUMENTS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "depth": (ALL, "from 1 to 256", 0),
    "request_bytes_max": (THREE, "from 1 to 1099511627776", 0),
    "gap_bytes_max": (THREE, "from 0 to 1099511627776", -1),
    "memory_bytes_max": (THREE, "from 1 to 1152921504606846976", 0),
    "cache_bytes": (("open",), "from 0 to 1152921504606846976", -1),
    "block_bytes_max": (("open",), "from 0 to 1152921504606846976", -1),
}
CASES = [(name, door) for name, (doors, _, _) in ARGUMENTS.items() for door in doors]


@pytest.mark.parametrize(("name", "door"), CASES)
def test_an_argument_is_answered_by_its_name(path: str, name: str, door: str) -> None:
    _, allowed, small = ARGUMENTS[name]
    for number in (small, -1, HUGE, -HUGE, 2**63, np.int64(-1)):
        with pytest.raises(ValueError, match=f"^{name} must be {allowed}, not {number}$"):
            DOORS[door](path, **{name: number})
    for odd in ("1X", 2.5, float("nan"), True, [1]):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must be "):
            DOORS[door](path, **{name: odd})


@pytest.mark.parametrize("door", ALL)
def test_numbers_of_numpy_are_taken(path: str, door: str) -> None:
    DOORS[door](path, depth=np.int64(8))
    DOORS[door](path, depth=256)


@pytest.mark.parametrize("variable", [*VARIABLES.values(), "LMDBIO_MEMORY_BYTES"])
@pytest.mark.parametrize("text", ["-1", str(HUGE), "1e30G", "odd"])
def test_a_variable_is_answered_by_its_name(
    path: str, variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, variable, text)
    with pytest.raises(ValueError, match=f"^{variable} must be "):
        lmdbio.Records(path)


@pytest.mark.parametrize("words", ["memory={}", "disk=/tmp,disk_bytes={}"])
def test_a_cache_is_answered_by_its_name(path: str, words: str) -> None:
    for text in (str(HUGE), "1e20T", "-1"):
        with pytest.raises(ValueError, match=r"Cache: (memory|disk_bytes) must be"):
            lmdbio.Reader(path, 2, cache=words.format(text))
    with pytest.raises(ValueError, match="Cache: memory must be a number of bytes, up to"):
        lmdbio.Reader(path, 2, cache=lmdbio.Cache(memory=HUGE))


# --- commands ------------------------------------------------------------------------------


#: A seed may be any number.
UNBOUNDED = {("gallery", "seed")}


def options(command: click.Command, names: tuple[str, ...] = ()) -> Iterator[Any]:
    """All options that take a number: the names of the command, and the option."""
    if isinstance(command, click.Group):  # which loads a command when it is asked for it
        context = click.Context(command)
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            yield from options(one, (*names, name))
    for option in command.params:
        is_number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        if is_number and (*names, option.name) not in UNBOUNDED:
            yield pytest.param(names, option, id=" ".join((*names, option.opts[0])))


@pytest.mark.parametrize(("names", "option"), [*options(cli)])
def test_an_option_is_answered_by_its_name(path: str, names: tuple[str, ...], option: Any) -> None:
    numbers = [str(HUGE), str(-HUGE)]
    numbers += ["nan", "inf"] * isinstance(option.type, click.types.FloatParamType)
    for number in numbers:
        done = CliRunner().invoke(cli, [*names, path, option.opts[-1], number])
        assert done.exit_code == 2, done.output
        assert option.opts[0] in done.output and "Invalid value" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--indices", str(HUGE)],
        ["plan", "--batch-size", "2", "--cache", f"memory={HUGE}"],
        ["simulate", "--cache", f"memory={HUGE}T"],
        ["bench", "--transfer", str(HUGE), "--contestants", "raw"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_words_with_numbers_are_answered(path: str, words: list[str]) -> None:
    done = CliRunner().invoke(cli, [words[0], path, *words[1:]])
    assert done.exit_code == 2 or isinstance(done.exception, ValueError | LookupError)
    assert str(HUGE) in done.output + str(done.exception)
