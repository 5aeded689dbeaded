"""The tests that `pytest --problem-set SETS` runs when no test files are named."""
