"""``lmdbio demo``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from lmdbio.cli.output import PATH, REPEATS_MAX, json_option, print_json, wide_console
from lmdbio.errors import MissingExtraError
from lmdbio.system.signals import ended_by_signals

#: Of each data set: 1 PB.
MEGABYTES_MAX = 1_000_000_000


@click.command()
@click.option(
    "--data", type=PATH, default=Path("demo-data"), show_default=True,
    help="Write the data sets (1.2 GB) into this folder; they are kept, and reused.",
)  # fmt: skip
@click.option(
    "--out", type=PATH, default=Path("demo-results"), show_default=True,
    help="Write demo.json and demo.html into this folder.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, REPEATS_MAX), default=5, show_default=True,
    help="How often each contestant is timed.",
)  # fmt: skip
@click.option(
    "--megabytes", type=click.IntRange(1, MEGABYTES_MAX), default=504, show_default=True,
    help="How many bytes of values each data set has (10^6 bytes).",
)  # fmt: skip
@json_option
def demo(data: Path, out: Path, repeats: int, megabytes: int, as_json: bool) -> None:
    """Write two data sets, race lmdbio against py-lmdb, show one table.

    The data sets are written by py-lmdb as Caffe's converter does. First every value that any
    contestant reads is compared with py-lmdb's, then each one is timed, in turns, on a cold
    page cache (figures are marked where it can't be dropped). Exit status 1 if any value
    differed. Needs Pillow, which the extra brings: pip install 'lmdbio[demo]'.

    \b
    Examples:
        lmdbio demo
        lmdbio demo --data /lustre/me/demo --out .       on the storage you care about
        lmdbio demo --megabytes 200 --repeats 2          a quick look
    """
    from dataclasses import replace

    if find_spec("PIL") is None:
        raise MissingExtraError("lmdbio demo", "Pillow", "PIL", "demo")
    from lmdbio.bench import datasets, demo as demonstration

    recipes = tuple(
        replace(recipe, value_bytes_min=megabytes * 10**6)
        for recipe in (datasets.CIFAR, datasets.JPEG)
    )
    with ended_by_signals():
        made = demonstration.run(
            data, out, wide_console(stderr=True), repeats=repeats, recipes=recipes
        )
    console = wide_console(stderr=as_json)
    demonstration.show(made, console)
    if as_json:
        print_json(demonstration.as_json(made))
    else:
        line = f"{out / 'demo.json'} and {out / 'demo.html'}, {made.seconds:.0f} s"
        console.print(line, style="dim", highlight=False, markup=False)
    if not made.equal:
        sys.exit(1)
