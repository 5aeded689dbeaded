"""Kernels picked in microseconds: the ranker as native code."""
