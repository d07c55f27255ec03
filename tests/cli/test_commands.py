"""The table of commands, by which each is loaded when it is typed.

Goal: it has all commands, and none of them is loaded that nobody typed. Method: those of all
modules; fresh processes tell what they have loaded. By names: times are a benchmark's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import lmdb
import pytest

import lmdbio
from lmdbio import cli

FOLDER = Path(cli.__file__).parent


def run(*arguments: str) -> tuple[str, set[str]]:
    """Return what a command printed, and the modules that it loaded."""
    code = f"""if True:
        import atexit, sys
        atexit.register(lambda: print(*sys.modules, file=sys.stderr))
        sys.argv[1:] = {list(arguments)!r}
        from lmdbio.__main__ import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_is_told_with_an_example(name: str) -> None:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None and command.name == name and command.help is not None
    assert f"    lmdbio {name} " in (cli.cli.help or "")


def test_each_command_of_the_package_is_in_the_table() -> None:
    found = set()
    for path in FOLDER.glob("*.py"):
        module = __import__(f"lmdbio.cli.{path.stem}", fromlist=["_"])
        mine = (value for value in vars(module).values() if isinstance(value, click.Command))
        found |= {
            one.name for one in mine if one.callback and one.callback.__module__ == module.__name__
        }
    nested = set(cli.cli.get_command(click.Context(cli.cli), "cache").commands)
    assert found - nested - {"cli"} == set(cli.COMMANDS) - nested


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by name, those of a group too."""
    for name in cli.COMMANDS:
        found = cli.cli.get_command(click.Context(cli.cli), name)
        assert found is not None
        yield name, found
        yield from getattr(found, "commands", {}).items()


def test_how_many_has_one_spelling_in_all_commands() -> None:
    other = {"--count", "--batch", "--number", "--records", "--max", "--top", "--head"}
    spelled = set()
    for name, command in commands():
        options = [one for one in command.params if isinstance(one, click.Option)]
        seen = {word for one in options if not one.hidden for word in one.opts}
        assert not seen & other, name
        assert ("-n" in seen) == ("--limit" in seen)
        spelled |= {name} if "--limit" in seen else set()
    assert spelled == {"ls", "head", "export", "gallery", "plan"}


def test_earlier_spellings_still_work_and_no_help_shows_them() -> None:
    for name, old, new in (("plan", "--count", "--limit"), ("bench", "--batch", "--batch-size")):
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        said = [command.make_context(name, ["x", word, "7"]).params for word in (old, new)]
        assert said[0] == said[1] and 7 in said[0].values()
        assert old not in command.get_help(click.Context(command)).replace(new, "")


def test_an_unknown_command_is_a_wrong_use() -> None:
    code = "from lmdbio.cli import main; main()"
    command = [sys.executable, "-c", code, "konvert"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "konvert" in done.stderr


@pytest.mark.parametrize("asked", ["--version", "--help", "-h"])
def test_no_command_is_loaded_to_be_named(asked: str) -> None:
    text, loaded = run(asked)
    assert (lmdbio.__version__ if asked == "--version" else "pictures") in text
    assert "lmdbio.cli" in loaded
    heavy = {"numpy", "rich", "json", "lmdbio._core", "lmdbio.cli.output", "importlib.metadata"}
    assert not heavy & loaded


def test_info_loads_what_it_uses(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    text, loaded = run("info", str(tmp_path))
    assert "LMDB data version" in text
    rooms = ("bench", "copy", "convert", "dropin", "reader", "records", "torch")
    assert not {f"lmdbio.{name}" for name in (*rooms, "cache", "prediction", "simulate")} & loaded
    assert not {"rich.progress", "http.client", "ssl", "asyncio", "lmdbio.planning.order"} & loaded
