"""lmdb-embeddings: word vectors by its own writer, a transaction per word."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "lmdb-embeddings"
CALLS = "`begin` and `get` per word; pickle"
COUNT = 5000


def word(i: int) -> str:
    return f"wörd{i * 7919 % COUNT}"


def write(path: str) -> None:
    import numpy as np
    from lmdb_embeddings.writer import LmdbEmbeddingsWriter

    vectors = ((word(i), np.full(300, i, np.float32)) for i in range(COUNT))
    LmdbEmbeddingsWriter(vectors).write(path)


def opened(path: str) -> Any:
    from lmdb_embeddings.reader import LmdbEmbeddingsReader

    return LmdbEmbeddingsReader(path)


def epoch(reader: Any) -> list[Any]:
    return [reader.get_word_vector(word(i)) for i in range(COUNT)]


def odd(reader: Any, path: str) -> dict[str, Any]:
    def locked() -> Any:
        reader.environment.close()
        return opened_with_lock().get_word_vector(word(1))

    def opened_with_lock() -> Any:
        return type(reader)(path, lock=True)

    return {
        "a word that is not there": lambda: reader.get_word_vector("no"),
        "no word": lambda: reader.get_word_vector(""),
        "a long word": lambda: reader.get_word_vector("n" * 600),
        "locked": locked,
        "after close": lambda: reader.get_word_vector(word(1)),
        "no such folder": lambda: opened(path + "?"),
    }


def test_the_reader_gives_the_same_vectors(race: Any) -> None:
    race()
