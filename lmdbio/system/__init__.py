"""system: what any room may need of the operating system: fork, signals, /proc, drafts, threads.

Knows nothing of LMDB. Uses the standard library alone.
"""
