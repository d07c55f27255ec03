"""rules: what follows from facts, by topic: good, a note, or a problem, a sentence each. Pure.

A bound that decides stands beside the rules, with its reason. No gain is named that nobody has
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from lmdbio.doctor.facts import DataFacts, Facts, TunedFacts
from lmdbio.machine.page_reporting import REMEDY, is_felt
from lmdbio.system.amounts import count_text, size_text

__all__ = [
    "OUT_OF_ORDER",
    "RULES",
    "SMALL_BYTES",
    "Severity",
    "WALK_BYTES_FELT",
    "is_cached",
    "is_half_empty",
    "order_text",
]

Severity: TypeAlias = Literal["good", "note", "problem"]
Verdicts: TypeAlias = Iterator[tuple[Severity, str]]

#: Trees above this take a walk long enough to be felt, at each open without a provenance file.
WALK_BYTES_FELT = 16 << 20
#: Values below this are read at random in requests whose time is not that of their bytes.
SMALL_BYTES = 16 << 10
#: Neighbours in the sample by chance lie in order half of the time.
IN_ORDER, OUT_OF_ORDER = 0.95, 0.75
#: Of a file, so much may be free before a copy is worth its time.
FREE_SHARE = 0.3
#: From this share on the page cache counts as having the whole file.
CACHED_SHARE = 0.99
#: Snapshots this old keep a writer from reusing pages, so that the file grows.
BEHIND_MANY = 100
#: A data set of many files needs a descriptor for each.
OPEN_FILES_FEW = 1024
#: Docker gives containers so much of /dev/shm unless told otherwise.
SHM_BYTES_FEW = 64 << 20
#: Two threads that make so many times as many samples as one: less, and the transform holds
#: Python's lock; more, and it lets go of it.
LOCKED_GAIN, FREE_GAIN = 1.3, 1.6


def good(text: str) -> tuple[Severity, str]:
    """Return the verdict that a thing is as it should be."""
    return "good", text


def note(text: str) -> tuple[Severity, str]:
    """Return the verdict that a thing is worth knowing."""
    return "note", text


def problem(text: str) -> tuple[Severity, str]:
    """Return the verdict that a thing does not work as it should."""
    return "problem", text


# --- the data set -------------------------------------------------------------------------


def judge_file(facts: Facts) -> Verdicts:
    """Judge whether the file is whole."""
    data = facts.data
    if data.damage:
        yield problem(f"It is damaged: {data.damage}.")
    elif data.file_bytes < data.used_bytes:
        lacking = size_text(data.used_bytes - data.file_bytes)
        yield problem(
            f"It ends {lacking} before the last page that it counts: a copy that was cut, unless "
            "those pages are free ones."
        )
    else:
        yield good(f"{count_text(data.entries, 'record')}, {size_text(data.used_bytes)}, whole.")
    if data.holds_named_only:
        names = ", ".join(data.named[:4]) + ", ..." * (len(data.named) > 4)
        yield note(f"It holds only named databases: {names} (--db NAME).")


def judge_free_pages(facts: Facts) -> Verdicts:
    """Judge how much of the file is free."""
    data = facts.data
    if is_half_empty(data) and data.free_bytes:
        share = data.free_bytes / data.used_bytes
        yield note(
            f"{size_text(data.free_bytes)} within the file, {share:.0%} of it, are free: lmdbio "
            "compact makes a copy without them."
        )


def is_half_empty(data: DataFacts) -> bool:
    """Say whether so much of a file is free that a copy is worth its time."""
    return data.used_bytes > 0 and (data.free_bytes or 0) > FREE_SHARE * data.used_bytes


def judge_records(facts: Facts) -> Verdicts:
    """Tell what values and keys are."""
    if facts.sample.records:
        yield good(f"{facts.sample.kinds}; keys: {facts.sample.keys}.")


def judge_sizes(facts: Facts) -> Verdicts:
    """Judge the sizes of values."""
    sample = facts.sample
    sizes = (
        f"a median of {size_text(sample.median_bytes)}, up to {size_text(sample.largest_bytes)}"
    )
    if sample.median_bytes == sample.largest_bytes:
        sizes = f"all of {size_text(sample.median_bytes)}"
    if sample.records and sample.median_bytes < SMALL_BYTES:
        yield note(
            f"Values are small, {sizes}: at random, a request for each costs more than its bytes; "
            "batches, and orders that keep neighbours together, cost less."
        )
    elif sample.records:
        yield good(f"Values are large enough for a disk's bandwidth: {sizes}.")


def order_text(ascending: float, adjacent: float | None) -> str:
    """Say how records lie on disk, and how many right behind the one before (shares)."""
    near = "" if adjacent is None else f", {adjacent:.0%} of records right behind the one before"
    if ascending >= IN_ORDER:
        return f"in the order of their keys{near}"
    if ascending >= OUT_OF_ORDER:
        return f"roughly in the order of their keys{near}"
    return f"in another order than that of their keys{near}"


def judge_order(facts: Facts) -> Verdicts:
    """Judge how far the order of keys is that of the disk, and what that costs."""
    ascending, adjacent = facts.sample.ascending, facts.sample.adjacent
    if ascending is None or facts.storage.in_memory:
        return
    text = f"On disk, records lie {order_text(ascending, adjacent)}"
    if ascending >= OUT_OF_ORDER:
        yield "good" if ascending >= IN_ORDER else "note", f"{text}."
        return
    room = facts.machine.cached_bytes_max
    yield (
        "note" if facts.data.used_bytes <= room else "problem",
        f"{text}: {_order_cost(facts.data, room, facts.tuned)}; lmdbio compact makes a copy "
        "in order, and order='insertion' reads it as it was put, where that is known.",
    )


def _order_cost(data: DataFacts, room_bytes: int, tuned: TunedFacts) -> str:
    """Say what to read in key order costs where records lie in another order.

    Args:
        room_bytes: the bytes of a file for which the page cache has room.
    """
    if data.used_bytes <= room_bytes:
        time = ""
        if tuned.stream_rate:
            time = f", {data.used_bytes / tuned.stream_rate:,.1f} s at the rate measured"
        return (
            f"to read in key order, all {size_text(data.used_bytes)} are brought to memory first"
            f"{time}"
        )
    time = ""
    if tuned.random_rate and tuned.random_bytes:
        seconds = data.entries * tuned.random_bytes / tuned.random_rate
        time = f", {seconds:,.0f} s at the rate measured"
    return (
        f"memory has no room for all {size_text(data.used_bytes)}, so to read in key order takes "
        f"a request for each of {count_text(data.entries, 'record')}{time}"
    )


def judge_provenance(facts: Facts) -> Verdicts:
    """Judge the provenance file."""
    status, reason = facts.provenance.status, facts.provenance.reason
    walk = f"each open walks {size_text(facts.data.tree_bytes)} of the tree"
    if status == "good":
        yield good("Its provenance file holds: opening reads no tree.")
    elif status == "absent" and facts.data.tree_bytes >= WALK_BYTES_FELT:
        yield note(f"There is no provenance file: {walk}.")
    elif status == "absent":
        severity: Severity = "good" if facts.storage.disk else "note"
        yield severity, f"There is no provenance file: {walk}, which is soon done."
    elif status == "unproven":
        yield note(
            f"Its provenance file is {reason}: the next open hashes "
            f"{size_text(facts.provenance.deep_bytes)}."
        )
    else:
        yield problem(f"Its provenance file is {status}: {reason}; {walk}.")


# --- the storage under it -----------------------------------------------------------------


def judge_storage(facts: Facts) -> Verdicts:
    """Judge the file system."""
    under = facts.storage
    name = under.file_system or "an unknown file system"
    source = f" on {under.source}" if under.source else ""
    if under.in_memory:
        yield good(f"{name}: the file is in memory already.")
    elif under.disk:
        turning = " The kernel takes it for a turning one." if under.rotational else ""
        yield good(f"{name}{source}, a disk of this machine.{turning}")
    else:
        yield note(
            f"{name}{source}, no disk of this machine: each request takes a while, so many have "
            "to be in flight, as Records.read and Reader do."
        )
    if under.file_system == "overlay":
        yield note("A layer of a container: a volume of its own would be quicker.")


def judge_readahead(facts: Facts) -> Verdicts:
    """Tell how far the kernel reads ahead."""
    ahead = facts.storage.readahead_bytes
    if ahead is not None and not facts.storage.in_memory:
        yield good(f"The kernel reads {size_text(ahead)} ahead of an ordered stream.")


def judge_cache(facts: Facts) -> Verdicts:
    """Judge how much of the file is in memory."""
    share, under = facts.storage.cached_share, facts.storage
    if share is None or under.in_memory:
        return
    has = f"The page cache has {size_text(under.cached_bytes or 0)}, {share:.0%} of the file"
    if is_cached(facts):
        yield good(f"{has}: it is read out of memory.")
    elif facts.data.used_bytes > facts.machine.available_bytes:
        yield note(
            f"{has}, which is larger than the memory that is left "
            f"({size_text(facts.machine.available_bytes)}): every epoch reads the storage."
        )
    else:
        yield good(f"{has}, and there is memory for the rest.")


def is_cached(facts: Facts) -> bool:
    """Say whether the page cache has the whole file."""
    share = facts.storage.cached_share
    return share is not None and share >= CACHED_SHARE


def judge_direct(facts: Facts) -> Verdicts:
    """Judge the way past the page cache."""
    if facts.storage.direct is False and not facts.storage.in_memory:
        yield note("The file system has none: all goes by the page cache.")
    elif facts.storage.direct and not facts.storage.in_memory:
        yield good("Reads past the page cache are possible.")


def judge_uring(facts: Facts) -> Verdicts:
    """Judge whether an io_uring can be had."""
    if facts.uring is False and not facts.storage.in_memory:
        yield note('It cannot be had here (engine="uring" would fail): threads read instead.')
    elif facts.uring and not facts.storage.in_memory:
        yield good('It can be had (engine="uring").')


def judge_tuned(facts: Facts) -> Verdicts:
    """Judge whether the storage was measured."""
    tuned = facts.tuned
    if tuned.when:
        measured = ((tuned.stream_rate, "in order"), (tuned.random_rate, "at random"))
        rates = [f"{size_text(rate)}/s {how}" for rate, how in measured if rate is not None]
        text = f": {' and '.join(rates)}" if rates else ""
        yield good(f"This file system was measured on {tuned.when}{text}.")
    elif not facts.storage.in_memory:
        yield note(
            "Nobody has measured this file system: engine, depth and request sizes are those "
            "that suit most."
        )


# --- the machine --------------------------------------------------------------------------


def judge_memory(facts: Facts) -> Verdicts:
    """Tell how much memory there is."""
    machine = facts.machine
    by = ", as its control group allows" if machine.is_grouped else ""
    yield good(
        f"{size_text(machine.available_bytes)} can be had{by}; a Records or a Reader takes up to "
        f"{size_text(machine.budget_bytes)} (memory_bytes_max=)."
    )
    if is_felt(machine.reported_order):
        yield note(
            "This virtual machine hands freed memory back to its host within 2 s (free page "
            "reporting), so that bringing a file to the page cache takes up to four times as "
            f"long, and cold figures scatter (as root: {REMEDY}, then fill memory once)"
        )


def judge_shm(facts: Facts) -> Verdicts:
    """Judge /dev/shm."""
    free = facts.machine.shm_free_bytes
    if free is None:
        return
    if free <= SHM_BYTES_FEW:
        yield (
            "problem" if facts.machine.ranks > 1 and not facts.machine.machines else "note",
            f"{size_text(free)} are free: ranks that share windows need more (docker run "
            "--shm-size, or an emptyDir of medium Memory), and so do workers of a DataLoader.",
        )
    elif free < facts.machine.budget_bytes:
        yield note(f"{size_text(free)} are free, less than a Reader's budget of memory.")
    else:
        yield good(f"{size_text(free)} are free for windows of ranks.")


def judge_processors(facts: Facts) -> Verdicts:
    """Judge the processors."""
    machine = facts.machine
    usable, all_there = machine.processors, machine.machine_processors
    if machine.quota is not None and machine.quota < usable:
        yield note(
            f"The control group gives the time of {machine.quota:g} of {usable} processors: more "
            "threads than that hold each other up."
        )
    elif usable == 1 and all_there > 1:
        yield note(
            f"This process may use one of {all_there} processors (bound by a launcher?): reading "
            "and decoding take turns."
        )
    elif usable == 1:
        yield note("There is one: reading and decoding take turns.")
    else:
        of = f" of {all_there}" if usable < all_there else ""
        yield good(f"{usable}{of} can be used.")


def judge_limits(facts: Facts) -> Verdicts:
    """Judge the limits of this process."""
    machine = facts.machine
    files, hard = machine.open_files, machine.open_files_hard
    if files is not None and files <= OPEN_FILES_FEW:
        can = "" if hard is None or hard > files else ", and it cannot be raised"
        yield note(
            f"{files:,} files may be open at a time (ulimit -n){can}: few for a data set of many "
            "files and many workers."
        )
    address = machine.address_bytes
    if address is not None and address < 2 * facts.data.used_bytes:
        yield note(
            f"The address space is bounded to {size_text(address)} (ulimit -v): lmdbio does not "
            "map the file, py-lmdb has to."
        )
    if machine.mappings is not None and machine.mappings < 65530:
        yield note(
            f"A process may have {machine.mappings:,} mappings (vm.max_map_count), which is few."
        )
    if facts.uring and machine.locked_bytes is not None and machine.locked_bytes < 1 << 20:
        yield note(
            f"{size_text(machine.locked_bytes)} may be locked (ulimit -l): before Linux 5.12, "
            "many io_urings need more."
        )


def judge_locks(facts: Facts) -> Verdicts:
    """Judge the lock file."""
    locks = facts.locks
    if locks.is_writable is False:
        yield note(
            "No reader slot can be had (the lock file, or its folder, cannot be written): lmdbio "
            "reads all the same; py-lmdb wants lock=False."
        )
    elif locks.unseen:
        yield note(f"Reader slots were not looked at: {locks.unseen}.")
    elif locks.stale:
        yield problem(
            f"{count_text(locks.stale, 'reader slot')} of {locks.readers} "
            f"{'belongs' if locks.stale == 1 else 'belong'} to processes that have ended: a "
            "writer cannot reuse their pages, and the file grows; env.reader_check() frees them."
        )
    else:
        held = count_text(locks.readers, "reader") if locks.readers else "no reader"
        yield good(f"Reader slots can be had; {held} at this moment.")
    if locks.behind is not None and locks.behind >= BEHIND_MANY and not locks.stale:
        yield note(
            f"A reader holds a snapshot that is {locks.behind:,} transactions old: until it ends, "
            "no page freed since is used again."
        )


def judge_ranks(facts: Facts) -> Verdicts:
    """Judge the transport by which ranks of a job would share reading."""
    here = facts.machine
    found = f"{here.library or 'an MPI'} ({here.launcher})" if here.launcher else ""
    machines = count_text(here.machines, "machine")
    job = f"One of {here.ranks} ranks that torchrun has started on {machines}"
    if here.machines and here.unreachable:
        yield problem(f"{job}: the others would not reach this one. {here.unreachable}.")
    elif here.machines:
        yield good(
            f"{job}: they use sockets, and would reach this one at {here.address} (LMDBIO_HOST)."
        )
    elif here.ranks > 1 and not here.mpi4py:
        yield problem(
            f"A launcher of MPI has started {here.ranks} ranks, and mpi4py is not installed: each "
            "of them would read for itself (pip install 'lmdbio[mpi]'; or start them by torchrun)."
        )
    elif here.ranks > 1:
        yield good(f"One of {here.ranks} ranks, over MPI by mpi4py {here.mpi4py} (comm=).")
    elif here.mpi4py and found:
        yield good(
            f"No launcher has started this process: it is alone. Ranks would use MPI by mpi4py "
            f"{here.mpi4py} and {found}, or sockets under torchrun."
        )
    elif here.mpi4py:
        yield note(
            f"mpi4py {here.mpi4py}, but no mpiexec is found to start ranks: torchrun would, whose "
            "ranks use sockets."
        )
    else:
        yield good(
            "mpi4py is not installed: one process does all, or ranks of torchrun, over sockets."
        )


def judge_transform(facts: Facts) -> Verdicts:
    """Judge the transform that the user named, if any."""
    transform = facts.transform
    takes = f"{transform.name} takes {1e6 * (transform.seconds or 0):,.0f} us a record"
    gain, free_gain = transform.gain, transform.free_gain or 0.0
    gives = f"two threads give {gain or 0:.2f} times as many samples as one"
    if not transform.name:
        return
    if transform.error:
        yield problem(f"{transform.name} raised {transform.error}.")
    elif transform.seconds is None:
        yield note(f"{transform.name}: there is no record to try it on.")
    elif gain is None:
        yield good(f"{takes}; one processor makes one at a time.")
    elif gain >= FREE_GAIN:
        yield good(
            f"{takes}, and lets go of Python's lock ({gives}): threads of a Loader suit it."
        )
    elif free_gain < FREE_GAIN:
        yield note(
            f"{takes}; whether it holds Python's lock cannot be told while the machine is busy "
            f"({gives}, and {free_gain:.2f} where nothing holds it)."
        )
    else:
        part = "" if gain < LOCKED_GAIN else " for a part of that"
        yield note(
            f"{takes}, and holds Python's lock{part} ({gives}): threads hold each other up, and "
            "the training's step. A Loader turns to processes by itself, unless processes=0 or "
            "threads= forbid it; where values are arrays or images, decode= makes whole batches "
            "without it."
        )


#: By topic, in the order in which findings are told.
RULES: dict[str, Callable[[Facts], Verdicts]] = {
    "file": judge_file,
    "free pages": judge_free_pages,
    "records": judge_records,
    "sizes": judge_sizes,
    "order": judge_order,
    "provenance": judge_provenance,
    "storage": judge_storage,
    "readahead": judge_readahead,
    "page cache": judge_cache,
    "O_DIRECT": judge_direct,
    "io_uring": judge_uring,
    "tuned": judge_tuned,
    "memory": judge_memory,
    "/dev/shm": judge_shm,
    "processors": judge_processors,
    "limits": judge_limits,
    "locks": judge_locks,
    "ranks": judge_ranks,
    "transform": judge_transform,
}
