"""PyTorch: Records as data sets, in orders that can be interrupted anywhere and resumed exactly.

    Dataset          map-style; a batch of indices is one read, all requests in flight
    BatchSampler     batches of indices, for torch's DataLoader and torchdata's StatefulDataLoader
    IterableDataset  each rank's and worker's batches, read ahead
    Loader           batches read and decoded by threads of this process: no worker processes, no
                     copies between them
    ReaderLoader     the same out of a Reader's shared window

All give ``order.Epoch``'s order to ``order.Shard``'s ranks, so a state is the same for all of
them: a few integers, ``used`` samples of ``epoch`` by all ranks together. It says nothing of
ranks, workers or batches, which may be others when it is loaded.
"""

from lmdbio.torch.course import state_of
from lmdbio.torch.datasets import Dataset, IterableDataset
from lmdbio.torch.loaders import Loader, ReaderLoader
from lmdbio.torch.sampler import BatchSampler

__all__ = ["BatchSampler", "Dataset", "IterableDataset", "Loader", "ReaderLoader", "state_of"]
