"""A modelled parallel file system, mounted by FUSE."""
