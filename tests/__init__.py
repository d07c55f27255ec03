"""The tests mirror the packages of lmdbio; ``surfaces`` asks the same of all surfaces."""
