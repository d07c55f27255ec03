"""convert: makes provenance files, from a database or while one is written, and proves them.

Uses ``locate``, ``planning``, ``provenance``, ``remote`` and ``_core``.
"""
