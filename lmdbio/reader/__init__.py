"""reader: this rank's share of each global batch, read ahead by the roots of its node.

Uses ``share``, ``reading``, ``locate``, ``machine``, ``planning`` and ``batch``.
"""
