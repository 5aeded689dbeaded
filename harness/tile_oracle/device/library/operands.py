"""How the libraries with column-major matrices are asked for a product."""

from __future__ import annotations

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.problem import Problem


def transposed_operands(problem: Problem) -> tuple[bool, bool]:
    """Whether the library's first and second operand are transposed; its first is our second.

    problem: of the operation gemm. Raises Unlaunchable for one that the library cannot be asked for.
    """
    row = problem.as_row()
    if row["split_k"] != 1:
        raise Unlaunchable(
            f"split_k: the library chooses its own splits, split_k = {row['split_k']} must be 1"
        )
    return row["layout"][1] == "c", row["layout"][0] == "c"
