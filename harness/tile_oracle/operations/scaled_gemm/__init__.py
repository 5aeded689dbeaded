"""Products of fp8 matrices with scales."""
