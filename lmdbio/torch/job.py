"""job: whether the ranks of a job cache a Loader's data set together, or each process for itself.

    comm= given                             -> these ranks; or an error for what they cannot do
    comm=None, torch.distributed's ranks    -> all of these, where the words allow it
    comm=False, or neither                  -> each process for itself

The words and the size of the job decide, and nothing that one rank alone knows: so all ranks with
the same words decide alike. Only then do they wait for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import get_worker_info

from lmdbio.errors import PeerError
from lmdbio.layouts.known import AUTO, layout_named
from lmdbio.placement.cache import Cache
from lmdbio.planning.schedule import Assignment
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.records.samples import Samples
from lmdbio.share.job import DifferenceError
from lmdbio.share.sockets import is_inherited, transport_of_group
from lmdbio.torch.joint import READER_WORDS
from lmdbio.torch.ranks import Ranks, ranks_here

T = TypeVar("T")

__all__ = ["JobGroup", "LoaderWords", "Sharing", "choose_sharing", "find_group"]


class JobGroup(NamedTuple):
    """The ranks with which this process could cache a data set.

    Attributes:
        group: default group of torch.distributed; None: there are no such ranks.
        absence: reason why there is none, in words; "": this process is alone.
        is_one_machine: whether all ranks run on this machine.
    """

    group: Any = None
    absence: str = ""
    is_one_machine: bool = True


class LoaderWords(NamedTuple):
    """The words of a Loader that decide, by the names that they have there.

    Attributes:
        shuffle: order that was chosen (``resume.Order``).
        the others: arguments of ``Loader``.
    """

    source: object
    cache: Cache | str | None
    assignment: str = "strided"
    shuffle: object = None
    keys: bool = False
    threads: int | None = None
    processes: int | None = None
    rank: int | None = None
    comm: Any = None
    options: Mapping[str, Any] = {}

    @property
    def conflict(self) -> str:
        """The reason why ranks cannot share a Reader for these, as a clause; "": they can."""
        others = sorted(set(self.options) - set(READER_WORDS))
        conflicts = {
            "opens a path, and takes no open Records": isinstance(self.source, Samples),
            "brings values alone (keys=True)": self.keys,
            "has assignment='strided' here": not Assignment(self.assignment).follows_places,
            "has shuffle=True or False here, and no sampler": self.shuffle not in (None, GLOBAL),
            f"has no {', '.join(others)}; it has {', '.join(READER_WORDS)}": bool(others),
        }
        return next((clause for clause, holds in conflicts.items() if holds), "")

    @property
    def preference(self) -> str:
        """The reason for each process by itself unless ``comm`` is given; "": there is none."""
        layout = self.options.get("layout")
        preferences = {
            "rank= and ranks= are given": self.rank is not None,
            "threads=0, and a Reader needs one, or processes=": (
                self.threads == 0 and not self.processes
            ),
            f"layout={layout!r} may need several records for a sample, and a Reader takes one": (
                layout is not None
                and (layout == AUTO or len(getattr(layout_named(layout), "columns", ())) > 1)
            ),
        }
        return next((reason for reason, holds in preferences.items() if holds), "")


def find_group() -> JobGroup:
    """Return the ranks with which this process could cache a data set."""
    try:
        ranks = Ranks().now()[1]
    except ValueError:  # variables that make no sense, which concern whoever needs them
        return JobGroup()
    if ranks < 2:
        return JobGroup()
    if get_worker_info() is not None:
        return JobGroup(None, "this is a DataLoader's worker process")
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return JobGroup(
            None,
            "torch.distributed had no group yet when this Loader was made: make it after "
            "init_process_group, in Lightning in train_dataloader()",
        )
    group = torch.distributed.group.WORLD
    if is_inherited(group):
        return JobGroup(None, "this process was forked from a rank")
    if torch.distributed.get_backend(group) == "mpi":
        return JobGroup(None, "ranks of torch's MPI backend share by comm=MPI.COMM_WORLD alone")
    return JobGroup(group, "", ranks_here() == ranks)


class Sharing(NamedTuple):
    """The ranks of a Loader, and whether they cache its data set together.

    Attributes:
        comm: communicator or process group of the ranks; None: ``Ranks`` finds them.
        is_joint: whether they cache together.
        why: reason why they do not although there are several, in words; "": nobody would ask.
        is_given: whether the user has named the ranks.
    """

    comm: Any = None
    is_joint: bool = False
    why: str = ""
    is_given: bool = True

    def meet(self) -> Any:
        """Return the ranks as a Reader takes them. Collective, where the user has named none.

        Raises:
            PeerError: a rank does not come to make this Loader, or is lost.
        """
        if self.is_given:
            return self.comm
        try:
            transport = transport_of_group(self.comm)
            transport.barrier()
        except PeerError as error:
            raise PeerError(
                f"{error}. All ranks of the job make a Loader with cache= together, with the same "
                "arguments: write comm=False for each process to cache by itself"
            ) from error
        return transport

    def attempt(self, make: Callable[[], T]) -> tuple[T | None, str]:
        """Return what ranks share, or None, and why it is refused. Collective.

        A Reader refuses on all ranks together: where the user has named none, each goes on alone.

        Args:
            make: function that makes it.

        Raises:
            PeerError: a rank is lost.
            DifferenceError: ranks gave different arguments.
            As ``make``, where the user has named the ranks.
        """
        try:
            return make(), ""
        except DifferenceError:
            raise
        except (ValueError, PeerError) as error:
            if self.is_given or transport_of_group(self.comm).lost() is not None:
                raise
            return None, f"the ranks cache nothing together: {error}"


def choose_sharing(words: LoaderWords, job: JobGroup) -> Sharing:
    """Return which ranks cache a Loader's data set together. Pure.

    Args:
        words: words of the Loader.
        job: ranks of which torch.distributed knows.

    Raises:
        ValueError: ``comm`` is given, and a Reader cannot do what other words ask for.
    """
    comm, conflict = words.comm, words.conflict
    if words.cache is None or comm is False:
        return Sharing(None if comm is False else comm)
    if comm is not None:
        if conflict:
            raise ValueError(
                "cache= with comm=: the ranks cache the data set together, in a Reader, which "
                f"{conflict}. Give rank= and ranks= instead of comm= for each process to cache by "
                "itself, or decode the batches of a Reader of your own (ReaderLoader)"
            )
        return Sharing(comm, True)
    if job.group is not None and words.cache == "auto" and job.is_one_machine:
        return Sharing()  # the page cache keeps what is read, as ``caching`` says
    why = job.absence if job.group is None else words.preference
    if job.group is not None and conflict:
        why = f"they would share a Reader, which {conflict}"
    if job.group is None or why:
        return Sharing(why=f"the ranks cache nothing together: {why}" if why else "")
    return Sharing(job.group, True, is_given=False)
