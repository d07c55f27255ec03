"""doctor: what limits reading a data set on this machine, judged from facts. Pure.

    facts    what was seen of the data set, its storage and the machine
    rules    what follows from facts, by topic: good, a note, or a problem
    judge    all findings, the limit, and the next command

Uses ``machine`` for the facts of storage, and ``system``; only ``cli`` collects facts, and
prints what follows.
"""
