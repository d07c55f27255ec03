r"""Numbers that values tell: as text, or pickled. Nothing is unpickled: its opcodes are read.

b"1000", b"\x80\x04\x4d\xe8\x03.", NumPy's int64(1000) pickled    -> 1000
"""

from __future__ import annotations

import pickletools

__all__ = ["DIGITS_MAX", "told_number"]

#: Of a number; larger ones do not fit 64 bits.
DIGITS_MAX = 18
#: Of a value that tells a number; one that NumPy pickled takes 150.
VALUE_BYTES_MAX = 512
#: Opcodes that push a whole number; those that stand around it.
_WHOLE = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"}
_AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "MEMOIZE", "STOP"}


def told_number(value: bytes | None) -> int | None:
    """Return the number, not below 0, that a value tells; None: it tells none."""
    text = b"" if value is None else value.strip()
    if text.isdigit():
        return int(text) if len(text) <= DIGITS_MAX else None
    if value is None or len(value) > VALUE_BYTES_MAX:
        return None
    try:
        steps = [(code.name, argument) for code, argument, _ in pickletools.genops(value)]
    except Exception:  # of pickletools, which reads what anybody may have written
        return None
    whole = [argument for name, argument in steps if name in _WHOLE]
    if len(whole) == 1 and all(name in _WHOLE | _AROUND for name, _ in steps):
        found = whole[0]
    else:
        found = _of_numpy([argument for _, argument in steps])
    return found if isinstance(found, int) and 0 <= found < 10**DIGITS_MAX else None


def _of_numpy(arguments: list[object]) -> int | None:
    """Return the number of NumPy's scalar, by what its pickle names; None: it is none."""
    texts = {word for one in arguments if isinstance(one, str) for word in one.split()}
    raw = [one for one in arguments if isinstance(one, bytes)]
    kinds = [kind for kind in ("i4", "i8", "u4", "u8") if kind in texts]
    if "scalar" not in texts or "<" not in texts or len(kinds) != 1 or len(raw) != 1:
        return None
    if len(raw[0]) != int(kinds[0][1]):
        return None
    return int.from_bytes(raw[0], "little", signed=kinds[0][0] == "i")
