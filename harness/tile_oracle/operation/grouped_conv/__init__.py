"""Grouped convolution: what is particular to the operation."""
