"""What a declaration sees of a problem: its kind, its numbers as expressions, its arrays as pointers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operation import Kind
from tile_oracle.problem import Problem
from tile_oracle.triton.expression import Expression, ExpressionError, Number, number

COMPUTE_UNITS = "compute_units"
"""The number of the device's compute units (streaming multiprocessors)."""

FIRST, SECOND, OUT, WORKSPACE = "first", "second", "out", "workspace"
ROLES = (FIRST, SECOND, OUT, WORKSPACE)
"""The arrays of a run: both operands, the result, and memory for intermediate results."""

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int32": 4}
POINTER_DTYPES = tuple(_BYTES)
"""The element types of pointers."""


@dataclass(frozen=True, eq=False)
class Pointer:
    """The address of an array. elements: how many it has, None for the workspace.

    offset_bytes: where in the array it points, a multiple of 16.
    """

    role: str
    dtype: str
    elements: Number | None = None
    offset_bytes: Number = 0

    @property
    def bytes(self) -> Number | None:
        """The array's size."""
        return None if self.elements is None else self.elements * _BYTES[self.dtype]


class ProblemView:
    """A problem of one kind: the parts that all operations have.

    arch: the architecture that kernels are compiled for. compute_units: of the device, an expression.
    result_dtype: the data type of the result.
    """

    op: ClassVar[str]

    def __init__(self, kind: Kind, arch: str) -> None:
        self.kind, self.arch = kind, arch
        self.compute_units: Expression = number(COMPUTE_UNITS)
        self.dtype = kind.dtype
        self.result_dtype = "fp16" if kind.dtype == "fp8" else kind.dtype

    def workspace(self, dtype: str = "fp32", offset_bytes: Number = 0) -> Pointer:
        """Memory for intermediate results, as much as the declaration's `workspace_bytes`. Its content is
        undefined when the first launch starts."""
        if dtype not in _BYTES:
            raise ExpressionError(f"{dtype!r} is not one of {', '.join(_BYTES)}")
        return Pointer(WORKSPACE, dtype, None, offset_bytes)


class GemmView(ProblemView):
    """C = A B. M, N, K: extents. split_k: the problem's own. a, b, c: the arrays.

    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn: elements from one row (m, n) or one
    step of the depth (k) to the next; 1 along the contiguous axis.
    """

    op = "gemm"

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.layout = str(kind.words["layout"])
        self.M, self.N, self.K, self.split_k = (number(name) for name in ("M", "N", "K", "split_k"))
        self.a = Pointer(FIRST, self.dtype, self.M * self.K)
        self.b = Pointer(SECOND, self.dtype, self.K * self.N)
        self.c = Pointer(OUT, self.result_dtype, self.M * self.N)
        a_by_row, b_by_row = self.layout[0] == "r", self.layout[1] == "r"
        self.stride_am: Number = self.K if a_by_row else 1
        self.stride_ak: Number = 1 if a_by_row else self.M
        self.stride_bk: Number = self.N if b_by_row else 1
        self.stride_bn: Number = 1 if b_by_row else self.K
        self.stride_cm: Number = self.N
        self.stride_cn: Number = 1

    def usual_arguments(self) -> dict[str, object]:
        """The argument names of Triton's tutorials."""
        names = ("M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
        return {"a_ptr": self.a, "b_ptr": self.b, "c_ptr": self.c} | {
            one: getattr(self, one) for one in names
        }

    def contiguous(self) -> tuple[str, ...]:
        """The extents of the contiguous axes."""
        axes = ("K" if self.layout[0] == "r" else "M", "N" if self.layout[1] == "r" else "K", "N")
        return tuple(dict.fromkeys(axes))


class GroupedConvView(ProblemView):
    """A grouped convolution. The numbers are the problem's fields: N, C, K, G, Di, Hi, Wi, Z, Y, X, Do, Ho,
    Wo, stride_d ... dilation_w; C and K are totals over the groups, C_per_group and K_per_group of one group.

    Arrays lie as N[D]HWGC, GK[Z]YXC and N[D]HWGK. x, w, y: of forward; dy, w, dx: of bwd_data; x, dy, dw: of
    bwd_weight.
    """

    op = "grouped_conv"

    N: Expression
    C: Expression
    K: Expression
    G: Expression
    Di: Expression
    Hi: Expression
    Wi: Expression
    Z: Expression
    Y: Expression
    X: Expression
    Do: Expression
    Ho: Expression
    Wo: Expression
    stride_d: Expression
    stride_h: Expression
    stride_w: Expression
    pad_d: Expression
    pad_h: Expression
    pad_w: Expression
    dilation_d: Expression
    dilation_h: Expression
    dilation_w: Expression
    C_per_group: Expression
    K_per_group: Expression
    x: Pointer
    w: Pointer
    y: Pointer
    dx: Pointer
    dw: Pointer
    dy: Pointer

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.direction, self.ndim = str(kind.words["direction"]), int(kind.words["ndim"])
        for name in _CONV_NUMBERS:
            setattr(self, name, number(name))
        x = self.N * self.Di * self.Hi * self.Wi * self.C
        y = self.N * self.Do * self.Ho * self.Wo * self.K
        w = self.K * self.Z * self.Y * self.X * self.C_per_group
        sizes = {"x": x, "dx": x, "y": y, "dy": y, "w": w, "dw": w}
        for role, name in zip(ROLES, _CONV_ARRAYS[self.direction], strict=False):
            dtype = self.result_dtype if role == OUT else self.dtype
            setattr(self, name, Pointer(role, dtype, sizes[name]))

    def usual_arguments(self) -> dict[str, object]:
        """The numbers under their names, and each array under NAME_ptr."""
        arrays = {f"{name}_ptr": getattr(self, name) for name in _CONV_ARRAYS[self.direction]}
        return arrays | {name: getattr(self, name) for name in _CONV_NUMBERS}

    def contiguous(self) -> tuple[str, ...]:
        """The channels, in all groups and in one."""
        return ("C", "K", "C_per_group", "K_per_group")


_CONV_NUMBERS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w", "C_per_group", "K_per_group"),
)
_CONV_ARRAYS = {"forward": ("x", "w", "y"), "bwd_data": ("dy", "w", "dx"), "bwd_weight": ("x", "dy", "dw")}

VIEWS: dict[str, type[GemmView] | type[GroupedConvView]] = {
    view.op: view for view in (GemmView, GroupedConvView)
}
"""Operation -> its view. Other operations have none yet."""


_NUMBERS = {"gemm": ("M", "N", "K", "split_k"), "grouped_conv": _CONV_NUMBERS}


def numbers_of(op: str) -> tuple[str, ...]:
    """The names that expressions of an operation may use."""
    return (*_NUMBERS[op], COMPUTE_UNITS)


def values_of(problem: Problem, compute_units: int) -> dict[str, int]:
    """The values of these names. 2D convolutions have a depth of 1."""
    values = {name: int(getattr(problem, name)) for name in _NUMBERS[problem.op] if "_per_" not in name}
    if problem.op == "grouped_conv":
        values |= {f"{name}_per_group": values[name] // values["G"] for name in ("C", "K")}
    return {**values, COMPUTE_UNITS: compute_units}
