"""Plugins with which DLIO, the engine of MLPerf Storage, reads LMDB files.

    PyLmdbReader     DLIO's reader of single samples, over py-lmdb
    LmdbioReader     the same over lmdbio
    LmdbioLoader     DLIO's loader of batches: lmdbio.torch.Loader instead of torch's DataLoader

DLIO imports them by name (``reader_classname``, ``data_loader_classname``), so this folder belongs
in PYTHONPATH; ``run.py`` sees to that. DLIO has no format LMDB, and finds files by the ending of
one that it knows: ``part-000.lmdb.npz`` is an LMDB file without a folder (``subdir=False``), as
``make_data.py`` writes it, whose samples are the values of the keys ``00000000``, ``00000001`` ...

A sample is read whole and, as with all of DLIO's readers, not looked at: what is handed out is the
array of the size that a decoder would give (``record_length_resize``).
"""

from __future__ import annotations

import atexit
from abc import abstractmethod
from collections.abc import Iterator
from time import sleep
from typing import Any

import lmdb
import numpy as np
import torch
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.reader.reader_handler import FormatReader

import lmdbio
import lmdbio.torch
from benchmarks.dlio.make_data import key_of


class _Reader(FormatReader):
    """One sample at a time, out of files that stay open: DLIO would close them after each."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        super().__init__(dataset_type, thread_index)
        self._files: dict[str, Any] = {}

    @abstractmethod
    def open_file(self, filename: str) -> Any:
        """Return what ``get_sample`` reads, to be closed with ``close``."""

    def open(self, filename: str) -> Any:
        if filename not in self._files:
            self._files[filename] = self.open_file(filename)
        return self._files[filename]

    def close(self, filename: str) -> None:
        pass

    def next(self) -> Iterator[Any]:
        yield from super().next()

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        # Not the base's, which writes out the whole index for a message, at each sample.
        self.step, self.image_idx = step, global_sample_idx
        filename, sample = self.global_index_map[global_sample_idx]
        self.get_sample(filename, sample)
        self.preprocess()
        return self._args.resized_image

    def finalize(self) -> None:
        for opened in self._files.values():
            opened.close()
        self._files.clear()

    def is_index_based(self) -> bool:
        return True

    def is_iterator_based(self) -> bool:
        return True


class PyLmdbReader(_Reader):
    """As readers over py-lmdb are written; without readahead, which shuffled reading wants."""

    def open_file(self, filename: str) -> lmdb.Environment:
        return lmdb.open(filename, subdir=False, readonly=True, lock=False, readahead=False)

    def get_sample(self, filename: str, sample_index: int) -> None:
        with self.open(filename).begin() as txn:
            if txn.get(key_of(sample_index)) is None:
                raise KeyError(f"{filename} has no key {key_of(sample_index)!r}")


class LmdbioReader(_Reader):
    """The same by lmdbio; still one request at a time, for DLIO asks for single samples."""

    def open_file(self, filename: str) -> lmdbio.Records:
        return lmdbio.Records(filename, subdir=False)

    def get_sample(self, filename: str, sample_index: int) -> None:
        self.open(filename)[sample_index]


class LmdbioLoader(BaseDataLoader):
    """Batches read whole, all requests in flight, by ``read_threads`` threads of the process."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)
        self._loader: lmdbio.torch.Loader | None = None

    def read(self) -> None:
        args = self._args
        is_training = self.dataset_type is DatasetType.TRAIN
        self._loader = lmdbio.torch.Loader(
            args.file_list_train if is_training else args.file_list_eval,
            self.batch_size,
            transform=self._decode,
            shuffle=args.sample_shuffle is not Shuffle.OFF,
            seed=args.seed,
            drop_last=True,
            threads=max(1, args.read_threads),
            pin_memory=torch.cuda.is_available(),
            rank=args.my_rank,
            ranks=args.comm_size,
            subdir=False,
        )
        atexit.register(self._loader.close)

    def _decode(self, value: bytes) -> Any:
        """Do what FormatReader.preprocess does: take as long as decoding would."""
        args = self._args
        if args.preprocess_time or args.preprocess_time_stdev:
            sleep(max(0.0, np.random.normal(args.preprocess_time, args.preprocess_time_stdev)))
        return args.resized_image

    def next(self) -> Iterator[Any]:
        if self._loader is None:
            raise RuntimeError("next() before read()")
        yield from self._loader

    def finalize(self) -> None:
        pass  # said after each epoch, and the next one asks for more without another read()
