"""Run a command before a modelled parallel file system: builds, mounts, runs, unmounts.

    python -m benchmarks.pfs.run [--mounts N] [--set NAME=VALUE ...] FOLDER -- COMMAND...

FOLDER is shown at N mount points, as slow as the store of model.conf would be. The command
finds them in its environment (PFS_MOUNT0, PFS_MOUNT1, ...; PFS_MOUNTS says how many) and in its
own words, where {mount0} stands for the first. The store's counters are printed at the end, to
standard error.

The exit status is the command's; 69 if this machine cannot mount (one line says why), 70 if
mounting failed.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import command
from benchmarks.pfs import pfs


def row(title: str, counts: dict[str, Any], seconds: float) -> str:
    return (
        f"{title:20}{counts['requests']:>10,}{counts['bytes'] / 1e6:>12,.1f}"
        f"{counts['seeks']:>9,}{counts['busy_s']:>10.3f}"
        f"{100 * counts['busy_s'] / max(seconds, 1e-9):>8.1f}"
    )


def table(counters: dict[str, Any], seconds: float) -> str:
    lines = [f"{'':20}{'requests':>10}{'MB':>12}{'seeks':>9}{'busy s':>10}{'busy %':>8}"]
    for i, mount in enumerate(counters["mounts"]):
        lines += [
            row(f"mount {i}, server {j}", counts, seconds)
            for j, counts in enumerate(mount["servers"])
        ]
        lines.append(row(f"mount {i}, link", mount["link"], seconds))
    if len(counters["mounts"]) > 1:
        for j, each in enumerate(zip(*(m["servers"] for m in counters["mounts"]), strict=True)):
            total = {name: sum(counts[name] for counts in each) for name in each[0]}
            lines.append(row(f"all, server {j}", total, seconds))
    return "\n".join([*lines, punctuality(counters, seconds)])


def punctuality(counters: dict[str, Any], seconds: float) -> str:
    answers = counters["answers"]
    late = 1e3 * counters["late_s"] / max(answers, 1)
    text = (
        f"{seconds:.3f} s; {answers:,} answers, late by {late:.3f} ms on average, "
        f"{1e3 * counters['late_s_max']:.1f} ms at most"
    )
    if counters["backing_late"]:
        text += (
            f"\n{counters['backing_late']:,} of them waited for the folder's own storage or for a "
            "processor: if these are many, the times are this machine's and not the model's"
        )
    return text


def main(words: list[str]) -> int:
    parser = command.parser("benchmarks.pfs.run", __doc__)
    add = parser.add_argument
    add("--mounts", type=int, default=1, choices=range(1, 17), metavar="N", help="emulated nodes")
    usual = " ".join(pfs.constants())
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help=f"another constant; x2 is twice the usual: {usual}")  # fmt: skip
    chosen = parser.parse_args(words)
    try:
        constants = pfs.constants(chosen.set)
    except ValueError as error:
        parser.error(f"--set {error}")

    def before_the_store() -> int:
        with pfs.mounted(chosen.folder, mounts=chosen.mounts, constants=constants) as store:
            mounts = {f"mount{i}": mount for i, mount in enumerate(store.mounts)}
            code, seconds = command.run(chosen.command, "PFS", mounts)
        whole = {"constants": store.constants, "seconds": seconds, "exit": code, **store.last}
        command.report(chosen.json, whole, table(store.last, seconds))
        return code

    return command.guarded(before_the_store)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
