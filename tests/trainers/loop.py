"""A loop of one's own over a loader, which stops, and goes on in another run."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.trainers.case import EPOCHS, Case
from tests.trainers.seen import Seen
from tests.trainers.ways import Made

__all__ = ["run_epochs"]


def run_epochs(case: Case, seen: Seen, made: Made, loader: Any) -> None:
    """Train as the guide says: load a state, say epochs where a case wants it, keep a state.

    Args:
        loader: what the trainer made of that of ``made``.
    """
    begins = 0
    if seen.run:
        begins, state = json.loads(seen.kept.read_text())
        made.keeper.load_state_dict(state)
    for epoch in range(begins, EPOCHS):
        if "said" in case.given:
            made.source.set_epoch(epoch)
        used = 0
        for used, batch in enumerate(loader, 1):
            seen.add(epoch, batch)
            if (seen.run, epoch, used) == (0, 1, case.stops_after):
                break
        if case.stop and (seen.run, epoch) == (0, 1):
            _keep(seen, *_place(case, made, used))
            return


def _place(case: Case, made: Made, used: int) -> tuple[int, Any]:
    """Return the epoch in which the next run begins, and the state that it loads."""
    if case.way in ("BatchSampler", "IterableDataset") and "nodes" not in case.given:
        # Nobody else counts what was used; where Accelerate deals out batches, by all processes.
        state = made.keeper.state_dict(used * case.processes if case.whole else used)
    else:
        state = made.keeper.state_dict()
    # A state of lmdbio's own says so. One of a StatefulDataLoader goes on in the epoch that it was
    # saved in, after the last batch as well, and then ends it; one of nodes does not.
    is_over = case.stop == "end" or (case.stop == "last batch" and "nodes" in case.given)
    return state.get("epoch", 1 + is_over), state


def _keep(seen: Seen, *kept: Any) -> None:
    """Write what the next run needs; all ranks write the same."""
    draft = seen.kept.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(kept))
    draft.replace(seen.kept)
