"""Goal: roots read slices of the file's order where that pays, and where they are told to.

Method: the pure choice, over schedules whose ranks have small and large parts of a batch.
"""

from __future__ import annotations

import pytest

from lmdbio.machine.choice import Reason
from lmdbio.planning.mode import Mode
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.reader.phases import PIECE_BYTES_MAX, SLICE_BYTES, Sliced, choose_phases

COUNT, RECORD = 1_000_000, 3000


def choose(
    batch: int, *, phases: int = 0, suggested: bool = True, roots: int = 4, **more: object
) -> Sliced:
    """The choice for roots of two ranks each, whose records have 3,000 bytes."""
    teams = tuple((2 * root, 2 * root + 1) for root in range(roots))
    count = more.pop("count", COUNT)
    schedule = Schedule(count, batch, teams, **more)  # type: ignore[arg-type]
    return choose_phases(Mode(phases=phases), schedule, count * RECORD, suggested=suggested)


def test_small_pieces_are_read_in_slices() -> None:
    epochs, reason = choose(64)
    assert epochs is not None and epochs.seed is None
    window = epochs.shuffle.chunk * epochs.shuffle.window
    assert window * RECORD == pytest.approx(4 * SLICE_BYTES, rel=0.01)
    assert reason.text == f"a root would find its rows in pieces of {16 * RECORD >> 10} KiB"


def test_large_pieces_are_read_by_those_who_use_them() -> None:
    most = 4 * (PIECE_BYTES_MAX // RECORD)
    assert choose(most).epochs is not None
    epochs, reason = choose(most + 8)
    assert epochs is None and reason.text == "a root finds its rows in pieces of 1 MiB"


@pytest.mark.parametrize("more", [{"suggested": False}, {"assignment": "blocked"}])
def test_else_nobody_chooses_slices(more: dict[str, object]) -> None:
    epochs, reason = choose(64, **more)  # type: ignore[arg-type]
    assert epochs is None and "its own ranks" in reason.text


@pytest.mark.parametrize(
    "more", [{"suggested": False}, {"assignment": "blocked"}, {"batch": 10**6}]
)
def test_a_mode_can_ask_for_slices(more: dict[str, object]) -> None:
    epochs, reason = choose(**{"batch": 64, "phases": 2, **more})  # type: ignore[arg-type]
    assert epochs is not None and reason.text == "two phases, as the mode says"


def test_one_root_and_one_record_have_no_slices() -> None:
    assert choose(64, roots=1, phases=2).epochs is None
    assert choose(64, count=1, phases=2) == (None, Reason("facts", "one record has no slices"))
    whole = choose(64, count=5, phases=2).epochs
    assert whole is not None and whole.shuffle.chunk == 5


@pytest.mark.parametrize("shuffle", [Shuffle.groups(64), Shuffle.windows(16, 4)])
def test_windows_of_a_shuffle_are_read_in_slices_unless_a_mode_forbids(shuffle: Shuffle) -> None:
    epochs = Epochs(COUNT, 1, shuffle)
    assert choose(64, epochs=epochs, suggested=False).epochs == epochs
    assert choose(64, epochs=epochs, phases=1).epochs is None
    assert choose(64, epochs=epochs, phases=1, roots=1).epochs == epochs


def test_an_order_without_windows_has_no_slices() -> None:
    epochs, reason = choose(64, epochs=Epochs(COUNT, 1, GLOBAL), phases=2)
    assert epochs is None and reason.text == "records come in no windows"
