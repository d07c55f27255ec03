"""Whether a virtual machine hands freed memory back to its host is read from the kernel's files.

Method: folders like /sys are made: a balloon with the bit or without, other devices, none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lmdbio.bench import measure
from lmdbio.doctor.facts import Facts, MachineFacts
from lmdbio.doctor.judge import diagnose
from lmdbio.machine.page_reporting import ORDER, REMEDY, is_felt, reported_order

#: Bits of the features, the lowest first: of a balloon that reports free pages, and one that does
#: not; bit 5 of a network card means something else.
REPORTS, SILENT = "0110010100000000", "0110000100000000"


def system(root: Path, order: str | None, *devices: tuple[str, str]) -> Path:
    """Make a folder with the files of a kernel: its parameter, and virtio's devices."""
    if order is not None:
        parameter = root / ORDER.lstrip("/")
        parameter.parent.mkdir(parents=True)
        parameter.write_text(order)
    for number, (kind, features) in enumerate(devices):
        folder = root / "sys/bus/virtio/devices" / f"virtio{number}"
        folder.mkdir(parents=True)
        (folder / "device").write_text(f"{kind}\n")
        (folder / "features").write_text(f"{features}\n")
    return root


@pytest.mark.parametrize(
    ("order", "devices", "expected"),
    [
        ("9\n", [("0x0005", REPORTS)], 9),
        ("10\n", [("0x0002", SILENT), ("0x0005", REPORTS)], 10),
        ("9\n", [("0x0005", SILENT)], None),
        ("9\n", [("0x0001", REPORTS)], None),
        (None, [("0x0005", REPORTS)], None),
        ("9\n", [], None),
        ("none\n", [("0x0005", REPORTS)], None),
        ("9\n", [("", "")], None),
    ],
)
def test_the_order_is_that_of_a_balloon_that_reports(
    tmp_path: Path, order: str | None, devices: list[tuple[str, str]], expected: int | None
) -> None:
    assert reported_order(str(system(tmp_path, order, *devices))) == expected


def test_a_machine_that_is_none_reports_nothing(tmp_path: Path) -> None:
    assert reported_order(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("order", "felt"), [(None, False), (0, True), (9, True), (10, True), (11, False)]
)
def test_small_blocks_are_felt_and_told_with_the_remedy(order: int | None, felt: bool) -> None:
    assert is_felt(order) == felt
    found = diagnose(Facts("data", machine=MachineFacts(reported_order=order))).findings
    told = [each for each in found if "hands freed memory back" in each.text]
    assert len(told) == felt
    assert all(each.severity == "note" and REMEDY in each.text for each in told)


def test_reports_of_benchmarks_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for order, felt in ((9, True), (10, True), (11, False), (None, False)):
        monkeypatch.setattr(measure, "reported_order", lambda order=order: order)
        assert ("figures scatter" in measure.machine(tmp_path).facts["machine"]) == felt
