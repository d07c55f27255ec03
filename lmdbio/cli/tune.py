"""``lmdbio tune``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from lmdbio import calibration, provenance, storage
from lmdbio import tune as tuning
from lmdbio._core import Engine
from lmdbio.calibration import Stored
from lmdbio.choice import Choice
from lmdbio.cli.choices import CHOSEN, LABELS, USERS, calibration_status, choices, chosen
from lmdbio.cli.output import PATH, bar, json_option, plain, print_json, size, wide_console
from lmdbio.tune import Tuning


@click.command()
@click.argument("path", type=PATH)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=tuning.SECONDS,
    show_default=True, help="For all trials together.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Measure and show, keep nothing.")
@click.option("--forget", is_flag=True, help="Measure nothing; remove what is kept.")
@json_option
def tune(path: Path, seconds: float, dry_run: bool, forget: bool, as_json: bool) -> None:
    """Measure how the storage under PATH likes to be read, and remember it.

    Requests of 4 KiB to 16 MiB, 1 to 64 of them in flight, in order and at random, through the
    page cache and past it, each for a moment, on data that is not in the page cache (what is
    read is put out of it first). The result is kept for the whole file system, in
    $XDG_CACHE_HOME/lmdbio/tuned (default ~/.cache), and used whenever a file of it is opened;
    keywords and LMDBIO_ENGINE, LMDBIO_DEPTH, LMDBIO_REQUEST_BYTES, LMDBIO_GAP_BYTES count more.

    Do it while the storage is as busy as it usually is, with a data set of some hundred MiB. A
    store that saves up what it did not give (a cap, a burst) wants more --seconds.

    \b
    Examples:
        lmdbio tune train_lmdb
        lmdbio tune /lustre/me/train_lmdb --seconds 30
        lmdbio tune train_lmdb --dry-run --json | jq .samples
        lmdbio tune train_lmdb --forget
    """
    if forget:
        with Engine(provenance.data_file(path)) as engine:
            identity = calibration.identity(storage.look(engine, thorough=True))
        gone = calibration.forget(identity)
        if as_json:
            print_json({"identity": identity, "forgotten": gone})
        else:
            click.echo(f"{identity}: {'forgotten' if gone else 'nothing was kept'}")
        return
    with bar(f"tune {path}") as progress:
        made = tuning.measure(path, seconds=seconds, progress=progress)
    if made.calibration is None:
        reasons = sorted({reason for _, reason in made.left_out})
        raise ValueError(f"{path}: nothing could be measured: {'; '.join(reasons)}")
    before = choices(made.storage, calibration_status(made.storage))
    now = Stored(made.calibration, calibration.file_of(made.calibration.identity))
    kept = None if dry_run else calibration.store(made.calibration)
    after = choices(made.storage, now)
    if as_json:
        rates = [{**plain(s), "mib_per_second": s.rate / 2**20} for s in made.calibration.samples]
        left = [{**plain(trial), "reason": reason} for trial, reason in made.left_out]
        print_json(
            {
                "identity": made.calibration.identity,
                "storage": made.storage,
                "seconds": made.seconds,
                "bytes": made.bytes,
                "samples": rates,
                "left_out": left,
                "choices_before": before,
                "choices": after,
                "kept": kept,
            }
        )
        return
    print_tuning(made)
    print_changes(before, after)
    click.echo(f"kept in {kept}" if kept is not None else "not kept (--dry-run)")


def print_tuning(made: Tuning) -> None:
    assert made.calibration is not None
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("engine", "pattern", "request", "depth", "MiB/s", "requests/s", "latency ms"):
        table.add_column(column, justify="left" if column in ("engine", "pattern") else "right")
    for s in sorted(made.calibration.samples, key=lambda s: (s.pattern, s.kind)):
        rate = f"{s.rate / 2**20:,.0f}"
        table.add_row(
            s.kind, s.pattern, size(s.request_bytes), str(s.depth), rate,
            f"{s.requests / s.seconds:,.0f}", f"{1e3 * s.latency:.2f}",
        )  # fmt: skip
    click.echo(
        f"{made.calibration.identity}: {size(made.bytes)} of cold data in {made.seconds:.1f} s"
    )
    wide_console().print(table, highlight=False)
    for trial, reason in made.left_out:
        click.echo(f"left out: {trial}: {reason}")


def print_changes(before: dict[str, Choice], after: dict[str, Choice]) -> None:
    """What is done differently from now on."""
    changes = [
        (use, name)
        for use in after
        for name in CHOSEN[use]
        if chosen(before[use], name) != chosen(after[use], name)
    ]
    if not changes:
        click.echo("Nothing is done differently now.")
    for use, name in changes:
        was, now = chosen(before[use], name), chosen(after[use], name)
        why = after[use].reasons[name].text
        click.echo(f"{USERS[use]}: {LABELS[name]} {now} instead of {was}: {why}")
