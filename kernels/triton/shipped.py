"""The Triton kernels that ship: `--kernels triton`."""

import gemm  # noqa: F401 (its declarations are the pool)
