"""Programs that compare lmdbio with others and measure what it must keep.

python -m benchmarks.targets.run --help       from the top folder
"""
