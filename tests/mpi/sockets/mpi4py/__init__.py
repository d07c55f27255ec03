"""Stands in the place of mpi4py, for programs whose ranks speak over sockets (share.sockets).

So the programs of tests/mpi run as they are under a third transport.
"""
