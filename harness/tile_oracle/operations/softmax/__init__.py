"""Softmax of each row of a matrix."""
