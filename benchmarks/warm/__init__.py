"""warm: calls of the drop-in on files that lie in memory, beside py-lmdb's."""
