"""system: what any room may need: fork, signals, /proc, variables, drafts, threads, the log.

Knows nothing of LMDB. Uses the standard library alone.
"""
