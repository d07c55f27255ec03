"""doctor: what limits reading a data set on this machine, judged from facts. Pure.

    facts    what was seen of the data set, its storage and the machine
    judge    all findings, the limit, and the next command
    finding  one of them: good, a note, or a problem
    data_rules, storage_rules, machine_rules   the findings that follow from facts

Uses ``machine`` for the facts of storage; only ``cli`` collects facts, and prints what follows.
"""
