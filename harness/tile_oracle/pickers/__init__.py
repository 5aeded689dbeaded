"""Pickers of other makers behind one protocol: what they choose, mapped openly to the kernels of a pool."""
