"""Program under torchrun: Loaders whose ranks cache together by default, and those that do not.

Argument: a data set. A Loader without a cache has the batches that a rank is to see. The last case
ends the job's transport, since a rank does not come.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

import lmdbio
from lmdbio.errors import PeerError
from lmdbio.reader import reader
from lmdbio.share import meeting
from lmdbio.torch import Loader, Passes

PATH, CACHE = sys.argv[1], "memory=8M"
SECONDS_MAX = 60
WORDS: dict[str, Any] = {"shuffle": True, "seed": 3, "collate_fn": list, "transform": bytes}
APART = "the ranks cache nothing together: "


def backwards(value: Any) -> bytes:
    return bytes(value)[::-1]


def total(*numbers: int) -> list[int]:
    """Return sums over all ranks."""
    tensor = torch.tensor(numbers)
    dist.all_reduce(tensor)
    return tensor.tolist()


def epochs(loader: Loader, count: int) -> list[list[bytes]]:
    return [batch for _ in range(count) for batch in loader]


def wait_for(condition: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < SECONDS_MAX
        time.sleep(0.05)


def plain(count: int, **words: Any) -> list[list[bytes]]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with Loader(PATH, 4, rank=rank, ranks=ranks, **{**WORDS, **words}) as loader:
        return epochs(loader, count)


def before_the_ranks_have_met() -> None:
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:
        text = loader.caching.text
        assert text.startswith("this process keeps ") and "init_process_group" in text, text
        assert len(loader.dataset) > 0


def ranks_cache_together() -> None:
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:
        assert "roots keep" in loader.caching.text
        assert epochs(loader, 2) == plain(2)
        state, before = loader.state_dict(), loader.stats()
        dist.barrier()
        epochs(loader, 2)
        stats = loader.stats()
        late = stats.late_records + stats.gone_records  # where the machine is too busy
        read, late, peers = total(stats.read_bytes - before.read_bytes, late, stats.peer_records)
        assert (read == 0 or late) and peers, (read, late, peers)
    with Loader(PATH, 4, cache=CACHE, comm=False, **WORDS) as loader:
        assert loader.caching.text.startswith("this process keeps ")
        assert APART not in loader.caching.text and loader.dataset
        loader.load_state_dict(state)
        assert epochs(loader, 1) == plain(3)[2 * len(loader) :]
        assert loader.stats().peer_records == 0
    with Loader([PATH], 4, cache=CACHE, even=False, **WORDS) as loader:
        assert "roots keep" in loader.caching.text
        assert epochs(loader, 1) == plain(1, even=False)


def what_trainers_ask_for_beside_the_batches_is_there() -> None:
    """Accelerate's ``skip_first_batches`` makes a DataLoader of data set and batches."""
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:
        assert "roots keep" in loader.caching.text
        rest = DataLoader(
            loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
        )
        assert [list(batch) for batch in rest] == plain(1)


def a_transform_that_is_replaced_counts_from_the_next_epoch_on() -> None:
    """The batches that were made ahead for that epoch have the transform before."""
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:
        made = epochs(loader, 1)
        loader.dataset.transform = backwards
        made += epochs(loader, 1)
    before, after = plain(2)[: len(loader)], plain(2, transform=backwards)[len(loader) :]
    assert made == before + after


def what_a_reader_refuses_each_process_reads_by_itself() -> None:
    small = {"memory_bytes_max": 1 << 16}
    with Loader(PATH, 16, cache=CACHE, **small, **WORDS) as loader:
        text = loader.caching.text
        assert APART in text and "memory_bytes_max" in text, text
        assert len(epochs(loader, 1)) == len(loader)
    text = refusal(lambda: Loader(PATH, 16, cache=CACHE, comm=dist.group.WORLD, **small, **WORDS))
    assert "memory_bytes_max" in text, text
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:  # the ranks go on together
        assert "roots keep" in loader.caching.text and epochs(loader, 1) == plain(1)


def what_they_cannot_share_each_process_caches_by_itself() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for words, why in (
        ({"keys": True, "transform": None}, "keys=True"),
        ({"assignment": "local"}, "assignment='strided'"),
        ({"shuffle": lmdbio.Shuffle.windows(8, 4)}, "shuffle=True or False"),
        ({"shuffle": False, "sampler": Passes(40)}, "shuffle=True or False"),
        ({"rank": rank, "ranks": ranks}, "rank= and ranks="),
        ({"threads": 0}, "threads=0"),
        ({"engine": "pread"}, "has no engine; it has"),
    ):
        with Loader(PATH, 4, cache=CACHE, **{**WORDS, **words}) as loader:
            assert APART in loader.caching.text and why in loader.caching.text, (words, why)
            assert len(list(loader)) == len(loader.batch_sampler)
    with Loader(PATH, 4, cache="auto", **WORDS) as loader:
        assert loader.caching.text == "there is one node: the page cache keeps what is read"


def orders_of_a_program_are_shared() -> None:
    """torch's samplers draw from the generator of their process, and each rank's is another."""
    torch.manual_seed(dist.get_rank())
    with lmdbio.Records(PATH) as records:
        wanted = sorted(records)
    batches = BatchSampler(RandomSampler(range(len(wanted))), 5, drop_last=False)
    words = {"transform": bytes, "collate_fn": list, "even": False}
    with Loader(PATH, batch_sampler=batches, **words) as loader:
        for _ in range(2):
            parts: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(parts, [one for batch in loader for one in batch])
            assert sorted(one for part in parts for one in part) == wanted


def drawn(value: bytes) -> tuple[bytes, float, int]:
    return bytes(value), torch.rand(1).item(), random.randrange(1 << 30)


def raises_late(value: bytes) -> bytes:
    if value.startswith(b"000200"):
        raise ValueError("no sample")
    return value


def worker_processes_decode_what_the_ranks_share() -> None:
    begun: Any = multiprocessing.Value("i", 0)

    def begin(number: int) -> None:
        with begun.get_lock():
            begun.value += 1 << number

    words: dict[str, Any] = {"threads": 0, "processes": 2, "worker_init_fn": begin}
    words |= {"transform": drawn, "collate_fn": list}
    with Loader(PATH, 4, cache=CACHE, **{**WORDS, **words}) as loader:
        assert "roots keep" in loader.caching.text
        alone = plain(4, transform=drawn)
        each = len(loader)
        assert epochs(loader, 2) == alone[: 2 * each]
        # Both begin, though one may make all batches, and be enough.
        assert loader.workers.text.startswith(("2 processes: ", "1 process: "))
        wait_for(lambda: begun.value == 3)
        loader.set_epoch(3)  # a jump: another Reader, and other processes
        assert epochs(loader, 1) == alone[3 * each :]
        wait_for(lambda: begun.value > 3)
        assert len(multiprocessing.active_children()) in (1, 2)
    assert not multiprocessing.active_children()
    words |= {"transform": raises_late, "worker_init_fn": None}
    with Loader(PATH, 4, cache=CACHE, errors="skip", **{**WORDS, **words}) as loader:
        samples = total(sum(map(len, epochs(loader, 1))), loader.stats().skipped_records)
        assert samples[1] == 1 and sum(samples) == dist.get_world_size() * 4 * len(loader)


def a_worker_process_that_is_killed_is_named_and_ends_the_epoch_of_all() -> None:
    words: dict[str, Any] = {"processes": 1, "threads": 0}
    try:
        with Loader(PATH, 4, cache=CACHE, **{**WORDS, **words}) as loader:
            while True:  # the other rank may be epochs ahead before it hears
                for number, _ in enumerate(loader):
                    if number == 2 and dist.get_rank() == 0:
                        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
    except lmdbio.Error as error:
        expected = "was killed by SIGKILL" if dist.get_rank() == 0 else "rank 0"
        assert expected in str(error), error
    assert not multiprocessing.active_children()


class Texts(Dataset[str]):
    """Says how a Loader that a worker makes caches."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> str:
        with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:
            return loader.caching.text


def children_cache_by_themselves() -> None:
    (text,) = DataLoader(Texts(), batch_size=None, num_workers=1)
    assert "DataLoader's worker" in text, text
    child = os.fork()
    if child == 0:
        try:
            assert "was forked from a rank" in Texts()[0]
            try:
                lmdbio.Reader(PATH, 4, comm=dist.group.WORLD)
            except lmdbio.Error as error:
                assert "was forked from a rank" in str(error)
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def refusal(make: Callable[[], Loader]) -> str:
    """Return how a Loader is refused; it must not take long."""
    begun = time.monotonic()
    try:
        make().close()
    except (ValueError, PeerError) as error:
        assert time.monotonic() - begun < SECONDS_MAX
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no rank was refused")


def arguments_that_differ_are_named_on_all_ranks() -> None:
    size = 4 + (dist.get_rank() == 1)
    text = refusal(lambda: Loader(PATH, size, cache=CACHE, **WORDS))
    assert "batch_size differs between ranks" in text, text
    with Loader(PATH, 4, cache=CACHE, **WORDS) as loader:  # they go on all the same
        assert epochs(loader, 1) == plain(1)


def a_rank_that_waits_for_one_that_does_not_iterate_says_so() -> None:
    reader.WAIT_SECONDS_LOGGED, texts = 0.3, []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lmdbio").addHandler(handler)
    words = {"ranks_per_node": 2, "comm": dist.group.WORLD, "memory_bytes_max": "1M"}
    with Loader(PATH, 4, cache=CACHE, **words, **WORDS) as loader:
        if dist.get_rank() == 0:
            waits = threading.Thread(target=epochs, args=(loader, 20))
            waits.start()
            wait_for(lambda: any("a rank that does not iterate" in text for text in texts))
        dist.barrier()
        if dist.get_rank() == 1:
            assert not texts and len(epochs(loader, 20)) == 20 * len(loader)
        else:
            waits.join()


def ranks_that_do_not_come_are_named_on_all_others() -> None:
    meeting.MEET_SECONDS_MAX = 1.0
    rank = dist.get_rank()
    if rank == 1:
        with Loader(PATH, 4, cache=CACHE, keys=True) as loader:
            assert APART in loader.caching.text
    else:
        text = refusal(lambda: Loader(PATH, 4, cache=CACHE, **WORDS))
        assert "has waited 1 s for it" in text and "write comm=False" in text, text
    dist.barrier()
    text = refusal(lambda: Loader(PATH, 4, cache=CACHE, **WORDS))
    assert text.startswith("PeerError: rank ") and "write comm=False" in text, text
    with Loader(PATH, 4, cache=CACHE, comm=False, **WORDS) as loader:
        assert epochs(loader, 1) == plain(1)


def main() -> None:
    before_the_ranks_have_met()
    dist.init_process_group("gloo")
    for case in (
        ranks_cache_together,
        a_transform_that_is_replaced_counts_from_the_next_epoch_on,
        what_trainers_ask_for_beside_the_batches_is_there,
        what_a_reader_refuses_each_process_reads_by_itself,
        what_they_cannot_share_each_process_caches_by_itself,
        orders_of_a_program_are_shared,
        worker_processes_decode_what_the_ranks_share,
        a_worker_process_that_is_killed_is_named_and_ends_the_epoch_of_all,
        children_cache_by_themselves,
        arguments_that_differ_are_named_on_all_ranks,
        a_rank_that_waits_for_one_that_does_not_iterate_says_so,
        ranks_that_do_not_come_are_named_on_all_others,
    ):
        case()
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"passed: {case.__name__}", flush=True)
    dist.destroy_process_group()


main()
