"""Rows from root to root, beside a main thread that is idle and one that keeps Python busy."""
