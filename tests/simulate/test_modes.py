"""Goal: a mode reads the bytes that it needs, in the time that its store leaves it.

Method: closed forms for jobs small enough to be worked out by hand; laws over modes, assignments,
shapes of jobs and record sizes (hypothesis).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio.planning.mode import NAMED, Mode
from lmdbio.simulate import STORES, WORKLOADS, ModeOutcome, Store, Workload, run_modes
from tests.support import long_run

PAGE = 4096
#: A value that takes up a page with its header.
RECORD = PAGE - 16
MIB = 1 << 20
#: A page and a microsecond: times are numbers of pages.
STORE = Store(1, MIB, PAGE / 1e-6, 0.0, 0.0, 1e15)
JOB = Workload(4096, RECORD, 64, 8, 4, 16)


def outcome(job: Workload, mode: Mode | str, store: Store = STORE) -> ModeOutcome:
    (found,) = run_modes(job, [mode], store)
    return found


@pytest.mark.parametrize("name", NAMED)
def test_every_mode_reads_what_it_needs_at_the_rate_of_the_store(name: str) -> None:
    found = outcome(JOB, name)
    needed = JOB.records * PAGE
    # One node's walk is the last one's, over all records; a guess is too wide at first.
    walkers = {"LMDB": 2, "LMM": 2, "LMM-DM": 1.1}
    most = walkers.get(name, 1.0) * needed + (found.seek_seconds > 0) * needed / 64
    assert needed <= found.bytes <= most
    assert found.seconds is not None and found.seconds >= needed / STORE.server_rate * (1 - 1e-9)
    assert found.seconds <= 1.001 * found.bytes / STORE.server_rate
    assert found.reason is None and found.mode == name


def test_moves_are_paid_by_those_who_read_at_once_and_not_in_turns() -> None:
    store = replace(STORE, out_of_order_seconds=1e-3)
    prov = Mode(1, "provenance", "auto", 4)
    together, turns = outcome(JOB, prov, store), outcome(JOB, replace(prov, tokens=1), store)
    assert turns.out_of_order == 0 and turns.seconds == pytest.approx(JOB.records * 1e-6)
    assert turns.bound == "bytes" and turns.tokens == 1
    assert together.seconds is not None and together.bound == "moves"
    moves = round(together.out_of_order * together.requests)
    assert together.seconds == pytest.approx(JOB.records * 1e-6 + moves * 1e-3)


def test_a_hop_is_paid_by_each_turn_that_waits() -> None:
    store = replace(STORE, hop_seconds=1e-3)
    mode = Mode(1, "provenance", "auto", 16, tokens=1)
    assert outcome(JOB, mode, store).seconds == pytest.approx(JOB.records * 1e-6 + 1e-3)
    # Handed on early, the hop lasts no longer than the read that it waits for.
    early = replace(store, early_turns=True, depth=1000, hop_seconds=1e-4)
    assert outcome(JOB, mode, early).seconds == pytest.approx(JOB.records * 1e-6)


def test_staggering_takes_the_number_of_tokens_that_is_fastest() -> None:
    # Each root's stripes lie on a server of its own, so that the more may read, the better.
    store = replace(STORE, servers=8, stripe_bytes=64 * PAGE, request_bytes=64 * PAGE)
    job = Workload(4096, RECORD, 64, 8, 1, 8)
    found = outcome(job, "stag", store)
    assert found.tokens == 0
    single = outcome(job, replace(Mode.named("stag"), tokens=1, roots_per_node=1), store)
    assert found.seconds is not None and single.seconds is not None
    assert found.seconds < single.seconds


def test_a_walk_is_as_slow_as_the_slowest_of_what_it_needs() -> None:
    job = Workload(4096, RECORD, 64, 4, 4, 8)
    pages = job.records
    base = Store(1, MIB, 1e15, 0.0, 0.0, 1e15)
    window = 128 << 10
    for bound, store, expected in (
        ("disks", replace(base, server_rate=PAGE / 1e-6), pages * 1e-6),
        ("link", replace(base, link_rate=PAGE / 2e-6), pages * 2e-6),
        (
            "windows",
            replace(base, request_seconds=1e-3, readahead_windows=1),
            pages * PAGE / window * 1e-3 + job.iterations * 1e-3,
        ),
        ("processor", replace(base, fault_seconds=1e-6, wake_seconds=1e-6), pages * 4e-6),
    ):
        found = outcome(job, "LMDB", store)
        assert found.bound == bound
        assert found.seconds == pytest.approx(expected, rel=0.01), bound
    # Two nodes ask for the same bytes; servers with memory read them from their disks once.
    two = replace(job, ranks=8)
    slow = replace(base, server_rate=PAGE / 1e-6)
    assert outcome(two, "LMDB", slow).seconds == pytest.approx(2 * pages * 1e-6, rel=0.1)
    warm = replace(slow, memory_rate=PAGE / 1e-9)
    assert outcome(two, "LMDB", warm).seconds == pytest.approx(pages * 1e-6, rel=0.01)


def test_readers_that_walk_alone_wake_nobody() -> None:
    store = replace(STORES["bebop"], wake_seconds=20e-6)
    job = replace(WORKLOADS["cifar10-large"], ranks=36)
    lmdb, lmm = outcome(job, "LMDB", store), outcome(job, "LMM", store)
    assert lmdb.seconds is not None and lmm.seconds is not None
    assert lmdb.bound == "processor" and lmdb.seconds > 40 * lmm.seconds


def test_a_scan_reads_leaf_pages_of_large_values_and_the_whole_file_of_small_ones() -> None:
    large, small = outcome(JOB, "dio"), outcome(replace(JOB, record_bytes=100), "dio")
    needed = JOB.records * PAGE
    assert large.bytes == needed + JOB.records // JOB.leaf_records * PAGE
    assert small.bytes >= 2 * JOB.records * 110
    assert large.seek_seconds < 0.05 * (large.seconds or 0.0)
    assert small.seek_seconds > 0.1 * (small.seconds or 0.0)


def test_a_block_is_as_large_as_the_buffer_and_a_larger_one_is_refused() -> None:
    store = replace(STORE, buffer_bytes=40 * 32 * PAGE // 8)
    found = outcome(replace(JOB, roots_per_node=1), "coal", store)
    assert found.block_iterations == 5
    tight = replace(store, buffer_bytes=32 * PAGE)
    refused = outcome(replace(JOB, roots_per_node=1), Mode(1, "provenance", "auto", 4), tight)
    assert refused.seconds is None
    assert refused.reason == (
        "a block of k=4 takes about 524,288 bytes of a root, and its buffer has 131,072"
    )
    aims = replace(STORE, block_bytes=40 * 32 * PAGE // 8)
    assert outcome(replace(JOB, roots_per_node=1), "coal", aims).block_iterations == 5


def test_more_requests_than_can_be_simulated_are_refused() -> None:
    job = Workload(10**12, RECORD, 1 << 16, 8, 4, 10**6)
    found = outcome(job, "prov")
    assert found.seconds is None and "more than can be simulated" in (found.reason or "")


def test_weak_scaling_keeps_the_records() -> None:
    cifar = WORKLOADS["cifar10-large"]
    for ranks in (36, 1_152, 9_216):
        weak = cifar.weak(ranks, 2)
        assert weak.records == cifar.records and weak.batch == 2 * ranks


def test_9216_ranks_are_simulated() -> None:
    """In a second; ``lmdbio simulate --mode all --ranks 9216`` takes eight."""
    job = replace(WORKLOADS["cifar10-large"], ranks=9_216, iterations=64)
    lmdb, coal, stag = run_modes(job, ["LMDB", "coal", "stag"], STORES["bebop"])
    assert (lmdb.roots, coal.roots, stag.roots) == (9_216, 256, 256)
    assert lmdb.seconds is not None and coal.seconds is not None and stag.seconds is not None
    assert lmdb.seconds > coal.seconds > stag.seconds


@st.composite
def jobs(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 300))
    lengths = None
    if draw(st.booleans()):
        lengths = np.array(
            draw(st.lists(st.integers(0, 9_000), min_size=count, max_size=count)), np.int64
        )
    return Workload(
        count,
        draw(st.integers(1, 9_000)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 12)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 20)),
        draw(st.integers(0, 3)),
        draw(st.sampled_from(["blocked", "strided"])),
        draw(st.booleans()),
        lengths=lengths,
    )


@given(job=jobs(), name=st.sampled_from(list(NAMED)))
def test_any_job_ends_has_its_bytes_and_is_not_faster_than_its_store(
    job: Workload, name: str
) -> None:
    store = replace(STORES["model"], buffer_bytes=MIB)
    found = outcome(job, name, store)
    if found.seconds is None:
        assert found.reason
        return
    places = np.arange(job.records)
    used = int((job.offsets(places + 1) - job.offsets(places)).sum())
    # A record that comes twice in a block is read once.
    assert found.bytes >= used or job.batch * found.block_iterations > job.count
    rate = min(store.servers * store.server_rate, job.nodes * store.link_rate)
    assert found.seconds >= 0.999 * min(found.bytes, used) / rate
    assert found == outcome(job, name, store), "the same each time"


@given(job=jobs())
def test_records_lie_one_after_the_other(job: Workload) -> None:
    extents = job.extents(np.arange(job.count, dtype=np.uint64))
    assert extents["offset"][0] == 0
    assert (extents["offset"][1:] == (extents["offset"] + extents["length"])[:-1]).all()
    total = job.total_bytes
    assert total == int(extents["length"].sum())
    assert job.offsets(job.count + 3) == total + job.offsets(3 % job.count) + (
        3 // job.count * total
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0}, "count must be 1 to"),
        ({"ranks": 10**7}, "ranks must be 1 to 1,000,000"),
        ({"assignment": "local"}, "assignment must be one of strided, blocked"),
        ({"iterations": 10**9}, "more than can be simulated"),
        ({"lengths": np.ones(3, np.int64)}, "3 lengths are not those of 4096 records"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(JOB, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("servers", 0), ("server_rate", float("nan")), ("hop_seconds", -1.0), ("stripe_bytes", 1)],
)
def test_a_store_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        replace(STORE, **{name: value})  # type: ignore[arg-type]


def test_strided_records_are_read_as_a_root_plans_them() -> None:
    """Records that share pages, and pieces that touch, are one request."""
    job = Workload(40_000, 100, 16, 2, 1, 2_500, assignment="strided")
    found = outcome(job, "coal", replace(STORE, gap_bytes=64 << 10))
    assert found.block_iterations == 2_500
    # Two nodes, each of which has half of all pages, and reads over the other half.
    assert found.bytes <= 2.1 * job.count * 110 and found.requests <= 2 * (5 + 1)


def test_staggering_is_never_slower_than_no_turns() -> None:
    job = Workload(100_000, 20_000, 256, 128, 4, 4)
    coal, stag = run_modes(job, ["coal", "stag"], STORES["bebop"])
    assert coal.seconds is not None and stag.seconds is not None
    assert stag.seconds <= coal.seconds


def test_more_nodes_that_walk_are_never_faster() -> None:
    job = Workload(100_000, 3_000, 1_000, 1, 1, 100)
    for store in STORES.values():
        found = [outcome(replace(job, ranks=n), "LMM", store).seconds for n in (1, 2, 8, 64)]
        assert found == sorted(found, key=lambda seconds: seconds or 0.0)


def test_a_node_that_is_alone_reads_nothing_out_of_another_one_s_memory() -> None:
    job = Workload(100_000, 3_000, 1_000, 1, 1, 100)
    stores = [replace(STORES["bebop"], memory_rate=rate) for rate in (0.0, 1e6, 640e6)]
    assert len({outcome(job, "LMM", store).seconds for store in stores}) == 1


def test_one_large_stripe_has_one_server() -> None:
    job = Workload(20_000, 3_000, 1_000, 8, 2, 20)
    store = replace(STORES["bebop"], stripe_bytes=1 << 30)
    found = outcome(job, "LMDB", store)
    assert found.seconds is not None
    assert found.seconds >= found.bytes / store.memory_rate


def test_more_readahead_is_worth_as_much_for_walks_as_for_guesses() -> None:
    job = Workload(100_000, 3_000, 1_000, 1, 1, 100)
    for change in ({"readahead_bytes": 4 << 20}, {"readahead_windows": 64}):
        wide = replace(STORES["bebop"], **change)  # type: ignore[arg-type]
        lmm, dm = run_modes(job, ["LMM", "dm"], wide)
        assert lmm.seconds == pytest.approx(dm.seconds, rel=0.35), change


@pytest.mark.more
def test_ranks_without_records_ask_for_nothing() -> None:
    job = Workload(1_000, RECORD, 1, 64, 1, 1_000)
    found = outcome(job, "LMDB", STORES["model"])
    assert found.bytes == 1_000 * PAGE and found.walked_bytes == 1_000 * PAGE
    many = Workload(4_000_000, 3_000, 40, 41, 1, 1_200, barrier=False)
    for mode in long_run.one_of("prov", Mode(1, "provenance", "auto", 1, tokens=3)):
        assert outcome(many, mode, STORES["bebop"]).seconds


def test_roots_are_counted_in_no_time_that_grows_with_their_square() -> None:
    job = replace(WORKLOADS["cifar10-large"], roots_per_node=999_999, iterations=4)
    assert outcome(job, "prov", STORES["bebop"]).roots == 4_608


@pytest.mark.parametrize(
    ("bound", "changes"),
    [
        ("link", {"link_rate": 1e6}),
        ("bytes", {"server_rate": 1e6}),
        ("moves", {"out_of_order_seconds": 1.0}),
        ("waits", {"request_seconds": 1.0}),
    ],
)
def test_a_run_says_what_most_of_its_time_goes_to(bound: str, changes: dict[str, float]) -> None:
    store = replace(STORE, servers=4, stripe_bytes=64 * PAGE, **changes)  # type: ignore[arg-type]
    assert outcome(JOB, "prov", store).bound == bound


def test_links_are_those_of_nodes() -> None:
    """Each node has a link of its own, which all of its roots share."""
    store = replace(STORE, link_rate=PAGE / 4e-6, request_bytes=4 * PAGE)
    job = replace(JOB, roots_per_node=2)
    needed = JOB.records * 1e-6
    two, one = outcome(job, "coal", store), outcome(replace(job, ranks_per_node=8), "coal", store)
    assert two.seconds == pytest.approx(4 * needed / 2, rel=0.02)
    assert one.seconds == pytest.approx(4 * needed, rel=0.02)


def test_a_guess_s_cursor_goes_root_by_root_after_each_block() -> None:
    store = replace(STORE, hop_seconds=1e-3)
    plain, hops = outcome(JOB, "dm"), outcome(JOB, "dm", store)
    assert plain.seconds is not None
    assert hops.seconds == pytest.approx(plain.seconds + JOB.iterations * 2 * 1e-3)
    assert hops.seek_seconds == pytest.approx(JOB.iterations * 2 * 1e-3)
    free = replace(JOB, barrier=False)
    assert outcome(free, "dm", store).seek_seconds == pytest.approx(JOB.iterations * 2 * 1e-3)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_so_many_turns_at_a_time_and_no_more(tokens: int, early: bool) -> None:
    """Each root's part lies on a server of its own, and takes 64 units of time."""
    store = replace(STORE, servers=8, stripe_bytes=64 * PAGE, early_turns=early)
    store = replace(store, request_bytes=64 * PAGE, depth=1)
    job = Workload(4 * 512, RECORD, 512, 8, 1, 4, barrier=False)
    found = outcome(job, Mode(1, "provenance", "auto", 1, tokens), store)
    if early:  # a turn ends when its one request is asked for: at once
        assert found.seconds == pytest.approx(4 * 64e-6)
        return
    # Tokens go round; a root's next turn waits for its own last one as well.
    ends: list[float] = []
    for turn in range(32):
        begin = max(
            ends[turn - tokens] if turn >= tokens else 0.0, ends[turn - 8] if turn >= 8 else 0.0
        )
        ends.append(begin + 64e-6)
    assert found.seconds == pytest.approx(ends[-1])


@pytest.mark.parametrize(
    ("length", "stored"),
    [(0, 10), (100, 110), (2_028, 2_038), (2_029, PAGE), (RECORD + 1, 2 * PAGE)],
)
def test_values_take_up_what_lmdb_gives_them(length: int, stored: int) -> None:
    lengths = np.full(7, length, np.int64)
    assert replace(JOB, count=7, lengths=lengths).total_bytes == 7 * stored
    if length:
        assert replace(JOB, count=7, record_bytes=length).total_bytes == 7 * stored


def test_a_scan_of_both_kinds_reads_leaf_pages_and_small_values_once() -> None:
    lengths = np.array([100] * 600 + [400_000] * 400, np.int64)
    job = Workload(1_000, 1, 100, 4, 4, 10, lengths=lengths)
    found, whole = outcome(job, "dio"), job.total_bytes
    assert whole < found.bytes < 1.01 * whole


def test_a_block_has_no_record_twice() -> None:
    job = replace(JOB, count=4 * JOB.batch, iterations=100)
    assert outcome(job, "coal").block_iterations == 4
