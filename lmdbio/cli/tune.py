"""``lmdbio tune``."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from lmdbio import provenance, share
from lmdbio.cli import EXPECTED
from lmdbio.cli.choices import (
    CHOSEN,
    LABELS,
    USERS,
    choices,
    chosen,
    turn_choices,
)
from lmdbio.cli.files import files_of, largest
from lmdbio.cli.options import PATH, Seconds, json_option, paths_argument
from lmdbio.cli.output import bar, plain, print_json, print_table, size
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, SharedSample, Stored
from lmdbio.machine.choice import Choice, choose
from lmdbio.machine.overrides import Overrides, overrides_from_env
from lmdbio.remote import is_url, open_data
from lmdbio.tuning import stagger, tune as tuning
from lmdbio.tuning.job import measure_nodes
from lmdbio.tuning.stagger import Staggered
from lmdbio.tuning.tune import Tuning

MIB = float(1 << 20)


@click.command()
@paths_argument
@click.option(
    "--seconds", type=Seconds(), default=tuning.SECONDS,
    show_default=True, help="For all trials together; turns take it twice more.",
)  # fmt: skip
@click.option(
    "--cache-dir", type=PATH, metavar="FOLDER",
    help="Measure what a cache would have as well: memory, and the disk of this folder, with a "
    "file that is gone afterwards.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Measure and show, keep nothing.")
@click.option("--forget", is_flag=True, help="Measure nothing; remove what is kept.")
@json_option
def tune(
    paths: tuple[Path | str, ...],
    seconds: float,
    cache_dir: Path | None,
    dry_run: bool,
    forget: bool,
    as_json: bool,
) -> None:
    """Measure how the storage under PATH likes to be read, and remember it.

    Requests of 4 KiB to 16 MiB, 1 to 64 of them in flight, in order and at random, through the
    page cache and past it, each for a moment, on data that is not in the page cache (what is
    read is put out of it first). The result is kept for the whole file system, in
    $XDG_CACHE_HOME/lmdbio/tuned (default ~/.cache), and used whenever a file of it is opened;
    keywords and LMDBIO_ENGINE, LMDBIO_DEPTH, LMDBIO_REQUEST_BYTES, LMDBIO_GAP_BYTES count more.

    Do it while the storage is as busy as it usually is, with a data set of some hundred MiB. A
    store that saves up what it did not give (a cap, a burst) wants more --seconds. Of several
    files (PATHs, a folder or a quoted pattern of them) the largest is read.

    Started by mpiexec or torchrun on several nodes, it also measures what 2, 4 and so on of them
    read at once, how fast they send to each other by the size of messages, and turns: how many
    roots should read at a time there (tokens), by Readers in mode "stag" with 1, 2, 4 and so on of
    them, and without turns, for both assignments. PATH needs its provenance file. The result is
    kept beside the rest, for Readers of about as many roots: "stag" takes the fewest tokens that
    are fast enough, "auto" none where nothing is gained.

    \b
    Examples:
        lmdbio tune train_lmdb
        lmdbio tune /lustre/me/train_lmdb --seconds 30
        lmdbio tune train_lmdb --dry-run --json | jq .samples
        lmdbio tune train_lmdb --forget
        mpiexec -n 128 lmdbio tune /lustre/me/train_lmdb
        torchrun --nnodes 16 --nproc-per-node 8 ... -m lmdbio tune /lustre/me/train_lmdb
        lmdbio tune /lustre/me/train_lmdb --cache-dir /local/scratch
    """
    ranks = share.world()
    path = largest(files_of(paths))
    if forget:
        if ranks is None or ranks.rank == 0:
            _forget(path, cache_dir, as_json)
        return
    try:
        if not dry_run:
            calibration.file_of(calibration.MEMORY)  # who has no home is told beforehand
        _tune(path, seconds, cache_dir, dry_run, as_json, ranks)
    except EXPECTED:
        if ranks is not None and ranks.rank:
            sys.exit(1)  # the first rank was told, and says it
        raise


def _tune(
    path: Path | str,
    seconds: float,
    cache_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    ranks: Any,
) -> None:
    """All that was asked for, by this process and those that it was started with."""
    is_first = ranks is None or ranks.rank == 0
    with bar(f"tune {path}") if is_first else nullcontext() as progress:
        found = _measure(path, cache_dir, seconds, ranks, progress)
    if not is_first:
        return
    report = _store(path, found.storage, found, dry_run, as_json)
    if found.folder is not None and cache_dir is not None:
        report["cache_dir"] = _store(cache_dir, found.folder, Measured(), dry_run, as_json)
    elif cache_dir is not None:
        report["cache_dir"] = None
        if not as_json:
            click.echo(f"{cache_dir}: on the same file system, which is measured")
    each_way = "MiB/s sent by each node, while it receives as much, in messages of"
    for name, one, words in (
        ("memory", found.memory, "MiB/s copied by threads"),
        ("network", found.network, each_way),
    ):
        if one is not None:
            report[name] = _store_rates(name, one, words, dry_run, as_json)
    if as_json:
        print_json(report)


class Measured(NamedTuple):
    """All that was measured; ranks but the first have what all of them measured together.

    Attributes:
        storage: storage of the data set.
        folder: storage of the folder of a cache, if it is on another one.
        memory: memory, for a cache.
        turns: number of roots that should read at a time; None: this is one process.
        readers: rates of several nodes that read at once.
        network: rates between them; None: there is one node.
    """

    storage: Tuning | None = None
    folder: Tuning | None = None
    memory: Calibration | None = None
    turns: Staggered | None = None
    readers: tuple[SharedSample, ...] = ()
    network: Calibration | None = None


def _measure(
    path: Path | str,
    cache_dir: Path | None,
    seconds: float,
    ranks: Any,
    progress: tuning.Progress | None,
) -> Measured:
    """Measure all that was asked for. The folder comes first, since it may have no room.

    The first rank measures storage, and says how Readers will read by that; the others sleep
    meanwhile, since they would disturb.
    """

    def measure() -> tuple[Measured, Overrides | None]:
        if ranks is not None and ranks.rank:
            return Measured(), None
        folder = None
        if cache_dir is not None and calibration.identity(
            storage.inspect_folder(cache_dir)
        ) != calibration.identity(_under(path)):
            folder = tuning.measure_folder(cache_dir, seconds=seconds, progress=progress)
        made = tuning.measure(path, seconds=seconds, progress=progress)
        memory = None if cache_dir is None else tuning.measure_memory()
        way = choose("stream", made.storage, made.calibration, environment=overrides_from_env())
        request = Overrides(None, way.depth, way.request_bytes_max, way.gap_bytes_max)
        return Measured(made, folder, memory), request

    if ranks is None:
        return measure()[0]
    job = share.connect(ranks)
    try:
        found, request = job.together_local(measure)
        job.together(lambda: None)  # tells of an interrupt in that wait: others would go on
    finally:
        job.free()
    turns = stagger.measure(path, ranks, seconds=seconds, overrides=request, progress=progress)
    readers, network = measure_nodes(path, ranks, seconds=seconds, progress=progress)
    return found._replace(turns=turns, readers=readers, network=network)


def _under(path: Path | str) -> storage.Storage:
    """Return the storage under a data set."""
    data = provenance.find_data(path)
    if is_url(data):
        return storage.inspect_url(os.fspath(data))
    with open_data(data) as engine:
        return storage.inspect(engine, thorough=True)


def _forget(path: Path | str, cache_dir: Path | None, as_json: bool) -> None:
    identities = [calibration.identity(_under(path))]
    if cache_dir is not None:
        identities += [
            calibration.identity(storage.inspect_folder(cache_dir)),
            calibration.MEMORY,
            calibration.NETWORK,
        ]
    gone = {identity: calibration.forget(identity) for identity in dict.fromkeys(identities)}
    if as_json:
        report = [{"identity": identity, "forgotten": done} for identity, done in gone.items()]
        print_json(report[0] if len(report) == 1 else report)
    else:
        for identity, done in gone.items():
            click.echo(f"{identity}: {'forgotten' if done else 'nothing was kept'}")


def _store(
    path: Path | str, made: Tuning | None, by_job: Measured, dry_run: bool, as_json: bool
) -> dict[str, Any]:
    """Keeps what was measured, shows it unless JSON will, and returns that."""
    assert made is not None
    if made.calibration is None:
        reasons = sorted({reason for _, reason in made.left_out})
        raise ValueError(f"{path}: nothing could be measured: {'; '.join(reasons)}")
    was, turns = calibration.load(calibration.identity(made.storage)), by_job.turns
    known = was.calibration or made.calibration
    jobs = calibration.renewed(known.staggerings, turns.staggerings if turns is not None else ())
    measured = replace(made.calibration, staggerings=jobs, shared=by_job.readers or known.shared)
    before, now = choices(made.storage, was), Stored(measured, was.file)
    stored = None if dry_run else calibration.store(measured)
    after = choices(made.storage, now)
    if as_json:
        return _as_json(made, measured, by_job, stored, (before, after))
    print_tuning(made)
    print_changes(before, after)
    if by_job.readers:
        print_readers(by_job.readers)
    if turns is not None:
        print_turns(turns)
    click.echo(f"kept in {stored}" if stored is not None else "not kept (--dry-run)")
    return {}


def _store_rates(
    name: str, made: Calibration, words: str, dry_run: bool, as_json: bool
) -> dict[str, Any]:
    """Keeps the rates of memory or the network, shows them unless JSON will, and returns them."""
    stored = None if dry_run else calibration.store(made)
    is_sized = len({s.request_bytes for s in made.samples}) > 1
    rates = {s.request_bytes if is_sized else s.depth: s.rate / MIB for s in made.samples}
    if not as_json:
        each = (f"{size(n) if is_sized else n}: {rate:,.0f}" for n, rate in rates.items())
        click.echo(f"{name}: {words} {', '.join(each)}")
    return {"mib_per_second": rates, "kept": stored}


def _as_json(
    made: Tuning,
    measured: Calibration,
    by_job: Measured,
    stored: Path | None,
    before_after: tuple[dict[str, Choice], dict[str, Choice]],
) -> dict[str, Any]:
    rates = [{**plain(s), "mib_per_second": s.rate / MIB} for s in measured.samples]
    left = [{**plain(trial), "reason": reason} for trial, reason in made.left_out]
    report: dict[str, Any] = {
        "identity": measured.identity,
        "storage": made.storage,
        "seconds": made.seconds,
        "bytes": made.bytes,
        "samples": rates,
        "left_out": left,
        "choices_before": before_after[0],
        "choices": before_after[1],
        "kept": stored,
    }
    if by_job.turns is not None:
        turns = by_job.turns
        report["turns"] = {**plain(turns), "choices": turn_choices(turns.staggerings)}
        report["readers"] = [
            {"readers": one.readers, **plain(one.sample), "mib_per_second": one.sample.rate / MIB}
            for one in by_job.readers
        ]
    return report


def print_tuning(made: Tuning) -> None:
    assert made.calibration is not None
    click.echo(
        f"{made.calibration.identity}: {size(made.bytes)} of cold data in {made.seconds:.1f} s"
    )
    columns = ("engine", "pattern", "request", "depth", "MiB/s", "requests/s", "latency ms")
    rows = (
        (
            s.kind,
            s.pattern,
            size(s.request_bytes),
            str(s.depth),
            f"{s.rate / MIB:,.0f}",
            f"{s.requests / s.seconds:,.0f}",
            f"{1e3 * s.latency:.2f}",
        )
        for s in sorted(made.calibration.samples, key=lambda s: (s.pattern, s.kind))
    )
    print_table(columns, rows, left=2)
    for trial, reason in made.left_out:
        click.echo(f"left out: {trial}: {reason}")


def print_readers(shared: tuple[SharedSample, ...]) -> None:
    """Print the rates of several nodes that read at once."""
    for pattern, words in (("stream", "in order"), ("random", "at random")):
        found = [one for one in shared if one.sample.pattern == pattern]
        if found:
            rates = ", ".join(f"{one.readers}: {one.sample.rate / MIB:,.0f}" for one in found)
            request = size(found[0].sample.request_bytes)
            click.echo(f"nodes that read at once: MiB/s {words}, requests of {request}: {rates}")


def print_changes(before: dict[str, Choice], after: dict[str, Choice]) -> None:
    """Print the choices that change from now on."""
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


def print_turns(turns: Staggered) -> None:
    """Print the figures that all ranks measured together."""
    if turns.reason:
        click.echo(f"Turns were not measured: {turns.reason}.")
        return
    first = turns.staggerings[0]
    click.echo(
        f"turns: {first.roots} roots on {first.nodes} nodes, batches of {turns.batch_size:,} "
        f"records: {size(turns.bytes)} in {turns.seconds:.1f} s"
    )
    rows = []
    for job in turns.staggerings:
        for place, sample in enumerate(job.samples):
            least, most = min(sample.rates), max(sample.rates)
            rates = [f"{rate / MIB:,.0f}" for rate in (sample.rate, least, most)]
            name, tokens = "" if place else job.assignment, str(sample.tokens or "none")
            rows.append((name, tokens, *rates, str(len(sample.rates))))
    print_table(("assignment", "tokens", "MiB/s", "least", "most", "runs"), rows)
    for choice in turn_choices(turns.staggerings):
        click.echo(f"Reader: {choice}: {choice.reason.text}")
