"""Results of runs on the emulated cluster, from their reports. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.cluster.results import counts_that_differ, late_of
from benchmarks.papers import pictures
from benchmarks.papers.claims import Result
from benchmarks.papers.lanes import Lane, Reports, by_where, lanes_of, over
from benchmarks.report import Verdict, judged, spread_text
from lmdbio.bench.findings import MIB, figure
from lmdbio.page.table import Table

__all__ = [
    "auto",
    "blocks",
    "fixed_words",
    "groups",
    "growth",
    "hidden",
    "ladder",
    "loaders",
    "nodes",
    "orders",
    "policies",
    "prediction",
]

#: "auto" has to reach so much of the best fixed placement.
AUTO_SHARE = 0.9
#: A predicted job may differ so much from the measured one, in the median.
PREDICTED_SHARE = 0.15
#: Of a picture of predicted jobs and measured ones.
PREDICTED_AXES = ("Jobs predicted and measured", "measured, s", "predicted, s")

# --- LMDBIO --------------------------------------------------------------------------------

#: Parts of a reading rank's time, and words for them.
PARTS = {"seek_s": "seek", "io_s": "I/O", "turn_s": "turn", "skew_s": "skew"}


def times_of(found: Mapping[str, Lane]) -> dict[str, float]:
    """Return how many times as fast as py-lmdb each lane is; nothing without py-lmdb."""
    base = found.get("py-lmdb")
    return {} if base is None else {name: over(base, one) for name, one in found.items()}


def ends_of(rows: Sequence[Sequence[str]]) -> str:
    """Return, of rows of (where, mode, values), the first and the last mode's at each place."""
    told = []
    for where in dict.fromkeys(row[0] for row in rows):
        here = [row for row in rows if row[0] == where and not row[1].startswith("plain")]
        ends = (f"{mode} {' / '.join(values)}" for _, mode, *values in (here[0], here[-1]))
        told.append(f"{where}: {', '.join(ends)}")
    return "; ".join(told)


def ladder(reports: Reports) -> Iterator[Result]:
    """Yield what every mode gives: factors, parts, bytes, switches."""
    lanes = lanes_of(reports)
    rows, parts, switches, told = [], [], [], []
    for where, found in by_where(lanes).items():
        base = found.get("py-lmdb")
        for name, one in found.items():
            factor = over(base, one) if base is not None else math.nan
            rows.append((where, name, spread_text(one.spread("reading_s")),
                         figure(one.spread("rate").median), figure(factor),
                         figure(one.spread("amplified").median)))  # fmt: skip
            cells = (one.spread(part).median for part in PARTS)
            parts.append((where, name, *map(figure, cells)))
            switches.append((where, name, figure(one.spread("switches_per_record").median),
                             f"{one.spread('sleep_share').median:.0%}"))  # fmt: skip
        if base is not None:
            factors = ", ".join(
                f"{name} {figure(over(base, one))}" for name, one in found.items()
                if name not in ("py-lmdb", "lmdb") and not name.startswith("plain")
            )  # fmt: skip
            plain = [one.spread("rate").median for one in lanes
                     if one.where == where and one.name.startswith("plain")]  # fmt: skip
            share = (
                f"; py-lmdb has {base.spread('rate').median / max(plain):.1%} of plain reads"
                if plain else ""
            )  # fmt: skip
            told.append(f"{where}: {factors}{share}")
    head = ("where", "mode")
    modes = {
        where: [one for one in found.values() if not one.name.startswith("plain")]
        for where, found in by_where(lanes).items()
    }
    yield Result(
        "ladder", "modes", "Every mode, reading alone: measured",
        f"times as fast as py-lmdb in Caffe's pattern: {'; '.join(told)}",
        Table("", (*head, "reading, s", "MB/s", "times py-lmdb", "read / needed"), rows, head),
        picture="".join(
            pictures.bars(f"Times as fast as py-lmdb: {where}", times_of(found), "")
            for where, found in by_where(lanes).items()
        ),
    )  # fmt: skip
    yield Result(
        "parts", "modes", "Where the time of a reading rank goes, seconds",
        f"seconds of seeking, I/O, turns, skew: {ends_of(parts)}",
        Table("", (*head, *PARTS.values()), parts, head),
        picture="".join(
            pictures.stacked(
                f"Seconds of a reading rank: {where}", "mode", "s", [one.name for one in found],
                {word: [one.spread(name).median for one in found]
                 for name, word in PARTS.items()},
            )
            for where, found in modes.items()
        ),
    )  # fmt: skip
    yield Result(
        "switches", "modes", "Context switches",
        f"context switches for each record, time asleep: {ends_of(switches)}",
        Table("", (*head, "switches a record", "asleep"), switches, head),
    )  # fmt: skip
    sizes = [
        (name, f"{one['count']:,}", f"{one['file_bytes'] / MIB:,.0f}", f"{one['sidecar_bytes']:,}")
        for report in reports
        for name, one in report["sets"].items()
        if one.get("sidecar_bytes")
    ]
    yield Result(
        "sidecars", "modes", "Provenance files",
        "; ".join(f"{name}: {taken} bytes for {count} records" for name, count, _, taken in sizes),
        Table("", ("data set", "records", "file, MiB", "provenance, bytes"), sizes),
    )  # fmt: skip


def growth(reports: Reports) -> Iterator[Result]:
    """Yield seconds by ranks."""
    lanes, cells = lanes_of(reports), dict[tuple[str, str], dict[str, dict[str, Lane]]]()
    names = list(dict.fromkeys(one.name for one in lanes))
    for one in lanes:
        kind = one.cell["dataset"], one.cell["scaling"]
        cells.setdefault(kind, {}).setdefault(one.shape, {})[one.name] = one
    rows, told, drawn = [], [], []
    for (dataset, scaling), shapes in cells.items():
        series = {name: [seconds_in(one, name) for one in shapes.values()] for name in names}
        rows += [
            (dataset, scaling, shape, *(figure(series[name][i]) for name in names))
            for i, shape in enumerate(shapes)
        ]
        ends = sorted({0, len(shapes) - 1})
        where = ", ".join(list(shapes)[i] for i in ends)
        times = (f"{name} {', '.join(f'{figure(series[name][i])} s' for i in ends)}"
                 for name in (names[0], names[-1]))  # fmt: skip
        told.append(f"{dataset}, {scaling}, {where}: {'; '.join(times)}")
        drawn.append(pictures.lines(
            f"{scaling.capitalize()} scaling, {dataset}", "ranks", "seconds of reading",
            [shape.split()[0] for shape in shapes], series,
        ))  # fmt: skip
    heads = ("data set", "scaling", "shape")
    yield Result(
        "growth", "growth", "Seconds of reading by ranks, four on a node: measured",
        ". ".join(told),
        Table("", (*heads, *(f"{name}, s" for name in names)), rows, heads),
        picture="".join(drawn),
    )  # fmt: skip


def seconds_in(found: Mapping[str, Lane], name: str) -> float | None:
    """Return the seconds of a lane, if it ran there."""
    return found[name].seconds if name in found else None


def blocks(reports: Reports) -> Iterator[Result]:
    """Yield one process's rate by the size of its requests."""
    rates: dict[int, dict[str, float]] = {}
    for report in reports:
        for made in report["block_sizes"]:
            for one in made["lanes"]:
                if one["figures"]:
                    way = one["lane"]["name"].split()[0]
                    rate = statistics.median(f["rate"] for f in one["figures"])
                    rates.setdefault(one["lane"]["transfer"], {})[way] = rate
    ways = ("mmap", "pread", "O_DIRECT")
    rows = [
        (f"{size >> 10:,} KiB", *(figure(found.get(way)) for way in ways))
        for size, found in sorted(rates.items())
    ]
    least, most = rates[min(rates)], rates[max(rates)]
    yield Result(
        "blocks", "blocks", "One process, one request at a time, by the size of its requests",
        f"requests of 4 KiB: a mapping {figure(least.get('mmap'))} MB/s, pread "
        f"{figure(least.get('pread'))}; of {max(rates) >> 20} MiB: {figure(most.get('mmap'))} and "
        f"{figure(most.get('pread'))}",
        Table("", ("request", *(f"{way}, MB/s" for way in ways)), rows),
        picture=pictures.lines(
            "One process by the size of its requests", "KiB of a request", "MB/s",
            [f"{size >> 10:,}" for size in sorted(rates)],
            {way: [rates[size].get(way) for size in sorted(rates)] for way in ways},
        ),
    )  # fmt: skip


# --- reading beside training ---------------------------------------------------------------


def hidden(name: str, words: str) -> Callable[[Reports], Iterator[Result]]:
    """Return what makes a result of runs beside ranks that sleep."""

    def results(reports: Reports) -> Iterator[Result]:
        lanes, rows, told = lanes_of(reports), [], []
        for one in lanes:
            waited, whole = sum(one.waits()), sum(one.epochs())
            sleeping = one.cell["compute_ms"]
            rows.append((one.where, f"{sleeping:g}", one.name, figure(whole), figure(waited),
                         f"{waited / whole:.0%}"))  # fmt: skip
            told.append(f"{one.name} {waited / whole:.0%}")
        heads = ("where", "computing, ms", "way")
        yield Result(
            name, name, words,
            f"share of the job in which a rank waits: {', '.join(dict.fromkeys(told))}",
            Table("", (*heads, "job, s", "waiting, s", "share"), rows, heads),
            picture=pictures.stacked(
                words, "way", "seconds of the job", [one.name for one in lanes],
                {
                    "a rank waits": [sum(one.waits()) for one in lanes],
                    "computing": [sum(one.epochs()) - sum(one.waits()) for one in lanes],
                },
            ),
        )  # fmt: skip

    return results


def groups(reports: Reports) -> Iterator[Result]:
    """Yield waiting by the size of groups."""
    rows, told = [], []
    for one in lanes_of(reports):
        waited = sum(one.waits())
        size = one.cell["batch"]
        rows.append((one.where, f"{size:,}", figure(sum(one.epochs())), figure(waited)))
        told.append((size, waited))
    best = min(told, key=lambda one: one[1])
    yield Result(
        "groups", "groups", "Groups of one batch each, by the records of a batch",
        f"ranks wait least ({figure(best[1])} s) with groups of {best[0]:,} records",
        Table("", ("where", "records of a group", "job, s", "waiting, s"), rows),
        picture=pictures.lines(
            "Waiting by the size of groups", "records of a group", "seconds of waiting",
            [f"{size:,}" for size, _ in told], {"group": [waited for _, waited in told]},
        ),
    )  # fmt: skip


# --- orders and homes ----------------------------------------------------------------------


def epochs_table(lanes: Sequence[Lane]) -> Table:
    """Return the epochs of lanes, and what they took from the store."""
    count = max(len(one.epochs()) for one in lanes)
    rows = [
        (one.where, one.name, *map(figure, one.epochs()), figure(sum(one.waits())),
         f"{one.read_mib:,.0f}")
        for one in lanes
    ]  # fmt: skip
    heads = ("where", "way", *(f"epoch {i}, s" for i in range(count)))
    return Table("", (*heads, "waiting, s", "from the store, MiB"), rows, ("where", "way"))


def orders(reports: Reports) -> Iterator[Result]:
    """Yield exact order, groups and windows, with and without memory."""
    lanes, told = lanes_of(reports), []
    for where, found in by_where(lanes).items():
        if "global" in found and "cached" in found:
            exact, kept, windows, mixed = (
                found[name] for name in ("global", "cached", "window", "mixed")
            )
            told.append(
                f"{where}: as fast as exact order from the store are the same out of memory for "
                f"half of the file {figure(over(exact, kept))} times, windows "
                f"{figure(over(exact, windows))}, mixed {figure(over(exact, mixed))}"
            )
    yield Result("orders", "orders", "Orders, with memory for half of the file and for none",
                 "; ".join(told), epochs_table(lanes), picture=epochs_drawn(lanes))  # fmt: skip


def epochs_drawn(lanes: Sequence[Lane]) -> str:
    """Draw each epoch's seconds, of the lanes at each place."""
    return "".join(
        pictures.grouped(
            where, "epoch", "seconds",
            [str(i) for i in range(len(next(iter(found.values())).epochs()))],
            {name: one.epochs() for name, one in found.items()},
        )
        for where, found in by_where(lanes).items()
    )  # fmt: skip


def nodes(reports: Reports) -> Iterator[Result]:
    """Yield a later epoch by nodes."""
    lanes, told = lanes_of(reports), []
    for where, found in by_where(lanes).items():
        if "global" in found and "local" in found:
            store, kept = found["global"], found["local"]
            told.append(
                f"{where}: {figure(over(store, kept))} ({store.read_mib:,.0f} MiB from the store, "
                f"by locality {kept.read_mib:,.0f})"
            )
    yield Result(
        "nodes", "nodes", "Epochs by nodes: from the store, out of kept memory, and local",
        f"three epochs take so many times as long from the store as by locality: {told[0]}; "
        f"{'; '.join(told[1:])}",
        epochs_table(lanes),
        picture="".join(
            nodes_lines(name, [one for one in lanes if one.cell["dataset"] == name])
            for name in dict.fromkeys(one.cell["dataset"] for one in lanes)
        ),
    )  # fmt: skip


def nodes_lines(dataset: str, lanes: Sequence[Lane]) -> str:
    """Draw the last epoch's seconds by nodes."""
    wheres = by_where(lanes)
    last = {
        name: [found[name].epochs()[-1] if name in found else None for found in wheres.values()]
        for name in dict.fromkeys(one.name for one in lanes)
    }
    shapes = [next(iter(found.values())).cell["shape"] for found in wheres.values()]
    places = [str(one["nodes"]) for one in shapes]
    return pictures.lines(f"The last epoch, {dataset}", "nodes", "seconds", places, last)


def policies(reports: Reports) -> Iterator[Result]:
    """Yield every policy, measured and simulated."""
    rows, far, late, dots = [], [], 0, dict[str, list[tuple[float, float]]]()
    for one in lanes_of(reports):
        told = one.runs[0]["simulated"]
        expected = sum(seconds for seconds, _ in told["epochs"])
        measured = sum(one.epochs())
        late += late_of(one.runs[0])
        far.append(abs(expected / measured - 1))
        dots.setdefault(one.name, []).append((measured, expected))
        rows.append((one.where, one.name, figure(measured), figure(expected),
                     figure(sum(one.waits())), f"{one.read_mib:,.0f}"))  # fmt: skip
    slow, fast = (choose(rows, key=lambda row: float(row[2].replace(",", "")))
                  for choose in (max, min))  # fmt: skip
    yield Result(
        "policies", "policies", "Every policy that a Reader runs, measured and simulated",
        f"{slow[1]} takes {slow[2]} s, {fast[1]} {fast[2]} s; {late} rows of late roots; "
        f"simulated seconds differ by {statistics.median(far):.0%} in the median",
        Table("", ("where", "policy", "job, s", "simulated, s", "waiting, s",
                   "from the store, MiB"), rows, ("where", "policy")),
        picture=pictures.bars(
            "Seconds of the job, measured", {name: found[0][0] for name, found in dots.items()}
        ) + pictures.scatter(*PREDICTED_AXES, dots),
    )  # fmt: skip


# --- other loaders -------------------------------------------------------------------------


def loaders(reports: Reports) -> Iterator[Result]:
    """Yield loaders of PyTorch's, held against ours."""
    lanes, told, verdicts = lanes_of(reports), [], []
    for where, found in by_where(lanes).items():
        ours = found.get("loader-cached")
        for name, one in found.items():
            if ours is None or name.startswith("loader"):
                continue
            ratio = sum(one.epochs()) / sum(ours.epochs())
            told.append(f"{name} {figure(ratio)}")
            later = one.epochs()[-1] / max(1e-9, ours.epochs()[-1])
            verdicts.append(judged(
                "lmdbio's Loader with a cache, beside another loader", f"{where}, {name}", ratio,
                least=1.0, note=f"last epoch {figure(later)} times, bytes from the store "
                f"{figure(one.read_mib / max(1e-9, ours.read_mib))} times",
            ))  # fmt: skip
    yield Result(
        "loaders", "loaders", "Loaders of PyTorch's on the same cluster",
        f"times as long as lmdbio's Loader with a cache: {', '.join(told)}",
        epochs_table(lanes), tuple(verdicts), epochs_drawn(lanes),
    )  # fmt: skip


# --- "auto" --------------------------------------------------------------------------------

PLACEMENTS = ("none", "home", "first", "frequency")
KEPT = re.compile(r"(\d+) roots? keeps? (\d+) of (\d+) MiB")


def fixed_words(reports: Reports) -> tuple[str, ...]:
    """Return the words that let fixed placements have as much memory as "auto" took.

    Their nodes are as small: what a cache leaves is the window's.
    """
    made = []
    for report in reports:
        words = list(report["command"][1:])
        (auto,) = lanes_of([report])
        kept = KEPT.search(auto.runs[0]["ranks"][0]["kept"])
        memory = math.ceil(int(kept[2]) / int(kept[1])) if kept else 0
        if "--json" in words:
            del words[words.index("--json") : words.index("--json") + 2]
        at = words.index("--placements") + 1
        words[at] = ",".join(PLACEMENTS)
        made.append(" ".join([*words, "--cache", f"memory={max(1, memory)}M"]))
    return tuple(made)


def auto(reports: Reports) -> Iterator[Result]:
    """Yield what "auto" gives beside each fixed placement: half of the reports are of it."""
    half = len(reports) // 2
    rows, verdicts = [], []
    for chosen, fixed in zip(reports[:half], reports[half:], strict=True):
        (mine,), others = lanes_of([chosen]), lanes_of([fixed])
        if len(others) != len(PLACEMENTS):
            ran = ", ".join(one.name for one in others)
            raise ValueError(f"{mine.where}: of the fixed placements only {ran or 'none'} ran")
        best = min(others, key=lambda one: one.seconds)
        kept = mine.runs[0]["ranks"][0]["kept"].split(",")[0]
        share = best.seconds / mine.seconds
        rows.append((mine.where, kept, figure(mine.seconds),
                     *(figure(one.seconds) for one in others), figure(share)))  # fmt: skip
        verdicts.append(judged('cache="auto" beside the best fixed placement',
                               f"{mine.where}, {kept}", share, least=AUTO_SHARE,
                               note=f"best: {best.name}"))  # fmt: skip
    worst = min((one.figure or 0.0) for one in verdicts)
    yield Result(
        "auto", "auto", 'cache="auto" beside fixed placements with as much memory, exact order',
        f'cache="auto" reaches {figure(worst)} of the best fixed placement or more, in '
        f"{len(verdicts)} cells",
        Table("", ("where", "auto keeps", "auto, s", *(f"{name}, s" for name in PLACEMENTS),
                   "best / auto"), rows, ("where", "auto keeps")), tuple(verdicts),
        pictures.bars(
            'cache="auto" beside the best fixed placement: more is better',
            {one.where: one.figure for one in verdicts}, "",
        ),
    )  # fmt: skip


# --- prediction ----------------------------------------------------------------------------


def prediction(reports: Reports) -> Iterator[Result]:
    """Yield predicted jobs beside measured ones."""
    rows, far, wrong = [], [], list[str]()
    dots: dict[str, list[tuple[float, float]]] = {}
    rates: Sequence[str] = ()
    for one in lanes_of(reports):
        told = one.runs[0]["simulated"]
        expected = sum(seconds for seconds, _ in told["epochs"])
        stalled = sum(stall for _, stall in told["epochs"])
        measured = sum(one.epochs())
        far.append(abs(expected / measured - 1))
        dots.setdefault(one.name, []).append((measured, expected))
        rates = max(rates, told["rates"], key=len)
        late, differ = late_of(one.runs[0]), counts_that_differ(one.runs[0])
        if differ:
            wrong.append(f"{one.where} {one.name}" + f" ({late} late rows)" * bool(late))
        seed = one.cell["seed"] + one.lane["seed"]
        rows.append((one.where, str(seed), one.name, figure(measured),
                     figure(expected), f"{expected / measured - 1:+.1%}", figure(sum(one.waits())),
                     figure(stalled), "NO" if differ else "yes"))  # fmt: skip
    median, worst = statistics.median(far), max(far)
    verdicts: list[Verdict] = [
        judged("predicted seconds off the measured ones, median", f"{len(far)} jobs", median,
               most=PREDICTED_SHARE, note=f"worst {worst:.1%}"),
        judged("jobs whose source counts are as predicted", f"{len(far)} jobs",
               1 - len(wrong) / len(far), least=1.0, note="; ".join(wrong)),
    ]  # fmt: skip
    heads = ("where", "seed", "policy")
    yield Result(
        "prediction", "prediction", "Jobs as lmdbio tune's rates predict them, and as they were",
        f"predicted jobs differ by {median:.1%} in the median, {worst:.1%} at worst",
        Table("", (*heads, "measured, s", "predicted, s", "off", "waiting, s",
                   "predicted waiting, s", "counts agree"), rows, heads), tuple(verdicts),
        pictures.scatter(*PREDICTED_AXES, dots),
    )  # fmt: skip
    yield Result("tuned", "prediction", "What lmdbio tune measured there", "; ".join(rates),
                 Table("", ("rate",), [(one,) for one in rates]))  # fmt: skip
