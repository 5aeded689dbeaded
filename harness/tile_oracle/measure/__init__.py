"""Measures kernels in isolated workers: check first, then time, and stream the results."""
