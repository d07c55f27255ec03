"""torch: Records as PyTorch's data sets, in orders that resume exactly after an interruption.

Uses ``records``, ``reader``, ``reading``, ``cache``, ``share``, ``layouts``, ``placement``,
``planning``, ``provenance``, ``machine``, ``observe``, ``inside`` and ``_core``; torch itself only
where it must be subclassed.

    Dataset          map-style; a batch of indices is one read, all requests in flight
    BatchSampler     batches of indices, for torch's DataLoader and torchdata's StatefulDataLoader
    IterableDataset  each rank's and worker's batches, read ahead
    Loader           batches read by this process, and decoded by its loop, by threads or
                     processes, as suits the transform
    ReaderLoader     the same out of a Reader's shared window

Orders beside permutations (``sampler=``):

    Weighted             samples drawn by weight, or classes equally often
    Buckets              batches of samples of like size
    Passes               epochs of a fixed length

Whole batches instead of samples (``Loader(decode=...)``):

    Array, Datum, Npy    numbers, copied by C straight into the batch's tensor
    Image, Jpeg          images, decoded by torchvision, JPEGs also on a GPU
    BatchDecoder         what a decoder of one's own does; RecordErrors, what it raises

Inside, ``ranks`` says which process of a job this is, ``job`` which of them cache together,
``resume`` where in the epochs it is, in an order that ``given_order`` has of the program if it
makes one, ``samples`` makes samples of values, ``whole`` whole batches,
and ``draws`` the random numbers that they draw; ``workers`` chooses who makes them, and
``threads``, ``processes`` and ``prefetch`` have them made.

All give ``order.Epoch``'s order to ``order.Shard``'s ranks, so a state is the same for all of
them: a few integers, ``used`` samples of ``epoch`` by all ranks together. It says nothing of
ranks, workers or batches, which may be others when it is loaded.
"""

from lmdbio.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("lmdbio.torch", "PyTorch", "torch", "torch") from None

from lmdbio.planning.sampling import Buckets, Passes, Weighted
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.decoders import Array, Datum, Npy
from lmdbio.torch.draws import SampleInfo, sample_info
from lmdbio.torch.images import Image, Jpeg
from lmdbio.torch.iterable import IterableDataset
from lmdbio.torch.loader import Loader, ReaderLoader
from lmdbio.torch.resume import state_of
from lmdbio.torch.sampler import BatchSampler
from lmdbio.torch.samples import RecordErrors
from lmdbio.torch.whole import BatchDecoder

__all__ = [
    "Array",
    "BatchDecoder",
    "BatchSampler",
    "Buckets",
    "Dataset",
    "Datum",
    "Image",
    "IterableDataset",
    "Jpeg",
    "Loader",
    "Npy",
    "Passes",
    "ReaderLoader",
    "RecordErrors",
    "SampleInfo",
    "Weighted",
    "sample_info",
    "state_of",
]
