"""Vendors' libraries in a worker: their C interfaces, and their algorithms as loaded kernels."""
