"""Root-mean-square normalization of each row of a matrix."""
