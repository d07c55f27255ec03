"""machine: what this machine and its storage can do, and what follows from it for reading.

    storage       what is under a file, as far as can be seen without reading it
    calibration   what ``lmdbio tune`` measured; ``tuned_folder``: where that is stored
    measured      what follows from that: rates, and how many roots read at a time
    overrides     what a caller or the environment asks for by name
    choice        engine, depth, sizes of requests and gaps
    budget        how much memory a process may take
    page_reporting  whether memory that a virtual machine frees goes back to its host
    bounds        how much memory the slots of a window can need
    cache_choice  what ``cache="auto"`` comes to

Uses ``placement``, ``planning``, ``_core``, ``remote`` and ``system``.
"""
