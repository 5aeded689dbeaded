"""The features of operations on rows for models. The bytes bound the time, so bandwidth decides."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, OperationFeatures
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.pool_columns import CONFIGURED, REGISTERS, ROUNDS, pool_schema
from tile_oracle.operations.rowwise.problem import RowProblem


def row_features(problem: type[RowProblem], rows: str, columns: str) -> OperationFeatures:
    """Returns the features of one operation. rows, columns: its names of both extents.

    A workgroup has `tile_m` rows, a step `tile_n` columns.
    """
    sizes = formulas(f"""
log2_rows = log2_of({rows})  # log2 of the rows
log2_columns = log2_of({columns})  # log2 of the columns
bytes_of_element = element_bytes  # bytes of one element
log2_bytes = log2_of(elements * element_bytes)  # log2 of its bytes
""")
    steps = formulas(f"""
steps = ceil_div({columns}, tile_n)  # steps of a row
fill = {columns} / (steps * tile_n)  # useful share of the steps
""")
    intermediates = formulas(f"""
element_bytes = dtype  # bytes of one element
elements = {rows} * {columns}  # elements of a matrix
flops = {problem.flops_per_element} * {rows} * {columns}  # floating-point operations
bytes_total = (2 * {rows} + {int(problem.weighted)}) * {columns} * element_bytes
    # bytes of operands and result, which bound the time
cus = maximum(hw_num_cus, 1.0)  # compute units, at least 1
tile_m = maximum(kernel_tile_m, 1.0)  # rows of a workgroup
tile_n = where(kernel_tile_n > 0, kernel_tile_n, {columns})  # columns of a step, the whole row if unknown
tiles = ceil_div({rows}, tile_m)  # workgroups
""")
    features = (*sizes, *CONFIGURED, *ROUNDS, *steps, REGISTERS)
    schema = pool_schema(
        f"{problem.op}_pool_1", problem.op, features, intermediates, {"dtype": ELEMENT_BYTES}
    )
    return OperationFeatures(schema, pool=schema)
