"""Whole epochs in a shuffled order that is known beforehand."""
