"""system: what any room may need: fork, signals, /proc, drafts, the log, py-lmdb.

    amounts        numbers and bytes as people read and write them, and bytes that reads keep to
    file_identity  whether two looks at a file, or two names, stand for one file in one state
    fork           what a child process makes anew
    frozen, slim   frozen values, and parts of the standard library, that load quickly
    log, warn      the logger "lmdbio", and warnings that point at the program
    names          URLs told from paths, and paths made absolute
    posix          what Windows has not, and modules name as they load
    process        calls at the end of a process
    procfs         small files of /proc and /sys
    publish        drafts, which become their goal whole or vanish
    pylmdb         py-lmdb, loaded when it is needed, and classes that stand beside its own
    reader_slots   what keeps the pages of a snapshot from being overwritten
    signals        signals that ask a process to end
    zstd           the standard library's compression.zstd, or its backport

Knows nothing of LMDB's files. Uses the standard library, its backports, and py-lmdb alone.
"""
