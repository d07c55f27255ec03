"""simulate: how long a job would take, by models. Pure.

Knows no file, clock, MPI or chance: the same values in, the same figures out. Uses no
other package.

    loading     closed forms of an epoch's reading
"""
