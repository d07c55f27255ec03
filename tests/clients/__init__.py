"""Released programs that read LMDB, as they are: what they give over py-lmdb and over lmdbio."""
