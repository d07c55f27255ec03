"""machine: what this machine and its storage can do, and what follows from it for reading.

Uses ``placement``, ``planning``, ``_core``, ``remote`` and ``system``.
"""
