"""Put lmdbio in py-lmdb's place, in every Python that has this folder in its path."""

import sys

import lmdbio

sys.modules["lmdb"] = lmdbio
