"""tuning: measures how storage likes to be read, by one process and by the ranks of a job.

Uses ``reader``, ``locate``, ``share``, ``machine``, ``planning``, ``provenance``, ``remote`` and
``_core``.
"""
