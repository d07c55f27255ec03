"""Five papers in one report: what each claims, and what this code gives for it.

figures.toml   each figure, table and number of the papers, and what answers it here
claims         the same as values
measured       runs on the emulated cluster -> results
simulated      runs of the simulator, and the arithmetic of tests/papers -> results
page           all of it as one page
run            the order of events
"""
