"""A cluster on one machine: all modes on many ranks, and what waiting costs."""
