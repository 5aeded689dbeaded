"""The kinds of files that the project writes, each with a reader that turns the file into results.

Each module has a function `kinds()`, which `tools.faults.bitflips` calls.
"""
