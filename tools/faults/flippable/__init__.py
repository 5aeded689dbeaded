"""The kinds of files that the project writes, each with the way in which its content becomes results.

A module here has a function `kinds()`, and `tools.faults.bitflips` lists it.
"""
