"""Trains a small network with DistributedDataParallel, from an LMDB of Datum messages.

    python train_ddp.py train_lmdb                         this process alone
    mpiexec -n 4 python train_ddp.py train_lmdb            four ranks, which keep the file together
    torchrun --nproc-per-node 2 train_ddp.py train_lmdb    the same without MPI
    ... --loader torch                                 as it was before: open_loader differs

Before it begins, it times a step on made-up samples, and says how long each epoch will take by the
rates that ``lmdbio tune`` measured of the storage (lmdbio.prediction). Then it trains, and prints
predicted and measured side by side: seconds of each epoch, and of these, waiting for samples; and
what all ranks have read from the file.

    epoch  predicted s  measured s  predicted waiting s  waited s  MiB read   loss
"""

from __future__ import annotations

import os

# Each rank is one thread: ranks share the cores already. NumPy looks at this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import socket
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import lmdb
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import lmdbio
from lmdbio.prediction import Prediction, predict
from lmdbio.share import count_nodes, ranks_per_node
from lmdbio.torch import Loader

SHAPE = (3, 32, 32)
#: Of a Datum message with such an image: what comes before its pixels, and before its label.
PIXELS, LABEL = 9, 9 + 3 * 32 * 32 + 1
WARM_STEPS, TIMED_STEPS = 3, 10
#: A label is one byte of a message here.
CLASSES = 256
#: Samples of a rank's batch, and epochs, at most.
BATCH_MAX, EPOCHS_MAX = 4096, 100_000
EXPECTED = (lmdbio.Error, OSError, ValueError)


def decode(value: Any) -> tuple[torch.Tensor, int]:
    """Return the image of a Datum message from -1 to 1, and its label."""
    pixels = np.frombuffer(value, np.uint8, int(np.prod(SHAPE)), PIXELS).reshape(SHAPE)
    return torch.from_numpy(pixels.astype(np.float32) / 128 - 1), value[LABEL]


class LmdbDataset(Dataset[Any]):
    """As they are written everywhere: opened when first used, keys in a list."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.env: Any = None
        with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as txn:
            self.keys = [bytes(key) for key in txn.cursor().iternext(values=False)]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.env = self.env or lmdb.open(self.path, readonly=True, lock=False)
        with self.env.begin() as txn:
            return decode(txn.get(self.keys[index]))


# --- the two loaders -----------------------------------------------------------------------


def open_loader(asked: argparse.Namespace, ranks: Ranks) -> Any:
    """Return an iterable of this rank's batches, epoch after epoch."""
    path, size, seed = asked.path, asked.batch_size, asked.seed
    if asked.loader == "torch":
        data = LmdbDataset(path)
        sampler: Any = DistributedSampler(data, ranks.size, ranks.rank, seed=seed)
        return DataLoader(data, size, sampler=sampler, num_workers=2)
    words = {"shuffle": True, "seed": seed, "comm": ranks.comm, "cache": asked.cache}
    return Loader(path, size, transform=decode, **words)


# --- ranks ---------------------------------------------------------------------------------


class Ranks(NamedTuple):
    """All processes that train together.

    Attributes:
        comm: of MPI; None: there is none.
        rank, size: of this process, and of all.
        nodes: on how many machines they are.
    """

    comm: Any
    rank: int
    size: int
    nodes: int


def join() -> Ranks:
    """Begin torch.distributed: as torchrun says, by MPI, or alone."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return Ranks(None, dist.get_rank(), dist.get_world_size(), dist.get_world_size() // here)
    try:
        from mpi4py import MPI
    except ImportError:
        return Ranks(None, 0, 1, 1)
    comm = MPI.COMM_WORLD
    if comm.size == 1:
        return Ranks(None, 0, 1, 1)
    with socket.socket() as free:
        free.bind(("", 0))
        place = comm.bcast((socket.gethostname(), free.getsockname()[1]))
    method = f"tcp://{place[0]}:{place[1]}"
    dist.init_process_group("gloo", init_method=method, rank=comm.rank, world_size=comm.size)
    played = ranks_per_node()  # LMDBIO_RANKS_PER_NODE makes several nodes of one machine
    nodes = comm.size // played if played else count_nodes(comm)
    return Ranks(comm, comm.rank, comm.size, nodes)


# --- training ------------------------------------------------------------------------------


def make_model() -> Any:
    """Return a small network, on all ranks alike."""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 5 * 5, CLASSES),
    )
    return DistributedDataParallel(layers) if dist.is_initialized() else layers


def step(model: Any, optimizer: Any, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Learn from a batch; return its loss."""
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def seconds_of_a_step(batch_size: int) -> float:
    """Return how long a step takes without any reading."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.zeros(batch_size, *SHAPE), torch.zeros(batch_size, dtype=torch.long)
    begun = 0.0
    for number in range(WARM_STEPS + TIMED_STEPS):
        if number == WARM_STEPS:
            begun = perf_counter()
        step(model, optimizer, images, labels)
    return (perf_counter() - begun) / TIMED_STEPS


def foretell(asked: argparse.Namespace, ranks: Ranks, step_s: float) -> Prediction | None:
    """Return what the job will be like; None: that of torch's loader nobody predicts."""
    if asked.loader == "torch":
        return None
    return predict(
        asked.path,
        asked.batch_size * ranks.size,
        nodes=ranks.nodes,
        ranks=ranks.size,
        epochs=asked.epochs,
        shuffle="global",
        seed=asked.seed,
        cache=None if asked.cache == "auto" and ranks.nodes == 1 else asked.cache,
        compute_seconds=step_s,
    )


def foretell_once(asked: argparse.Namespace, ranks: Ranks, step_s: float) -> Prediction | None:
    """Foretell on rank 0; what fails there ends all ranks."""
    told, failed = None, [""]
    if ranks.rank == 0:
        try:
            told = foretell(asked, ranks, step_s)
        except EXPECTED as error:
            failed = [str(error) or type(error).__name__]
    if dist.is_initialized():
        dist.broadcast_object_list(failed)
    if failed[0]:
        raise SystemExit(1 if ranks.rank else f"train_ddp.py: {failed[0]}")
    return told


def epochs_of(loader: Any, epochs: int) -> Iterator[Iterator[Any]]:
    """Yield the batches of each epoch."""
    for number in range(epochs):
        if isinstance(loader, DataLoader):
            sampler: Any = loader.sampler
            sampler.set_epoch(number)
        yield iter(loader)


def bytes_read(loader: Any) -> int:
    """Return how many bytes all ranks have read from the file so far."""
    read = torch.tensor(loader.stats().read_bytes if isinstance(loader, Loader) else 0)
    if dist.is_initialized():
        dist.all_reduce(read)
    return int(read)


def train(asked: argparse.Namespace, ranks: Ranks) -> None:
    """Train, and tell on rank 0."""
    step_s = seconds_of_a_step(asked.batch_size)
    told = foretell_once(asked, ranks, step_s)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = open_loader(asked, ranks)
    if ranks.rank == 0:
        for words in told.rates if told is not None else ():
            print(words)
        print(f"a step without reading takes {1e3 * step_s:.1f} ms")
        print("epoch  predicted s  measured s  predicted waiting s  waited s  MiB read   loss")
    read = 0
    for number, batches in enumerate(epochs_of(loader, asked.epochs)):
        begun = asked_s = perf_counter()
        waited_s, loss = 0.0, 0.0
        for images, labels in batches:
            waited_s += perf_counter() - asked_s
            loss = step(model, optimizer, images, labels)
            asked_s = perf_counter()
        seconds = perf_counter() - begun
        before, read = read, bytes_read(loader)
        if ranks.rank == 0:
            mib = f"{(read - before) / 2**20:.2f}" if isinstance(loader, Loader) else "-"
            one = None if told is None else told.epochs[number]
            whole, stall = (
                ("-", "-") if one is None else (f"{one.seconds:.2f}", f"{one.stall_seconds:.2f}")
            )
            print(
                f"{number:5}  {whole:>11}  {seconds:10.2f}  {stall:>19}  {waited_s:8.2f}  "
                f"{mib:>8}  {loss:5.3f}",
                flush=True,
            )
    if ranks.rank == 0 and hasattr(loader, "caching"):
        print(loader.caching.text)
    if isinstance(loader, Loader):
        loader.close()


def main() -> None:
    """Train on all ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("path", help="an LMDB of Datum messages with 3 x 32 x 32 images")
    add("--loader", choices=("lmdbio", "torch"), default="lmdbio")
    add("--cache", default="auto", help='of lmdbio\'s: "auto", or "memory=1G" (auto)')
    add("--batch-size", type=int, default=64, help="of each rank (64)")
    add("--epochs", type=int, default=3)
    add("--seed", type=int, default=1)
    asked = parser.parse_args()
    for name, most in (("batch_size", BATCH_MAX), ("epochs", EPOCHS_MAX)):
        if not 1 <= getattr(asked, name) <= most:
            parser.error(f"--{name.replace('_', '-')} must be 1 to {most}")
    ranks = join()
    try:
        train(asked, ranks)
    except EXPECTED as error:
        raise SystemExit(f"train_ddp.py: {error}") from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
