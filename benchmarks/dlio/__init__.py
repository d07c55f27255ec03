"""DLIO, the engine of MLPerf Storage, on LMDB files."""
