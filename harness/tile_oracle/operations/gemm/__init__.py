"""The operation GEMM."""
