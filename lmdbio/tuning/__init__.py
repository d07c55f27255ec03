"""tuning: measures how storage likes to be read, by one process and by the ranks of a job.

Uses ``reader``, ``locate``, ``share``, ``machine``, ``planning``, ``provenance``, ``remote`` and
``_core``.

    tune     the storage of one file, or of a folder, and memory, by one process
    job      several nodes that read at once, and the network between them
    stagger  how many roots should read at a time
    threads  how often some threads call a function, all at once
"""
