"""The Triton kernels that ship: `--kernels triton`."""

import gemm  # noqa: F401 (the declarations are the pool)
import grouped_conv  # noqa: F401
