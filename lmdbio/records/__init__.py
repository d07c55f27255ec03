"""records: the values of one or several databases as a sequence.

Uses ``reading``, ``locate``, ``machine``, ``planning`` and ``batch``.
"""
