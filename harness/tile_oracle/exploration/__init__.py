"""Suggests the next measurements, and searches for unmeasured kernels."""
