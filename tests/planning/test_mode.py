"""Goal: a mode is a value that is either one of the paper's or legal by the one rule.

Method: tables of names, legal values and refused values.
"""

from __future__ import annotations

import dataclasses

import pytest

from lmdbio.planning.mode import ALL_RANKS, AUTO, NAMED, USUAL_TOKENS, Mode

SHORT = {
    "lmdb": "LMDB",
    "lmm": "LMM",
    "dm": "LMM-DM",
    "dio": "LMM-DIO",
    "prov": "LMM-DIO-PROV",
    "coal": "LMM-DIO-PROV-COAL",
    "stag": "LMM-DIO-PROV-COAL-STAG",
}


@pytest.mark.parametrize(("short", "full"), SHORT.items())
def test_every_mode_has_a_full_and_a_short_name_in_any_case(short: str, full: str) -> None:
    assert Mode.named(short) == Mode.named(full) == Mode.named(full.lower()) == NAMED[full]
    assert str(Mode.named(short)) == full


def test_the_named_modes_are_the_papers_table() -> None:
    table = {name: dataclasses.astuple(mode) for name, mode in NAMED.items()}
    assert table == {
        "LMDB": (ALL_RANKS, "seek", "mmap", 1, 0, AUTO),
        "LMM": (AUTO, "seek", "mmap", 1, 0, AUTO),
        "LMM-DM": (AUTO, "speculate", "mmap", 1, 0, AUTO),
        "LMM-DIO": (AUTO, "scan", "auto", 1, 0, AUTO),
        "LMM-DIO-PROV": (AUTO, "provenance", "auto", 1, 0, AUTO),
        "LMM-DIO-PROV-COAL": (AUTO, "provenance", "auto", AUTO, 0, AUTO),
        "LMM-DIO-PROV-COAL-STAG": (AUTO, "provenance", "auto", AUTO, USUAL_TOKENS, AUTO),
    }


@pytest.mark.parametrize("name", ["", "auto-dio", "LMM-", "dio-prov", "nonsense"])
def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(name: str) -> None:
    with pytest.raises(ValueError, match="LMM-DIO-PROV-COAL-STAG"):
        Mode.named(name)


@pytest.mark.parametrize("locate", ["seek", "speculate"])
@pytest.mark.parametrize("k", [AUTO, 2])
def test_coalescing_needs_extents_known_ahead(locate: str, k: int) -> None:
    with pytest.raises(ValueError, match="known ahead"):
        Mode(locate=locate, block_iterations=k)


@pytest.mark.parametrize("locate", ["seek", "speculate"])
def test_two_phases_need_extents_known_ahead(locate: str) -> None:
    with pytest.raises(ValueError, match="phases > 1 needs extents known ahead"):
        Mode(locate=locate, phases=2)
    assert Mode(locate=locate, phases=1).phases == 1
    assert Mode(locate="scan", phases=2).phases == 2


@pytest.mark.parametrize("locate", ["scan", "provenance"])
@pytest.mark.parametrize("k", [AUTO, 1, 2, 1000])
def test_coalescing_is_legal_where_extents_are_known_ahead(locate: str, k: int) -> None:
    assert Mode(locate=locate, block_iterations=k).block_iterations == k


@pytest.mark.parametrize(
    "wrong",
    [
        {"locate": "guess"},
        {"engine": "read"},
        {"roots_per_node": -1},
        {"block_iterations": -1},
        {"block_iterations": 1.5},
        {"tokens": -2},
        {"tokens": True},
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Mode(**wrong)  # type: ignore[arg-type]


def test_a_mode_is_frozen_and_can_be_compared_and_hashed() -> None:
    mode = Mode.named("prov")
    with pytest.raises(dataclasses.FrozenInstanceError):
        mode.engine = "mmap"  # type: ignore[misc]
    assert {mode: 1}[Mode(locate="provenance")] == 1


def test_auto_takes_provenance_where_there_is_one_and_a_scan_where_not() -> None:
    with_file = Mode.resolve("auto", provenance=True)
    without = Mode.resolve("Auto", provenance=False)
    assert (with_file.locate, with_file.block_iterations) == ("provenance", AUTO)
    assert (without.locate, without.block_iterations) == ("scan", AUTO)
    assert Mode.resolve("dio", provenance=True) == Mode.named("dio")
    with pytest.raises(TypeError):
        Mode.resolve(3, provenance=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "roots"), [(1, 1), (16, 1), (17, 2), (64, 2)])
def test_roots_per_node_follow_the_papers_rule(ranks: int, roots: int) -> None:
    assert Mode.named("dio").roots(ranks) == roots


def test_roots_never_exceed_the_ranks_of_a_node() -> None:
    assert Mode.named("lmdb").roots(5) == 5
    assert Mode(roots_per_node=3).roots(2) == 2
