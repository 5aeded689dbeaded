"""Products of matrices in batches, with a bias, an activation and another matrix fused in."""
