"""The order of records on disk, as ``lmdbio info`` and ``lmdbio doctor`` tell it.

Goal: who has a file that was not written in the order of its keys is told so, with the command
that mends it. Method: files put in order and in random order, and the copy that compact makes.
"""

from __future__ import annotations

import random

import pytest

from tests.cli.test_cli import call
from tests.support import databases

COUNT = 4000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("order")
    for name in ("ordered", "random"):
        order = list(range(COUNT))
        if name == "random":
            random.Random(5).shuffle(order)
        env = databases.open_writable(root / name, 1)
        for at in range(0, COUNT, 500):
            databases.write(env, ((b"%08d" % i, bytes(3000)) for i in order[at : at + 500]))
        env.close()
    run("compact", root / "random", root / "tidy")
    return root


def run(*words: object) -> str:
    done = call(*words)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", ["ordered", "tidy"])
def test_a_file_in_order_is_said_to_be_one(folder, name):
    assert "on disk records lie in the order of their keys, " in run("info", folder / name)
    assert "lie in the order of their keys" in run("doctor", folder / name)


def test_a_file_in_random_order_comes_with_the_command_that_mends_it(folder):
    for command in ("info", "doctor"):
        told = run(command, folder / "random")
        assert "records lie in another order than that of their keys" in told
        assert "lmdbio compact makes a copy in order" in told
