"""reader: this rank's share of each global batch, read ahead by the roots of its node.

Uses ``reading``, ``locate``, ``share``, ``machine``, ``provenance``, ``placement``, ``planning``,
``observe``, ``cache``, ``layouts`` and ``_core``.
"""
