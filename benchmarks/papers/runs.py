"""The runs on the emulated cluster: their words, and what makes results of their reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.papers import measured
from benchmarks.papers.claims import Result
from benchmarks.papers.lanes import Reports

__all__ = ["RUNS", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the cluster, or several that belong together.

    Attributes:
        name: by which results name it.
        gives: names of its results.
        words: of ``benchmarks.cluster.run``, for each.
        results: of their reports.
        quick: the words where there are three minutes for all; none: it is left out then.
        after: words of further runs, which follow from the reports; None: there are none.
    """

    name: str
    gives: tuple[str, ...]
    words: tuple[str, ...]
    results: Callable[[Reports], Iterator[Result]]
    quick: tuple[str, ...] = ()
    after: Callable[[Reports], tuple[str, ...]] | None = None


#: Nothing is in a page cache.
BARE = "--assignments strided --no-verify --set page_cache=0"
#: Ranks that sleep for each iteration stand for training.
BESIDE = f"--ranks 4 --nodes 4 --modes global,group,window,cached --epochs 2 {BARE}"
LARGE = f"{BESIDE} --sets 110k --mib 200 --cache memory=60M --rounds 3 --compute-ms 60"
#: A store that is quick beside the computing.
QUICK_STORE = "--set out_of_order_ms=0.2 --set server_mb_s=400 --set client_mb_s=600"
MODES = "py-lmdb,lmm,dm,dio,prov,coal,stag"
#: Policies whose jobs are predicted: from the store alone, with homes, and by windows.
PREDICTED = "staging_pool,lmdbio,locality_aware,deepio_opportunistic,lmdbio_mixed"
SMALL_RUN = f"--ranks 8 --nodes 4 --sets 110k --mib 64 --epochs 3 --rounds 1 {BARE}"


def auto_words() -> tuple[str, ...]:
    """Return the runs of cache="auto": two sizes of records, with room and without, 2 and 4 nodes.

    Without room the memory of each node is bounded, and batches are small, so that their windows
    have room beside what is kept. Requests out of order cost a quarter of the usual where records
    are small, or the runs would take an hour.
    """
    cells = (
        ("3k", "--mib 48 --rounds 3 --set out_of_order_ms=0.5", ""),
        ("3k", "--mib 400 --rounds 1 --batch 512 --set out_of_order_ms=0.5", "--node-mib 200"),
        ("110k", "--mib 150 --rounds 3", ""),
        ("110k", "--mib 600 --rounds 1 --batch 96", "--node-mib 220 --memory-mib {memory}"),
    )
    return tuple(
        f"--placements auto --ranks 4 --nodes {nodes} --epochs 2 --sets {name} {size} "
        f"{bound.format(memory=80 * nodes)} {BARE}"
        for name, size, bound in cells
        for nodes in (2, 4)
    )


RUNS = (
    Run(
        "modes",
        ("ladder", "parts", "switches", "sidecars"),
        (
            f"--ranks 16 --nodes 4 --modes {MODES},plain --tokens 1,2 --sets 3k,192k --mib 96 "
            "--rounds 3",
        ),
        measured.ladder,
        (
            f"--ranks 8 --nodes 4 --modes {MODES} --tokens 1 --sets 3k --mib 24 --rounds 1 "
            "--no-verify",
        ),
    ),
    Run(
        "growth",
        ("growth",),
        (
            f"--ranks 1,4,16 --fill 4 --modes {MODES} --tokens 1 --sets 3k,192k --mib 48 "
            "--rounds 1 --scalings strong,weak --no-verify",
        ),
        measured.growth,
    ),
    Run(
        "blocks",
        ("blocks",),
        (
            "--ranks 1 --nodes 1 --modes coal --sets 192k --mib 96 --rounds 1 --block-sizes "
            "--no-verify",
        ),
        measured.blocks,
    ),
    Run(
        "hidden",
        ("hidden",),
        (LARGE,),
        measured.hidden("hidden", "Reading beside training: 110 KB, the usual store"),
    ),
    Run(
        "hidden-quick",
        ("hidden-quick",),
        (f"{LARGE} {QUICK_STORE}",),
        measured.hidden("hidden-quick", "Reading beside training: 110 KB, a quick store"),
    ),
    Run(
        "hidden-small",
        ("hidden-small",),
        (f"{BESIDE} --sets 3k --mib 64 --cache memory=20M --rounds 1 --compute-ms 20",),
        measured.hidden("hidden-small", "Reading beside training: 3 KB"),
    ),
    Run(
        "groups",
        ("groups",),
        tuple(
            f"--ranks 4 --nodes 4 --modes group --sets 3k --mib 64 --epochs 2 --rounds 1 "
            f"--batch {size} --compute-ms {size / 50:g} {BARE}"
            for size in (128, 512, 2048)
        ),
        measured.groups,
    ),
    Run(
        "orders",
        ("orders",),
        tuple(
            f"--ranks 8 --nodes 4 --modes global,group,window,mixed,cached --sets {name} "
            f"--mib {mib} --epochs 3 --rounds {rounds} --cache memory={mib // 8}M {BARE}"
            for name, mib, rounds in (("3k", 64, 1), ("110k", 200, 3))
        ),
        measured.orders,
    ),
    Run(
        "nodes",
        ("nodes",),
        tuple(
            f"--ranks 4 --nodes 1,2,4 --modes global,cached,local --sets {name} --mib {mib} "
            f"--epochs 3 --rounds {rounds} --cache memory=1G {BARE}"
            for name, mib, rounds in (("3k", 48, 1), ("110k", 200, 3))
        ),
        measured.nodes,
    ),
    Run(
        "policies",
        ("policies",),
        (
            "--ranks 8 --nodes 4 --policies all --sets 110k --mib 300 --epochs 3 --rounds 3 "
            f"--compute-ms 20 --cache memory=40M {BARE}",
        ),
        measured.policies,
        (
            f"{SMALL_RUN} --policies staging_pool,lmdbio,locality_aware,deepio_opportunistic "
            "--compute-ms 20 --cache memory=1G",
        ),
    ),
    Run(
        "loaders",
        ("loaders",),
        (
            "--ranks 4 --nodes 4 --loaders all --sets 110k --mib 200 --epochs 2 --rounds 1 "
            "--compute-ms 20 --node-mib 200 --cache memory=60M --assignments strided --no-verify",
        ),
        measured.loaders,
    ),
    Run("auto", ("auto",), auto_words(), measured.auto, after=measured.fixed_words),
    Run(
        "prediction",
        ("prediction", "tuned"),
        tuple(
            f"--ranks 8 --nodes {nodes} --tuned --policies {PREDICTED} --sets {name} "
            f"--mib {mib} --epochs 3 --rounds 1 --compute-ms {ms} --cache memory={mib // 8}M "
            f"--seed {seed} {BARE}"
            for name, mib, ms, nodes, seed in (
                ("3k", 48, 10, 2, 11),
                ("3k", 48, 10, 4, 12),
                ("110k", 200, 20, 2, 13),
                ("110k", 200, 20, 4, 14),
            )
        ),
        measured.prediction,
        (f"{SMALL_RUN} --tuned --policies staging_pool,lmdbio --compute-ms 60 --cache memory=8M",),
    ),
)
