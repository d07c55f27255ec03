"""The demonstration: two data sets, every reader, one table.

    write (or reuse) -> convert -> verify every reader -> calibrate py-lmdb
      -> alternate the readers, cold, then warm -> report

A *leg* is one order in which one data set is read. Verifying comes first and outside of the timed
runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from lmdbio.bench import datasets, measure, micro, tables, trials
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.findings import MIB, Findings, Row, row_json
from lmdbio.bench.page import demo_page
from lmdbio.bench.trials import Trial
from lmdbio.bench.workplace import Workplace, make_folder, workplace
from lmdbio.convert.convert import convert as attach
from lmdbio.machine.page_reporting import is_felt

__all__ = ["LEGS", "Demonstration", "Leg", "as_json", "conclude", "estimate", "run", "show"]

#: Raised whenever a reader of the JSON would notice.
SCHEMA = "lmdbio-demo/2"
#: Records of a batch, over all ranks.
BATCH = 256
#: No further cold round begins after so long, and no warm one.
SECONDS_MAX, WARM_SECONDS_MAX = 240.0, 60.0
#: Of the file, read with readahead off: that is often ten times slower, and does not depend on
#: how much is read.
CALIBRATION_BYTES = 16 * MIB
#: Measured on two cores and a disk of 1.6 GB/s, with 128 KiB of kernel readahead, by which py-lmdb
#: takes longest: megabytes (10^6) of values in each data set, time
#: to write and convert both, time of a round; and the time that starting readers takes besides.
MEGABYTES, PREPARING_SECONDS, ROUND_SECONDS, STARTING_SECONDS = 504, 65, 48, 30
#: MPICH then splits its ranks as if they ran on two machines.
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
RANKS = 4


@dataclass(frozen=True, slots=True)
class Leg:
    """An order to read in, and its contestants.

    Attributes:
        access: "sequential" or "random".
        share: share of the records, the first ones of that order, which are read in whole batches.
        contestants: name of each in the table, by its name in ``trials.CONTESTANTS``; the first is
            py-lmdb, with which the others are compared.
        cold: whether each run finds the file out of the page cache; else all find it there.
    """

    access: str
    share: float
    contestants: Mapping[str, str]
    cold: bool = True

    def title(self, count: int) -> str:
        """Return the words that the table has for this leg of ``count`` records."""
        if self.access == "sequential":
            return "in order"
        if self.share == 1.0:
            return "shuffled, whole epoch" if self.cold else "shuffled, warm"
        batches = -(-count // BATCH)
        return f"shuffled, {batches} batch{'es' * (batches > 1)}†"


AT_RANDOM = {"lmdb": "py-lmdb, get per key", "read": "lmdbio.Records.read"}
#: A program that reads a whole epoch can say its order beforehand.
EPOCH = {"lmdb": "py-lmdb, get per key", "batches": "lmdbio.Records.batches"}
LEGS = (
    Leg(
        "sequential",
        1.0,
        {
            "lmdb": "py-lmdb, cursor",
            "open": "lmdbio.open, same code",
            "reader": f"lmdbio.Reader, {RANKS} ranks",
        },
    ),
    # Of a whole epoch the page cache serves most: these sets fit in memory many times over.
    Leg("random", 1.0, EPOCH),
    # Of its beginning next to nothing: so a set that is much larger than memory reads always
    # (Records is told to bring nothing else to memory).
    Leg("random", 1 / 32, AT_RANDOM),
    Leg("random", 1.0, EPOCH, cold=False),
)


@dataclass(slots=True)
class Demonstration:
    """The findings of the demonstration.

    Attributes:
        machine: description of the machine and the storage.
        datasets: description of each data set, in words and numbers.
        legs: the findings of each, in the order of the table.
        notes: remarks that a reader of the figures should know.
        seconds: duration of all of it, seconds.
    """

    machine: measure.Machine
    datasets: list[dict[str, Any]] = field(default_factory=list)
    legs: list[Findings] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rows(self) -> list[Row]:
        """All rows that run on this machine."""
        return [row for leg in self.legs for row in leg.rows if not row.trial.skipped]

    @property
    def cold(self) -> bool:
        """Every run that wants the file out of the page cache found it so."""
        return bool(self.rows) and all(leg.was_cold for leg in self.legs if leg.cold)

    @property
    def verified(self) -> int:
        """Count the values that were compared with py-lmdb's."""
        return sum(row.work.count for row in self.rows if row.verified)

    @property
    def equal(self) -> bool:
        """Every contestant that runs here was verified and measured, and nothing was wrong."""
        fine = (row.verified and row.runs and not row.wrong for row in self.rows)
        return bool(self.rows) and all(fine)

    @property
    def facts(self) -> dict[str, str]:
        """The facts that belong above any figure: machine, storage, cache state, data."""
        state = (
            "cold: the data file was out of this machine's page cache before every run, and "
            "in it where marked *"
            if self.cold
            else "WARM where marked *: the page cache could not be dropped"
        )
        sets = {f"data, {one['name']}": one["line"] for one in self.datasets}
        return self.machine.facts | {"cache": state} | sets


def run(
    data: Path,
    out: Path,
    console: Console,
    *,
    repeats: int = 5,
    recipes: Sequence[Recipe] = (datasets.CIFAR, datasets.JPEG),
) -> Demonstration:
    """Do everything and return the findings, whose ``equal`` is the verdict.

    Args:
        data: folder for the data sets; kept, and reused by the next run.
        out: folder for demo.json and demo.html.
        console: Console that shows the progress.
        repeats: number of timed runs of each contestant.
        recipes: recipes of the data sets.

    Raises:
        OSError: no room, or a folder that cannot be written.
    """
    begun = time.monotonic()
    make_folder(out, "--out")  # before a gigabyte is written
    make_folder(data, "--data")
    sets = [datasets.prepare(recipe, data, console) for recipe in recipes]
    made = Demonstration(measure.machine(data), [convert(one, console) for one in sets])
    smallest = min(one.value_bytes for one in sets)
    if smallest < micro.START_UP_BYTES:
        made.notes.append(micro.start_up_note(smallest, "--megabytes"))
    with workplace() as bench:
        bench.environment = TWO_NODES
        made.legs = [leg_of(bench, one, leg, repeats) for one in sets for leg in LEGS]
        micro.verify(bench, made.rows, console)
        calibrate(bench, made, console)
        ending = time.monotonic() + SECONDS_MAX
        cold, warm = (
            [row for leg in made.legs if leg.cold == is_cold for row in leg.rows]
            for is_cold in (True, False)
        )
        rounds = micro.alternate(bench, cold, repeats, console, ending=ending)
        bench.warm, ending = True, time.monotonic() + WARM_SECONDS_MAX
        for one in sets:
            micro.warm(one.path, one.file_bytes, console)
        rounds = min(rounds, micro.alternate(bench, warm, repeats, console, ending=ending))
    if made.machine.read_ahead_kb is not None:
        made.notes.append(READAHEAD.format(made.machine.read_ahead_kb))
    if rounds < repeats:
        made.notes.append(f"Stopped after {rounds} of {repeats} rounds: time is up.")
    for row in made.rows:
        if row.trial.name == "reader" and row.runs:
            row.called += f" on {row.runs[0].nodes} nodes"
    made.seconds = time.monotonic() - begun
    text = json.dumps(as_json(made), indent=2)
    (out / "demo.json").write_text(text + "\n", encoding="utf-8")
    page = demo_page(made.legs, made.facts, made.notes)
    (out / "demo.html").write_text(page, encoding="utf-8")
    return made


def convert(made: Dataset, console: Console) -> dict[str, Any]:
    """Make the provenance file of a data set anew, cold; return the set in words and numbers."""
    with console.status(f"convert {made.recipe.name}"):
        cold = measure.drop_cache(made.data_file)
        done = attach(made.path)
    mean = made.value_bytes / max(1, made.count)
    return {
        "name": made.recipe.name,
        "path": str(made.path),
        "records": made.count,
        "value_bytes": made.value_bytes,
        "file_bytes": made.file_bytes,
        "sidecar": str(done.sidecar),
        "sidecar_bytes": done.sidecar_bytes,
        "sidecar_seconds": done.seconds,
        "sidecar_read_bytes": done.bytes_read,
        "sidecar_cold": cold,
        "line": f"{made.count:,} records of {mean:,.0f} bytes on average, "
        f"{made.value_bytes / MIB:,.0f} MiB of values in {made.file_bytes / MIB:,.0f} MiB; "
        f"provenance file {done.sidecar_bytes:,} bytes, made in {done.seconds:.2f} s",
    }


def leg_of(bench: Workplace, made: Dataset, leg: Leg, repeats: int) -> Findings:
    """Return a leg's findings, with nothing measured yet."""
    found: Findings | None = None
    for name, called in leg.contestants.items():
        ranks = RANKS if name == "reader" else 1
        work = micro.describe(
            made.path,
            "strided" if ranks > 1 else leg.access,
            processes=ranks,
            batch=BATCH,
            # Each rank takes its share of whole batches.
            bytes_max=None
            if leg.share == 1.0 and ranks == 1
            else max(1, int(made.file_bytes * leg.share)),
        )
        (trial,) = trials.make_trials(work, [name], (), micro.missing(work))
        # Rates are of values, as a user of the records counts.
        row = bench.row(replace(trial, bytes=work.value_bytes), work)
        row.called = called
        found = found or Findings(
            measure.machine(made.path),
            work,
            cold=leg.cold,
            repeats=repeats,
            title=f"{made.recipe.name}, {leg.title(work.count)}",
        )
        found.rows.append(row)
    assert found is not None
    return found


def calibrate(bench: Workplace, made: Demonstration, console: Console) -> None:
    """Let py-lmdb run at the better of its two readahead settings, leg by leg."""
    pairs = []
    for leg in (leg for leg in made.legs if leg.cold):
        base = leg.rows[0]
        part = micro.describe(
            Path(base.work.path), base.work.access, processes=1, batch=BATCH,
            bytes_max=CALIBRATION_BYTES,
        )  # fmt: skip
        part = part if part.count < base.work.count else base.work
        ahead = replace(base, runs=[])
        bare = Row(Trial("lmdb-noreadahead", bytes=part.value_bytes), part, called=base.called)
        pairs.append((leg, ahead, bare))
    tried = [row for _, *rows in pairs for row in rows]
    micro.alternate(bench, tried, 1, console, title="calibrate")
    for leg, ahead, bare in pairs:
        base = leg.rows[0]
        with_it, without = (one.rate.median if one.rate else 0.0 for one in (ahead, bare))
        if without > with_it:
            base.trial = replace(base.trial, name="lmdb-noreadahead")
        made.notes.append(
            f"{leg.title}: py-lmdb with readahead "
            f"{'off' if without > with_it else 'on'}; {with_it:,.0f} MiB/s on, {without:,.0f} off."
        )


READAHEAD = (
    "The kernel reads {:,} KiB ahead here: each fault of py-lmdb brings so much. With the usual "
    "128 KiB py-lmdb took twice as long for a file in order on such a disk as with megabytes, "
    "lmdbio as long with either; with megabytes both are about as fast in order."
)
FIRST = "first batches"
#: Source: machine/page_reporting.
REPORTING = (
    "This virtual machine hands freed memory back to its host (free page reporting): a reader "
    "that brings a whole file to memory (in order, whole epoch) takes up to four times as long. "
    f"Here judge by the {FIRST}; lmdbio doctor names the remedy."
)
LEGEND = (
    "MiB/s: bytes of values over the time from before opening to the last value; median, slowest "
    "and fastest run. Ratio: of medians, to py-lmdb at the better of its two readahead settings.",
    "†: the first batches of an epoch, which cost what every batch of a set costs that is too "
    "large for memory; Records is told to bring nothing else to memory (readahead=False).",
    "warm: the whole file lies in the page cache before, and both copy from memory.",
)


def show(made: Demonstration, console: Console) -> None:
    """Print facts, table, legend and the verdict."""
    notes = [*LEGEND, *tables.absent(made.legs), *made.notes]
    tables.show(
        made.legs, console, title="Reading an LMDB data set", facts=made.facts, notes=notes
    )
    if made.equal:
        console.print(
            f"[bold green]equal[/]: {made.verified:,} values compared with py-lmdb's, none differs"
        )
        console.print(conclude(made), highlight=False, markup=False)


def way(leg: Findings) -> str:
    """Return how a leg reads, in the words of the conclusion."""
    if not leg.cold:
        return "shuffled, warm"
    if leg.workload.access == "sequential":
        return "in order"
    return f"shuffled, {'whole epoch' if leg.workload.whole else FIRST}"


def times_faster(legs: Sequence[Findings]) -> float | None:
    """Return py-lmdb's time for several legs together over that of lmdbio's best readers.

    Returns:
        The ratio; None: there is nothing to compare.
    """
    spent = [0.0, 0.0]
    for leg in legs:
        base, ours = leg.baseline, leg.best("lmdbio")
        if base is None or ours is None or base.rate is None or ours.rate is None:
            return None
        spent[0] += base.trial.bytes / base.rate.median
        spent[1] += base.trial.bytes / ours.rate.median
    return spent[0] / spent[1]


def conclude(made: Demonstration) -> str:
    """Return what follows from the figures, and what to type next."""
    ways: dict[str, list[Findings]] = {}
    for leg in made.legs:
        ways.setdefault(way(leg), []).append(leg)
    found = {name: times_faster(legs) for name, legs in ways.items()}
    lines = [f"  {name:24} {times:6.1f}" for name, times in found.items() if times]
    if not lines:
        return "Nothing was measured that could be compared."
    said = [
        "In short, py-lmdb's time over that of lmdbio's best reader, all data sets together "
        "(above 1, lmdbio is faster):",
        *lines,
    ]
    if not made.cold:
        said.append("Read from memory, where marked *: from storage it differs.")
    elif is_felt(made.machine.reported_order):
        said.append(REPORTING)
    if any(one["value_bytes"] < micro.START_UP_BYTES for one in made.datasets):
        said.append("A run reads too little to conclude from.")
    said.append(
        "Next: lmdbio bench PATH measures your own data set, lmdbio run train.py tries it in your "
        "program."
    )
    return "\n".join(said)


def estimate(megabytes: int, repeats: int) -> str:
    """Return how long all of it takes at most, about, in words.

    Args:
        megabytes: size of the values of each data set, 10^6 bytes.
        repeats: number of timed runs of each contestant.
    """
    of_bytes = PREPARING_SECONDS + ROUND_SECONDS * repeats
    seconds = STARTING_SECONDS + of_bytes * megabytes / MEGABYTES
    return "a minute" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def as_json(made: Demonstration) -> dict[str, Any]:
    """Return everything as plain values: what the table shows, and every sample behind it."""
    return {
        "schema": SCHEMA,
        "machine": asdict(made.machine),
        "cold": made.cold,
        "equal": made.equal,
        "verified": made.verified,
        "seconds": made.seconds,
        "datasets": made.datasets,
        "rows": [{"leg": leg.title} | row_json(leg, row) for leg in made.legs for row in leg.rows],
        "notes": made.notes,
    }
