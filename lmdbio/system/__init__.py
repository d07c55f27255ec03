"""system: what any room may need of the system: fork, signals, /proc, drafts, threads, the log.

Knows nothing of LMDB. Uses the standard library alone.
"""
