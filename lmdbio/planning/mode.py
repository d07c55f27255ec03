"""A mode is a frozen value of six choices; every named mode of the paper is one.

| mode    | roots_per_node      | locate     | engine | block_iterations | tokens |
|---------|---------------------|------------|--------|------------------|--------|
| LMDB    | all                 | seek       | mmap   | 1                | none   |
| LMM     | 1 (2 above 16 ranks)| seek       | mmap   | 1                | none   |
| LMM-DM  | as LMM              | speculate  | mmap   | 1                | none   |
| LMM-DIO | as LMM              | scan       | auto   | 1                | none   |
| ..-PROV | as LMM              | provenance | auto   | 1                | none   |
| ..-COAL | as LMM              | provenance | auto   | k                | none   |
| ..-STAG | as LMM              | provenance | auto   | k                | t      |

The paper says of the last four only that they read explicitly, not by which call: "auto" leaves
that to ``machine/choice`` (pread on a local disk, direct on a far file system, ...). The sixth
choice, ``phases``, is none of the paper's: its roots read what their own ranks use.

"auto" is no mode but a policy that picks one.

Source: LMDBIO (ACM TOPC 2019), section on its optimizations.
"""

from __future__ import annotations

from dataclasses import fields, replace

from lmdbio.system.amounts import refuse_unknown
from lmdbio.system.frozen import dataclass

__all__ = ["ALL_RANKS", "AUTO", "USUAL_TOKENS", "Mode"]

#: roots_per_node, block_iterations, phases: to be derived from the job.
AUTO = 0
#: tokens: as many as were measured to be best, else the usual number (``lmdbio.linking``).
USUAL_TOKENS = -1
#: roots_per_node: every rank is a root.
ALL_RANKS = 2**31 - 1

PHASES_MAX = 2

LOCATE = ("seek", "speculate", "scan", "provenance")
ENGINES = ("auto", "mmap", "pread", "direct", "staged", "uring", "remote")
#: Ways of locating that know every extent before the first read.
AHEAD = ("scan", "provenance")


@dataclass(frozen=True, slots=True)
class Mode:
    """Six choices that decide how a Reader reads, never what it returns.

    Attributes:
        roots_per_node: number of ranks of a node that read; ``AUTO`` (0): 1 up to 16 ranks on the
            node, 2 above; at most the node's ranks (``ALL_RANKS``: each reads for itself).
        locate: "seek", "speculate", "scan" or "provenance".
        engine: "auto": explicit reads that suit the storage (``machine/choice``); or "mmap",
            "pread", "direct", "staged", "uring"; "remote": requests to a URL.
        block_iterations: number of iterations whose reads are planned together (k); ``AUTO`` (0):
            enough for large requests within the memory budget.
        tokens: number of roots that may read at the same time, in turns; 0: all.
            ``USUAL_TOKENS`` (-1): the best number that ``lmdbio tune`` found for as many nodes,
            else one for eight roots.
        phases: 1: each root reads what its ranks use; 2: roots read neighbouring slices and
            exchange the rows (two-phase I/O), if MPI can carry that; ``AUTO`` (0): 2 if records
            are shuffled in windows, else 1.

    Raises:
        ValueError: a value out of range, or ``block_iterations`` other than 1 with a way of
            locating that does not know the extents ahead.
    """

    roots_per_node: int = AUTO
    locate: str = "scan"
    engine: str = "auto"
    block_iterations: int = 1
    tokens: int = 0
    phases: int = AUTO

    def __post_init__(self) -> None:
        for name in ("roots_per_node", "block_iterations", "tokens", "phases"):
            value = getattr(self, name)
            least = USUAL_TOKENS if name == "tokens" else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"Mode: {name} must be an integer of {least} or more, not {value!r}"
                )
        for name, known in (("locate", LOCATE), ("engine", ENGINES)):
            refuse_unknown(f"Mode: {name}", getattr(self, name), known)
        if self.phases > PHASES_MAX:
            raise ValueError(f"Mode: phases must be 1, 2 or {AUTO} (auto), not {self.phases}")
        for name, seeking in (("block_iterations", (1,)), ("phases", (AUTO, 1))):
            if self.locate not in AHEAD and getattr(self, name) not in seeking:
                raise ValueError(
                    f"Mode: {name} > 1 needs extents known ahead "
                    f"(locate='scan' or 'provenance', not {self.locate!r})"
                )

    @classmethod
    def named(cls, name: str) -> Mode:
        """The mode of a name such as "LMM-DIO-PROV-COAL-STAG", or its last part ("stag").

        Raises:
            ValueError: no such mode.
        """
        key = name.casefold()
        for full, mode in NAMED.items():
            if key in (full.casefold(), full.casefold().rsplit("-", 1)[-1]):
                return mode
        known = [f"{full} ({full.casefold().rpartition('-')[2]})" for full in NAMED]
        raise ValueError(f"no mode is called {name!r}; known: auto, {', '.join(known)}")

    @staticmethod
    def is_auto(mode: Mode | str) -> bool:
        """Whether ``mode`` is no mode but the policy that picks one."""
        return isinstance(mode, str) and mode.casefold() == "auto"

    @classmethod
    def resolve(cls, mode: Mode | str, *, provenance: bool) -> Mode:
        """The mode behind ``mode``, which may be a name or "auto".

        Args:
            mode: a Mode, a name, or "auto": provenance and coalescing where there is a
                provenance file, a scan where there is none.
            provenance: whether there is a provenance file that describes the data.
        """
        if isinstance(mode, Mode):
            return mode
        if not isinstance(mode, str):
            raise TypeError(f"mode must be a Mode or a name, not {type(mode).__name__}")
        if not cls.is_auto(mode):
            return cls.named(mode)
        return cls.named("coal") if provenance else replace(cls.named("dio"), block_iterations=0)

    def roots(self, ranks: int) -> int:
        """Roots on a node of ``ranks`` ranks."""
        if self.roots_per_node == AUTO:
            return 1 if ranks <= 16 else 2
        return min(self.roots_per_node, ranks)

    def __str__(self) -> str:
        for full, mode in NAMED.items():
            if mode == self:
                return full
        inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"Mode({inside})"


NAMED = {
    "LMDB": Mode(ALL_RANKS, "seek", "mmap"),
    "LMM": Mode(AUTO, "seek", "mmap"),
    "LMM-DM": Mode(AUTO, "speculate", "mmap"),
    "LMM-DIO": Mode(AUTO, "scan", "auto"),
    "LMM-DIO-PROV": Mode(AUTO, "provenance", "auto"),
    "LMM-DIO-PROV-COAL": Mode(AUTO, "provenance", "auto", AUTO),
    "LMM-DIO-PROV-COAL-STAG": Mode(AUTO, "provenance", "auto", AUTO, USUAL_TOKENS),
}
