"""The patterns for other frameworks, run by these frameworks as released.

Goal: in each one an epoch has every sample once, the next epoch has another order, ranks share
an epoch without overlap, states resume exactly where a framework has states, and a batch is one
read. Method: records that are numbers, and what a framework yields of them; versions are those of
the guide (`make frameworks`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import lmdbio
from tests.support import ROOT, databases

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="the frameworks are not installed; `make frameworks` does",
)
GUIDE = ROOT / "docs" / "guides" / "frameworks.md"
PATTERNS = ROOT / "examples" / "patterns"
COUNT, BATCH = 100, 8


@pytest.fixture(autouse=True)
def _patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PATTERNS))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("frameworks") / "numbers"
    with databases.open_writable(folder, 1) as env:
        records = [(b"%06d" % i, np.int64(i).tobytes() * (1 + i % 9)) for i in range(COUNT)]
        databases.write(env, records)
    return str(folder)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records of each read of this process."""
    sizes: list[int] = []
    read = lmdbio.Records.read

    def counted(self: lmdbio.Records, indices: Any) -> Any:
        sizes.append(len(indices))
        return read(self, indices)

    monkeypatch.setattr(lmdbio.Records, "read", counted)
    return sizes


def number(value: memoryview | bytes) -> np.int64:
    """Return the number that a record begins with."""
    return np.frombuffer(value, np.int64)[0]


def flat(batches: Iterable[Any]) -> list[int]:
    """Return the samples of batches."""
    return [int(one) for batch in batches for one in np.asarray(batch).ravel()]


def is_shuffled(samples: list[int]) -> bool:
    return samples != sorted(samples) and sorted(samples) == list(range(COUNT))


def test_the_versions_are_those_of_the_guide() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    extra = re.search(r"^frameworks = \[$(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    assert extra is not None
    pins = dict(re.findall(r'"([\w-]+)(?:\[\w+\])?==([\d.]+)"', extra[1]))
    assert len(pins) == 7
    guide = GUIDE.read_text("utf-8")
    for name, version in pins.items():
        assert importlib.metadata.version(name) == version
        assert re.search(rf"^\| [^|]*`{name}` {re.escape(version)} \|", guide, re.MULTILINE), name


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (1, "spawn")])
def test_hugging_face_reads_rows_of_indices(
    path: str, reads: list[int], workers: int, method: str | None
) -> None:
    from huggingface_source import dataset
    from torch.utils.data import DataLoader

    data = dataset(path, number)
    assert data[41] == {"sample": 41} and data[40:42] == {"sample": [40, 41]}
    reads.clear()
    loader = DataLoader(
        data, BATCH, shuffle=True, num_workers=workers, multiprocessing_context=method
    )
    epochs = [flat(batch["sample"] for batch in loader) for _ in range(2)]
    assert all(map(is_shuffled, epochs)) and epochs[0] != epochs[1]
    assert reads == ([] if workers else 2 * ([BATCH] * 12 + [4]))
    parts = data.train_test_split(0.2, seed=0)
    split = [flat(parts[name][:]["sample"]) for name in ("train", "test")]
    assert sorted(flat(split)) == list(range(COUNT)) and len(split[1]) == 20


def test_hugging_face_streams_to_ranks_and_resumes(path: str, reads: list[int]) -> None:
    from datasets.distributed import split_dataset_by_node
    from huggingface_source import stream

    data = stream(path, number, BATCH, seed=1, shards=4)
    shares = [split_dataset_by_node(data, rank, 2) for rank in range(2)]
    seen = [flat(row["sample"] for row in share) for share in shares]
    assert [len(one) for one in seen] == [50, 50] and is_shuffled(flat(seen))
    assert max(reads) == BATCH
    begun = iter(shares[0])
    head = flat(next(begun)["sample"] for _ in range(11))
    again = split_dataset_by_node(stream(path, number, BATCH, seed=1, shards=4), 0, 2)
    again.load_state_dict(shares[0].state_dict())
    assert head + flat(row["sample"] for row in again) == seen[0]


def test_torchdata_resumes_exactly(path: str) -> None:
    from torchdata_source import batches

    whole = batches(path, BATCH, number, seed=1)
    first, second = flat(whole), flat(whole)
    assert is_shuffled(first) and is_shuffled(second) and first != second
    stopped = batches(path, BATCH, number, seed=1)
    begun = iter(stopped)
    head = flat(next(begun) for _ in range(5))
    resumed = batches(path, BATCH, number, seed=1)
    resumed.load_state_dict(stopped.state_dict())
    assert head + flat(resumed) == first
    assert flat(resumed) == second


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of Ray's on this machine, which reports to nobody and leaves no file."""
    import ray

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(
        prefix="ray"
    ) as folder:  # short: names of sockets are bounded
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            runtime_env={"env_vars": {"PYTHONPATH": f"{PATTERNS}:{ROOT}"}},
            _temp_dir=folder,
        )
        yield
        ray.shutdown()


def test_ray_reads_batches_in_actors(path: str, cluster: None) -> None:
    from ray_source import dataset

    records = lmdbio.Records(path)
    rows = dataset(path, bytes, batch_size=BATCH, readers=2).take_all()
    assert sorted(row["id"] for row in rows) == list(range(COUNT))
    assert all(row["sample"] == records[row["id"]] for row in rows)
    data = dataset(path, number, batch_size=BATCH, readers=1, shuffled=True)
    epochs = [flat(batch["sample"] for batch in data.iter_batches()) for _ in range(2)]
    assert all(map(is_shuffled, epochs)) and epochs[0] != epochs[1]


def test_jax_steps_over_grain_s_batches_and_resumes(path: str, reads: list[int]) -> None:
    import jax
    from grain_source import batches

    @jax.jit
    def step(total: Any, batch: Any) -> Any:
        return total + batch.sum()

    words: dict[str, Any] = {"seed": 1, "epochs": 2, "ranks": 2}
    seen = []
    for rank in range(2):
        total, share = np.int32(0), []
        for batch in batches(path, 5, number, rank=rank, **words):
            total = step(total, jax.device_put(batch))
            share += flat([batch])
        assert total == sum(share)
        seen.append(share)
    epochs = [seen[0][part] + seen[1][part] for part in (slice(0, 50), slice(50, None))]
    assert all(map(is_shuffled, epochs)) and epochs[0] != epochs[1]
    assert set(reads) == {5}
    begun = iter(batches(path, 5, number, **words))
    head = flat(next(begun) for _ in range(7))
    resumed = iter(batches(path, 5, number, **words))
    resumed.set_state(begun.get_state())
    assert head + flat(resumed) == seen[0]


def test_grain_s_processes_read(path: str) -> None:
    import grain
    from absl import flags
    from grain_source import batches

    flags.FLAGS.mark_as_parsed()  # a program of absl's does, and Grain's processes want it
    source = lmdbio.Records(path)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    data = grain.MapDataset.source(source).seed(1).shuffle().map(number).to_iter_dataset()
    for epoch in (data, batches(path, 5, number, seed=1, epochs=1)):
        assert is_shuffled(flat(epoch.mp_prefetch(grain.MultiprocessingOptions(2))))


def test_tensorflow_shuffles_all_indices(path: str, reads: list[int]) -> None:
    import tensorflow as tf
    from tensorflow_source import dataset

    spec = tf.TensorSpec((), tf.int64)
    whole = dataset(path, BATCH, number, spec, seed=1)
    assert whole.element_spec.shape.as_list() == [None]
    epochs = [flat(whole.as_numpy_iterator()) for _ in range(2)]
    assert all(map(is_shuffled, epochs)) and epochs[0] != epochs[1]
    assert sorted(reads) == [4, 4] + [BATCH] * 24
    texts = dataset(path, BATCH, bytes, tf.TensorSpec((), tf.string), seed=1)
    values = [value for batch in texts.as_numpy_iterator() for value in batch]
    assert sorted(values) == sorted(map(bytes, lmdbio.Records(path)))
    shares = [dataset(path, BATCH, number, spec, seed=1, rank=rank, ranks=2) for rank in range(2)]
    seen = [flat(share.as_numpy_iterator()) for share in shares]
    assert [len(one) for one in seen] == [50, 50] and is_shuffled(flat(seen))
    thirds = [dataset(path, BATCH, number, spec, seed=1, rank=rank, ranks=3) for rank in range(3)]
    assert [len(flat(one.as_numpy_iterator())) for one in thirds] == [33, 33, 33]


def picture(index: int) -> bytes:
    """Return a JPEG of one grey, which its index tells."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (16, 16), (2 * index,) * 3).save(file, "JPEG", quality=95)
    return file.getvalue()


def test_dali_decodes_on_the_cpu(tmp_path: Path) -> None:
    from dali_source import images

    with databases.open_writable(tmp_path / "pictures", 1) as env:
        databases.write(env, [(b"%06d" % i, picture(i)) for i in range(COUNT)])

    def epoch(pipeline: Any) -> list[int]:
        seen = []
        with pytest.raises(StopIteration):
            while True:
                (decoded,) = pipeline.run()
                seen += [round(np.asarray(one).mean() / 2) for one in decoded]
        return seen

    shares = [images(str(tmp_path / "pictures"), 5, seed=1, rank=rank, ranks=2) for rank in (0, 1)]
    epochs = []
    for _ in range(2):
        epochs.append(flat(map(epoch, shares)))
        for share in shares:
            share.reset()
    assert all(map(is_shuffled, epochs)) and epochs[0] != epochs[1]
