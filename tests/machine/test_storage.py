"""The facts of what is under a file.

Goal: every fact comes from where the kernel tells it, what it does not tell is None, and nothing
that stands there, however wrong, makes looking fail. Method: folders that look like /proc and
/sys, what the kernel says of a file replaced; and the real thing.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from lmdbio import _core
from lmdbio.errors import IncompatibleError
from lmdbio.machine import calibration, storage
from lmdbio.machine.storage import Storage, Stripes, parse_stripes

EXT4, FUSE, BTRFS, LUSTRE = 0xEF53, 0x65735546, 0x9123683E, 0x0BD00BD0
MOUNTS = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:45 / /mnt/my\040data rw shared:7 - fuse.sshfs host:/my\040data rw
40 27 0:50 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw
""".lstrip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    return path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def look(monkeypatch: pytest.MonkeyPatch, file: Path, root: Path, **ground: object) -> Storage:
    """Looks at a file of which the kernel says ``ground``."""
    told = {
        "magic": EXT4, "id": 7, "block_bytes": 4096, "mount_id": 27, "device": "254:1",
        "direct_alignment": 512, "disk": True,
    }  # fmt: skip
    monkeypatch.setattr(_core, "inspect_at", lambda _fd: _core.Ground(**(told | ground)))
    with _core.Engine(file) as engine:
        return storage.inspect(engine, thorough=True, root=root)


def test_a_disk_is_known_by_its_queue(file, tmp_path, monkeypatch):
    root = tmp_path / "root"
    write(root / "proc/self/mountinfo", MOUNTS)
    write(root / "sys/class/bdi/254:1/read_ahead_kb", "8192\n")
    write(root / "sys/devices/vda/queue/rotational", "1\n")
    (root / "sys/devices/vda/vda1").mkdir()
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/254:1").symlink_to(root / "sys/devices/vda/vda1")  # a partition
    found = look(monkeypatch, file, root)
    assert (found.file_system, found.source, found.disk) == ("ext4", "/dev/vda", True)
    assert (found.readahead_bytes, found.rotational) == (8 << 20, True)
    assert (found.direct, found.direct_alignment, found.size_bytes) == (True, 512, 100_000)


def test_a_mount_without_a_disk_is_known_by_type_and_source(file, tmp_path, monkeypatch):
    root = tmp_path / "root"
    write(root / "proc/self/mountinfo", MOUNTS)
    write(root / "sys/class/bdi/0:45/read_ahead_kb", "128\n")
    found = look(
        monkeypatch, file, root,
        magic=FUSE, mount_id=31, device="0:45", disk=False, direct_alignment=0,
    )  # fmt: skip
    assert (found.file_system, found.source) == ("fuse.sshfs", "host:/my data")
    assert (found.readahead_bytes, found.rotational, found.direct) == (128 << 10, None, False)
    assert found.direct_alignment is None


@pytest.mark.parametrize("text", ["", "\n", "27", "27 1 254:0 / / rw - ext4", "x - y z", "27 - "])
def test_a_mount_table_that_makes_no_sense_tells_nothing(file, tmp_path, monkeypatch, text):
    write(tmp_path / "root/proc/self/mountinfo", text)
    found = look(monkeypatch, file, tmp_path / "root")
    assert (found.file_system, found.source) == ("ext4", None)


@pytest.mark.parametrize("text", ["", "much", "-1", "1e3", "\x00"])
def test_a_setting_that_makes_no_sense_is_not_known(file, tmp_path, monkeypatch, text):
    write(tmp_path / "root/sys/class/bdi/254:1/read_ahead_kb", text)
    assert look(monkeypatch, file, tmp_path / "root").readahead_bytes is None


def test_where_nothing_is_known_nothing_is_said(file, tmp_path, monkeypatch):
    monkeypatch.setattr(_core.Engine, "cached_bytes", lambda self: None)
    found = look(
        monkeypatch, file, tmp_path / "nowhere",
        magic=0, id=0, block_bytes=0, mount_id=0, device="0:0", disk=False, direct_alignment=0,
    )  # fmt: skip
    assert found == Storage(device="0:0", direct=False, size_bytes=100_000)
    assert found.cached_share is None


def test_an_unknown_file_system_has_its_number_for_a_name(file, tmp_path, monkeypatch):
    found = look(monkeypatch, file, tmp_path, magic=0xABC, mount_id=0)
    assert found.file_system == "0xabc"


def test_the_disk_under_btrfs_is_what_is_mounted(file, tmp_path, monkeypatch):
    device = next((p for p in Path("/sys/block").glob("*/dev") if p.is_file()), None)
    node = device and Path("/dev", device.parent.name)
    if node is None or not node.exists():
        pytest.skip("there is no block device here")
    root = tmp_path / "root"
    write(root / "proc/self/mountinfo", f"5 1 0:60 / / rw - btrfs {node} rw\n")
    write(root / f"sys/dev/block/{device.read_text().strip()}/queue/read_ahead_kb", "256")
    found = look(monkeypatch, file, root, magic=BTRFS, mount_id=5, device="0:60")
    assert found.readahead_bytes == 256 << 10


def test_without_the_kernels_word_o_direct_is_tried(file, tmp_path, monkeypatch):
    found = look(monkeypatch, file, tmp_path, direct_alignment=None)
    try:
        with _core.Engine(file, "direct") as engine:
            assert (found.direct, found.direct_alignment) == (True, engine.alignment)
    except IncompatibleError:
        assert found.direct is False


def test_looking_at_this_machines_file_says_what_python_says(file):
    with _core.Engine(file) as engine:
        found = storage.inspect(engine)
        again = storage.inspect(engine, thorough=True)
        status = os.fstat(engine.fd)
    assert found.device == f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    assert found.block_bytes == status.st_blksize
    assert found.size_bytes == again.size_bytes == 100_000
    if os.major(status.st_dev):
        assert found.disk


def test_a_closed_descriptor_tells_nothing():
    assert _core.inspect_at(-1) == _core.Ground(0, 0, 0, 0, "0:0", None, False)


# --- Lustre -------------------------------------------------------------------------------


def layout(magic: int, size: int, count: int, tail: bytes = b"") -> bytes:
    return struct.pack("<II16sIHH", magic, 1, b"", size, count, 0) + tail


V1, V3 = 0x0BD10BD0, 0x0BD30BD0


@pytest.mark.parametrize(
    ("raw", "stripes"),
    [
        (layout(V1, 1 << 20, 4), Stripes(1 << 20, 4)),
        (layout(V3, 4 << 20, 2000, b"pool" * 4), Stripes(4 << 20, 2000)),
        (b"", None),
        (layout(V1, 1 << 20, 4)[:-1], None),
        (layout(0x0BD60BD0, 1 << 20, 4, bytes(100)), None),  # composite: several stripings
        (layout(V1, 0, 4), None),
        (layout(V1, 1000, 4), None),
        (layout(V1, 1 << 20, 0), None),
        (layout(V1, 1 << 20, 0xFFFF), None),  # "all", before the file is written
    ],
)
def test_a_layout_is_parsed_within_bounds(raw, stripes):
    assert parse_stripes(raw) == stripes


def test_striping_is_asked_for_on_lustre_alone(file, tmp_path, monkeypatch):
    asked = []

    def attribute(fd: int, name: str) -> bytes:
        asked.append(name)
        return layout(V1, 2 << 20, 8)

    monkeypatch.setattr(os, "getxattr", attribute)
    assert look(monkeypatch, file, tmp_path).stripes is None
    assert not asked
    found = look(monkeypatch, file, tmp_path, magic=LUSTRE, disk=False)
    assert found.stripes == Stripes(2 << 20, 8)
    assert asked == ["lustre.lov"]


def test_a_layout_that_cannot_be_had_is_not_known(file, tmp_path, monkeypatch):
    def refuse(*_: object) -> bytes:
        raise OSError(61, "No data available")

    monkeypatch.setattr(os, "getxattr", refuse)
    assert look(monkeypatch, file, tmp_path, magic=LUSTRE, disk=False).stripes is None


def test_a_folder_is_known_by_the_same_name_as_its_files(file, tmp_path):
    with _core.Engine(file) as engine:
        of_file = storage.inspect(engine, thorough=True)
    of_folder = storage.inspect_folder(file.parent)
    assert calibration.identity(of_folder) == calibration.identity(of_file)
    with pytest.raises(FileNotFoundError):
        storage.inspect_folder(tmp_path / "not there")
