"""machine_rules: findings about the machine, and the limits of a process there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lmdbio.doctor.facts import Facts
from lmdbio.doctor.finding import Finding, size_text

__all__ = ["judge_memory", "judge_processors", "judge_limits", "judge_mpi", "judge_transform"]

#: A data set of many files needs a descriptor for each.
OPEN_FILES_FEW = 1024
#: Docker gives containers so much of /dev/shm unless told otherwise.
SHM_BYTES_FEW = 64 << 20
#: Two threads that make so many times as many samples as one: less, and the transform holds
#: Python's lock; more, and it lets go of it.
LOCKED_GAIN, FREE_GAIN = 1.3, 1.6


def judge_memory(facts: Facts) -> Iterator[Finding]:
    """Judge memory, and /dev/shm."""
    memory = facts.memory
    by = ", as its control group allows" if memory.is_grouped else ""
    yield Finding(
        "memory",
        "good",
        f"{size_text(memory.available_bytes)} can be had{by}; a Records or a Reader takes up to "
        f"{size_text(memory.budget_bytes)} (memory_bytes_max=).",
    )
    free = memory.shm_free_bytes
    if free is None:
        return
    if free <= SHM_BYTES_FEW:
        yield Finding(
            "/dev/shm",
            "problem" if facts.mpi.ranks > 1 else "note",
            f"{size_text(free)} are free: ranks that share windows need more (docker run "
            "--shm-size, or an emptyDir of medium Memory), and so do workers of a DataLoader.",
        )
    elif free < memory.budget_bytes:
        yield Finding(
            "/dev/shm",
            "note",
            f"{size_text(free)} are free, less than a Reader's budget of memory.",
        )
    else:
        yield Finding("/dev/shm", "good", f"{size_text(free)} are free for windows of ranks.")


def judge_processors(facts: Facts) -> Iterator[Finding]:
    """Judge the processors."""
    limits = facts.limits
    usable, all_there = limits.processors, limits.machine_processors
    if limits.quota is not None and limits.quota < usable:
        yield Finding(
            "processors",
            "note",
            f"The control group gives the time of {limits.quota:g} of {usable} processors: more "
            "threads than that hold each other up.",
        )
    elif usable == 1 and all_there > 1:
        yield Finding(
            "processors",
            "note",
            f"This process may use one of {all_there} processors (bound by a launcher?): reading "
            "and decoding take turns.",
        )
    elif usable == 1:
        yield Finding("processors", "note", "There is one: reading and decoding take turns.")
    else:
        of = f" of {all_there}" if usable < all_there else ""
        yield Finding("processors", "good", f"{usable}{of} can be used.")


def judge_limits(facts: Facts) -> Iterator[Finding]:
    """Judge the limits of this process."""
    limits = facts.limits
    files, hard = limits.open_files, limits.open_files_hard
    if files is not None and files <= OPEN_FILES_FEW:
        can = "" if hard is None or hard > files else ", and it cannot be raised"
        yield Finding(
            "limits",
            "note",
            f"{files:,} files may be open at a time (ulimit -n){can}: few for a data set of many "
            "files and many workers.",
        )
    address = limits.address_bytes
    if address is not None and address < 2 * facts.data.used_bytes:
        yield Finding(
            "limits",
            "note",
            f"The address space is bounded to {size_text(address)} (ulimit -v): lmdbio does not "
            "map the file, py-lmdb has to.",
        )
    if limits.mappings is not None and limits.mappings < 65530:
        yield Finding(
            "limits",
            "note",
            f"A process may have {limits.mappings:,} mappings (vm.max_map_count), which is few.",
        )
    if facts.uring and limits.locked_bytes is not None and limits.locked_bytes < 1 << 20:
        yield Finding(
            "limits",
            "note",
            f"{size_text(limits.locked_bytes)} may be locked (ulimit -l): before Linux 5.12, many "
            "io_urings need more.",
        )


def judge_mpi(facts: Facts) -> Iterator[Finding]:
    """Judge MPI."""
    mpi = facts.mpi
    found = f"{mpi.library or 'an MPI'} ({mpi.launcher})" if mpi.launcher else ""
    if mpi.ranks > 1 and not mpi.mpi4py:
        yield Finding(
            "MPI",
            "problem",
            f"A launcher has started {mpi.ranks} ranks, and mpi4py is not installed: each of them "
            "would read for itself (pip install 'lmdbio[mpi]').",
        )
    elif mpi.ranks > 1:
        yield Finding(
            "MPI", "good", f"One of {mpi.ranks} ranks, with mpi4py {mpi.mpi4py}: Reader(comm=...)."
        )
    elif mpi.mpi4py and found:
        yield Finding("MPI", "good", f"mpi4py {mpi.mpi4py}, and {found} to start ranks.")
    elif mpi.mpi4py:
        yield Finding(
            "MPI", "note", f"mpi4py {mpi.mpi4py}, but no mpiexec is found to start ranks."
        )
    else:
        yield Finding("MPI", "good", "mpi4py is not installed: one process does all.")


def judge_transform(facts: Facts) -> Iterator[Finding]:
    """Judge the transform that the user named, if any."""
    transform = facts.transform
    if not transform.name:
        return
    if transform.error:
        text = f"{transform.name} raised {transform.error}."
        yield Finding("transform", "problem", text)
        return
    if transform.seconds is None:
        yield Finding("transform", "note", f"{transform.name}: there is no record to try it on.")
        return
    takes = f"{transform.name} takes {1e6 * transform.seconds:,.0f} us a record"
    if transform.gain is None:
        yield Finding("transform", "good", f"{takes}; one processor makes one at a time.")
        return
    gives = f"two threads give {transform.gain:.2f} times as many samples as one"
    if transform.gain >= FREE_GAIN:
        yield Finding(
            "transform",
            "good",
            f"{takes}, and lets go of Python's lock ({gives}): threads of a Loader suit it.",
        )
        return
    if (transform.free_gain or 0.0) < FREE_GAIN:
        yield Finding(
            "transform",
            "note",
            f"{takes}; whether it holds Python's lock cannot be told while the machine is busy "
            f"({gives}, and {transform.free_gain or 0.0:.2f} where nothing holds it).",
        )
        return
    part = "" if transform.gain < LOCKED_GAIN else " for a part of that"
    yield Finding(
        "transform",
        "note",
        f"{takes}, and holds Python's lock{part} ({gives}): threads hold each other up, and the "
        "training's step. A Loader turns to processes by itself, unless processes=0 or threads= "
        "forbid it; where values are arrays or images, decode= makes whole batches without it.",
    )
