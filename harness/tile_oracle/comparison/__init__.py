"""Compares the measurements of two runs, oracle files, baselines or files of records."""
