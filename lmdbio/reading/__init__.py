"""reading: from extents to bytes in memory: past the page cache, out of it, or as a stream.

Uses ``locate``, ``machine``, ``planning``, ``observe``, ``batch`` and ``_core``.
"""
