"""Products of fp8 and fp4 matrices with scales."""
