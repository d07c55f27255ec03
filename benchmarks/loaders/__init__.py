"""Loaders for PyTorch over one data set."""
