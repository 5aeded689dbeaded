"""Runs kernels of a description in Triton's interpreter, on NumPy arrays: python interpreted.py CASES.

CASES is a JSON file: the file of kernels, and for each case a specification (build.triton.specify), the
problem's id and the number of compute units. Prints one line a case: ok, or the first wrong value. Needs no
torch: the interpreter wants objects that look a little like tensors.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import ml_dtypes
import numpy as np

_TYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32}
_TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Tensor:
    """As much of a torch tensor as the interpreter asks for. Host and device are the same memory."""

    def __init__(self, values: Any, dtype: str) -> None:
        self.values, self.dtype = values, _TORCH_NAMES[dtype]

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def new_empty(self, *_: Any, **__: Any) -> Tensor:
        return Tensor.__new__(Tensor)

    def set_(self, storage: Tensor, *_: Any) -> None:
        self.__dict__ = storage.__dict__

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.values.itemsize for step in self.values.strides)

    def copy_(self, other: Tensor) -> None:
        assert other.values is self.values


def run(
    unit: dict[str, Any], functions: list[Any], problem: Any, arrays: dict[str, Tensor], units: int
) -> None:
    """Runs all launches as the worker would."""
    from tile_oracle.triton.expression import evaluate
    from tile_oracle.triton.views import WORKSPACE, values_of

    values = values_of(problem, units)
    workspace = np.full(evaluate(unit["workspace_bytes"], values) // 4 + 1, np.nan, np.float32)
    arrays = arrays | {WORKSPACE: Tensor(workspace, "fp32")}
    for launch in unit["launches"]:
        arguments = dict(launch["constants"])
        for name, _, value in launch["arguments"]:
            if isinstance(value, dict):
                array = arrays[value["pointer"]]
                offset = evaluate(value["offset"], values) // array.values.itemsize
                arguments[name] = array if not offset else Tensor(array.values[offset:], "fp32")
            else:
                arguments[name] = value if isinstance(value, float) else evaluate(value, values)
        grid = tuple(evaluate(axis, values) for axis in launch["grid"])
        functions[launch["number"]][grid](**arguments)


def small_integers(shape: tuple[int, ...], dtype: str, seed: int) -> Tensor:
    """Values whose products and sums fp32 holds exactly."""
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return Tensor(values.astype(_TYPES[dtype]), dtype)


def main(path: str) -> None:
    from tile_oracle.compiling.triton.user_file import import_declarations
    from tile_oracle.problem import problem_from_id

    told = json.loads(Path(path).read_text("utf-8"))
    declarations = import_declarations(Path(told["file"]))
    for case in told["cases"]:
        unit, problem = case["unit"], problem_from_id(case["problem"])
        declaration = declarations[unit["declaration"]]
        functions = [declaration.main.function, *(one.function for one in declaration.after)]
        functions = [
            getattr(one, "fn", one) if type(one).__name__ == "Autotuner" else one for one in functions
        ]
        print(of_case(unit, functions, problem, case["compute_units"]))


def of_case(unit: dict[str, Any], functions: list[Any], problem: Any, units: int) -> str:
    """ok, or what is wrong."""
    from tile_oracle.triton.views import OPERANDS

    *operands, out = problem.operand_shapes
    result = Tensor(np.full(out, np.nan, _TYPES[problem.result_dtype]), problem.result_dtype)
    if problem.op in ("gemm", "grouped_conv"):
        made = [small_integers(shape, problem.dtype, number) for number, shape in enumerate(operands, 1)]
    else:
        made, low, high = with_bounds(problem)
    arrays = {**dict(zip(OPERANDS, made, strict=False)), "out": result}
    run(unit, functions, problem, arrays, units)
    got = result.values.astype(np.float64)
    if problem.op in ("gemm", "grouped_conv"):
        low = high = expected(problem, arrays).astype(_TYPES[problem.result_dtype]).astype(np.float64)
    wrong = np.argwhere(~((low <= got) & (got <= high)))
    if not len(wrong):
        return "ok"
    where = tuple(map(int, wrong[0]))
    return f"{len(wrong)} wrong, first at {where}: {got[where]} not {low[where]} to {high[where]}"


def with_bounds(problem: Any) -> tuple[list[Tensor], Any, Any]:
    """Operands whose values are far from zero, and the least and largest right values."""
    from tile_oracle.operation.on_gpu import on_gpu
    from tile_oracle.problem.number_formats import decode

    rows: Any = on_gpu(problem.op)
    random = np.random.default_rng(3)
    height = int(np.prod(problem.operand_shapes[-1][:-1]))
    first = rows.first(problem, random, height, far=True)
    others = rows.others(problem, random, None)
    shape = problem.operand_shapes[-1]
    low, high = (
        decode(one, problem.result_dtype).astype(np.float64).reshape(shape)
        for one in rows.bounds(problem, first, others, np.arange(height))
    )
    stored = [first.reshape(problem.operand_shapes[0]), *(one.whole() for one in others)]
    return [Tensor(one.view(_TYPES[problem.dtype]), problem.dtype) for one in stored], low, high


def expected(problem: Any, arrays: dict[str, Tensor]) -> Any:
    """The exact result."""
    first, second = (arrays[role].values.astype(np.float64) for role in ("first", "second"))
    if problem.op == "gemm":
        return (first if problem.layout[0] == "r" else first.T) @ (
            second if problem.layout[1] == "r" else second.T
        )
    return convolution(problem, first, second)


def convolution(p: Any, first: Any, second: Any) -> Any:
    """A grouped convolution by its definition: tap by tap, on the padded images as views."""
    image = (p.N, p.Di, p.Hi, p.Wi, p.G, p.C // p.G)
    filters = (p.G, p.K // p.G, p.Z, p.Y, p.X, p.C // p.G)
    result = (p.N, p.Do, p.Ho, p.Wo, p.G, p.K // p.G)
    shapes = {"forward": (image, filters), "bwd_data": (result, filters), "bwd_weight": (image, result)}
    first, second = (one.reshape(s) for one, s in zip((first, second), shapes[p.direction], strict=True))
    pads = tuple((one, one) for one in (0, p.pad_d, p.pad_h, p.pad_w, 0, 0))
    padded = np.pad(np.zeros(image) if p.direction == "bwd_data" else first, pads)
    out = np.zeros({"forward": result, "bwd_weight": filters}.get(p.direction, image))
    for z, y, x in np.ndindex(p.Z, p.Y, p.X):
        front, top, left = z * p.dilation_d, y * p.dilation_h, x * p.dilation_w
        seen = padded[
            :,
            front : front + (p.Do - 1) * p.stride_d + 1 : p.stride_d,
            top : top + (p.Ho - 1) * p.stride_h + 1 : p.stride_h,
            left : left + (p.Wo - 1) * p.stride_w + 1 : p.stride_w,
        ]
        if p.direction == "forward":
            out += np.einsum("ndhwgc,gkc->ndhwgk", seen, second[:, :, z, y, x])
        elif p.direction == "bwd_data":
            seen += np.einsum("ndhwgk,gkc->ndhwgc", first, second[:, :, z, y, x])
        else:
            out[:, :, z, y, x] = np.einsum("ndhwgc,ndhwgk->gkc", seen, second)
    if p.direction == "bwd_data":
        out = padded[
            :, *(slice(one, one + size) for (one, _), size in zip(pads[1:4], image[1:4], strict=True))
        ]
    return out.reshape(p.operand_shapes[2])


if __name__ == "__main__":
    main(sys.argv[1])
