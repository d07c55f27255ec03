"""locate: from record to extent: by a provenance file, a walk of the tree, or a moving cursor.

Uses ``layouts``, ``provenance``, ``planning``, ``inside``, ``remote`` and ``_core``.
"""
