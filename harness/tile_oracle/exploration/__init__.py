"""What to measure next, and which unmeasured kernels to try."""
