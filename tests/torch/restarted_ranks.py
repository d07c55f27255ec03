"""Program under torchrun: trains, commits its state, and goes on from there when it is restarted.

Arguments: a data set; a folder for what it leaves; epochs; and ATTEMPT:RANK:STEP, where a rank
kills itself, or --slow, for steps that take a while.

A commit is a file of each rank, with the samples of its steps since the last one, and then the
state, which names the commit. Steps since then count for nothing when the job is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lmdbio.share.meeting import KEY
from lmdbio.share.sockets import store_of
from lmdbio.torch import Loader

PATH, FOLDER, EPOCHS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
IS_SLOW = sys.argv[4] == "--slow"
DEATH = None if IS_SLOW else tuple(map(int, sys.argv[4].split(":")))
ATTEMPT, STEPS = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), 5


def write(path: Path, content: Any) -> None:
    """Write a file, whole or not at all."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def after(step: int) -> None:
    """Die, or rest, where that is wanted."""
    if (ATTEMPT, dist.get_rank(), step) == DEATH:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1 * IS_SLOW)


class Commits:
    """The steps of this rank since the last commit."""

    def __init__(self) -> None:
        self.path, self.pending = FOLDER / "state.json", []
        saved = json.loads(self.path.read_text()) if self.path.exists() else [0, None]
        self.number, self.state = saved

    def add(self, epoch: int, batch: list[bytes]) -> None:
        digests = [[value[:6].decode(), hashlib.sha256(value).hexdigest()] for value in batch]
        self.pending.append([epoch, digests])

    def commit(self, state: dict[str, Any]) -> None:
        number, rank = self.number + 1, dist.get_rank()
        write(FOLDER / f"{number}-{rank}.json", [dist.get_world_size(), ATTEMPT, self.pending])
        dist.barrier()
        if rank == 0:
            write(self.path, [number, state])
        dist.barrier()
        self.number, self.pending = number, []


def main() -> None:
    dist.init_process_group("gloo")
    assert not store_of(dist.group.WORLD).check([KEY])  # no address of a dead job
    dist.barrier()
    commits = Commits()
    with Loader(
        PATH, 4, shuffle=True, seed=5, cache="memory=8M", transform=bytes, collate_fn=list
    ) as loader:
        assert dist.get_world_size() == 1 or "roots keep" in loader.caching.text
        if commits.state is not None:
            loader.load_state_dict(commits.state)
        step = 0
        while loader.epoch < EPOCHS:
            epoch = loader.epoch
            for batch in loader:
                commits.add(epoch, batch)
                step += 1
                after(step)
                if step % STEPS == 0:
                    commits.commit(loader.state_dict())
        commits.commit(loader.state_dict())
    dist.destroy_process_group()


main()
