"""planning: which records, in which order, for which rank, by which reads. Pure.

Knows no file, clock, MPI or chance. Uses the pure calls of ``_core``.

    order        seed, epoch, place -> sample; and the shard of a rank
    shuffle      how far records are moved apart, as a value
    schedule     the records of each rank in each iteration
    deal         which team takes which record, near where it is cached
    stepped      epochs that each begin with a new batch
    rounds       what comes to memory together, where an epoch comes in windows
    sampling     samples drawn by weight, in batches of like size, or in epochs of any length
    mix          samples of several sets by weight; and samples split into parts
    mode         the six choices of how a Reader reads
    reads        extents -> a few large requests
    speculation  guesses where records lie
    randomness   how much chance an order has
    environment  rates of nodes, tiers, network and file system
"""
