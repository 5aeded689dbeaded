"""How foreign files name the columns, dimensions and kernels of each operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from tile_oracle.errors import KernelError, ProblemError
from tile_oracle.foreign.contract import (
    ANOTHER,
    FIELDS,
    MORE,
    NOTHING,
    UNUSED,
    Field,
    is_false,
    of_kernel,
    one_of,
    same_dtype,
)
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.operation import operation_named
from tile_oracle.operation.flat import shortened
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Kind, Problem
from tile_oracle.problem.dtype_words import dtype_named

# ---- batched products and products with an epilogue ------------------------------------------------
# Upstream's names and calls of them, as far as fused_gemm is what they do.
#
#     gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16
#     gemm_fp16_rcr_compv3_..._32x32x16_multid_MultiDAdd_d1
#
# Composable Kernel's dispatcher writes the second, with the operation of the epilogue and the number of
# matrices D. Kernels keep their configuration under the source ck: fused_gemm_fp16_rcr_residual_ck.gemm...

NAME = re.compile(r"\b(?:gemm_batched|batched_gemm)_\w+|\bgemm_\w+?_multid_\w+")
"""Pattern of such a name in running text."""
_PARTS = re.compile(
    r"(?P<batched>gemm_batched_|batched_gemm_)?(?:gemm_)?(?P<dtype>[a-z0-9]+)_(?P<layout>[rc]{3})_(?P<rest>\w+?)"
    r"(?:_multid_(?P<done>\w+)_d(?P<count>\d+))?"
)
_EPILOGUES = {(None, None): "none", ("MultiDAdd", "1"): "residual", ("FastGelu", "0"): "gelu_tanh"}
"""What is done with the sums, and the number of matrices D -> epilogue."""


def fused_kernel(name: str) -> NamedKernel | None:
    """Returns the kernel of fused_gemm of a name; None for other names. Raises KernelError for one that does
    what fused_gemm cannot say."""
    if NAME.fullmatch(name) is None:
        return None
    parts = _PARTS.fullmatch(name)
    if parts is None:
        raise KernelError(f"{shortened(name)} states no data type and layout of A, B and C")
    epilogue = _EPILOGUES.get((parts["done"], parts["count"]))
    if epilogue is None:
        done = f"{parts['done']} with {parts['count']} matrices D"
        raise KernelError(f"{shortened(name)}: fused_gemm has no epilogue that is {done}")
    plain = parse_kernel_name(f"gemm_{parts['dtype']}_{parts['layout']}_{parts['rest']}")
    try:
        kind = FusedGemmProblem(parts["dtype"], parts["layout"], epilogue, 1, 1, 1).kind
    except ProblemError as error:
        raise KernelError(f"{shortened(name)} is no kernel of fused_gemm: {error}") from None
    values = {name: value for name, value in plain.as_row().items() if name not in ("dtype", "layout")}
    return NamedKernel(kind, "ck", "batched_gemm" if parts["batched"] else "gemm", tuple(values.items()))


def batch_of(one: GemmProblem, count: str) -> tuple[GemmProblem | FusedGemmProblem | None, str]:
    """Returns a batch of a product, which of one is the product, and why there is none."""
    if count in ("", "1"):
        return one, ""
    if not (count.isdigit() and count.isascii()):
        return None, f"a batch: batch_count = {count[:60]!r} is no number of products"
    try:
        return FusedGemmProblem(one.dtype, one.layout, "none", one.M, one.N, one.K, int(count)), ""
    except ProblemError as error:
        return None, f"a batch: {error}"[:300]


CONTRADICTS = "contradicts the kernel or dense matrices"


def _padded_mem(kernel: Any) -> Kernel:
    """CK Tile's GEMMs with the pipeline mem pad all three axes, but benchmark programs name them without."""
    is_mem = getattr(kernel, "pipeline", "") == "mem"
    padded: Kernel = replace(kernel, pad_m=True, pad_n=True, pad_k=True) if is_mem else kernel
    return padded


@dataclass(frozen=True)
class Dialect:
    """One operation's names in foreign files. `own`: its fields besides those of all operations. `meant`: the
    kernel that was measured under a kernel's name. `needed`: dimensions that have to be stated though they
    have a default."""

    op: str
    own: Mapping[str, Field] = field(default_factory=dict)
    meant: Callable[[Any], Kernel] = lambda kernel: kernel
    needed: tuple[str, ...] = ()

    @cached_property
    def kernel_word(self) -> re.Pattern[str]:
        """Pattern of a kernel's name in running text."""
        return NAME if self.op == FusedGemmProblem.op else re.compile(rf"\b{re.escape(self.op)}_\w+")

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The numbers of a problem, without what a kernel's name states (dtype, direction, ...)."""
        return operation_named(self.op).free_fields

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The dimensions, and the output extents that must agree with them."""
        return (*self.dimensions, *operation_named(self.op).outputs)

    @property
    def required(self) -> tuple[str, ...]:
        """The dimensions without a default. A log that mentions the first three begins a new problem."""
        known = (*operation_named(self.op).required, *self.needed)
        return tuple(name for name in self.dimensions if name in known)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Name in lower case -> what it means."""
        return {**FIELDS, **self.own, **{name.lower(): Field(name) for name in self.numbers}}

    def field(self, column: str) -> Field:
        """Returns what a column means; what a row states twice has columns that end in ~."""
        return self.fields.get(column.rstrip("~"), UNUSED)

    @cached_property
    def dimension(self) -> re.Pattern[str]:
        """A dimension and its value in a log: M = 16, or M: 16."""
        names = "|".join(sorted(map(re.escape, self.dimensions), key=len, reverse=True))
        # A convolution's N is another dimension than n.
        flags = re.IGNORECASE if self.op in (GemmProblem.op, FusedGemmProblem.op) else 0
        return re.compile(rf"\b({names})\s*[=:]\s*(\d+)", flags)

    def problem(self, kind: Kind, dimensions: Mapping[str, int]) -> Problem:
        """Returns the problem of a kernel's kind with these dimensions and output extents. Raises
        ProblemError."""
        missing = [name for name in self.required if name not in dimensions]
        if missing:
            raise ProblemError(f"a problem's {missing[0]} is missing")
        return operation_named(kind.op).problem_of({**kind.words, **dimensions})


def _of_problem(holds: Callable[[str, Any], bool]) -> Field:
    return Field(holds=holds, of="problem", why=CONTRADICTS)


def _number(name: str) -> Field:
    return _of_problem(lambda text, one: text.removesuffix(".0") == str(getattr(one, name)))


def _only(holds: Callable[[str, Any], bool]) -> Field:
    return Field(holds=holds, why=ANOTHER)


def _no_more(holds: Callable[[str, Any], bool]) -> Field:
    return Field(holds=holds, why=MORE)


_OF_KERNEL = {
    name: Field(holds=of_kernel(name), of="kernel", why=CONTRADICTS)
    for name in (*GroupedConvKernel.field_names(), *GemmKernel.field_names())
    if not name.startswith("pad_")
} | {f"pad_{axis}": UNUSED for axis in "mnk"}
"""A kernel's fields, which repeat its name. Paddings are as `meant`."""

_DTYPES = ("dtype", "datatype", "data_type", "precision", "in_dtype")
_BATCHES = ("b", "batch", "batch_count", "batch_size", "num_batches")
_CHANNELS_LAST = one_of("nhwgc", "ndhwgc", "nhwc", "ndhwc", "nhwgc_gkyxc_nhwgk", "channels_last")

CONVOLUTIONS = Dialect(
    GroupedConvProblem.op,
    own={
        **_OF_KERNEL,
        **dict.fromkeys((*_DTYPES, "wei_dtype", "out_dtype"), _of_problem(same_dtype)),
        **dict.fromkeys(("direction", "variant"), _of_problem(lambda text, one: text == one.direction)),
        **dict.fromkeys(("ndim", "ndim_spatial"), _number("ndim")),
        **dict.fromkeys(("layout", "in_layout", "out_layout", "memory_format"), _of_problem(_CHANNELS_LAST)),
        **dict.fromkeys(("op", "op_type", "operation"), _only(one_of("grouped_conv", "convolution"))),
        **dict.fromkeys(("split_k", "splitk", "k_batch"), _only(one_of("1"))),
        **dict.fromkeys(("alpha", "scale", "scale_a", "scale_b"), _no_more(one_of("1", *NOTHING))),
        **dict.fromkeys(("beta", "bias", "activation", "epilogue_op"), _no_more(is_false)),
        **dict.fromkeys(("batch", "batch_size"), _number("N")),
    },
)  # fmt: skip

_LAYOUT_LETTERS = {"rowmajor": "r", "columnmajor": "c", "colmajor": "c", "r": "r", "c": "c"}


def _dtype(place: int) -> Field:
    name = "result_dtype" if place == 2 else "dtype"
    return _of_problem(lambda text, one: dtype_named(text) == getattr(one, name, one.dtype))


def _is_fp32(text: str, _: Any) -> bool:
    return dtype_named(text) == "fp32"


def _layout(place: int) -> Field:
    def holds(text: str, problem: Problem) -> bool:
        letter = _LAYOUT_LETTERS.get(text.replace("_", ""))
        layout = str(problem.kind.words.get("layout", ""))
        return letter is not None and letter == layout[place : place + 1]

    return _of_problem(holds)


def _stride(place: int) -> Field:
    """Elements from one row (or column) in memory to the next; 0 means dense."""
    return _of_problem(
        lambda text, one: text.removesuffix(".0") in ("", "0", str(one.operand_shapes[place][-1]))
    )


GEMM_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        **{
            f"{name}_{operand}": make(place)
            for place, operand in enumerate("abc")
            for name, make in (("dtype", _dtype), ("layout", _layout), ("stride", _stride))
        },
        **{f"{operand}_type": _dtype(place) for place, operand in enumerate("abc")},
        **dict.fromkeys((*_DTYPES, "q_dtype_a", "q_dtype_w"), _of_problem(same_dtype)),
        **dict.fromkeys(("out_dtype", "outdtype", "d_type", "dtype_d", "dtype_out"), _dtype(2)),
        **dict.fromkeys(("dtype_acc", "acc_type", "acc_dtype"), _of_problem(_is_fp32)),
        "layout": _of_problem(lambda text, one: text == one.layout),
        **dict.fromkeys(("op", "op_type", "operation"), _only(one_of("gemm", "gemm_universal"))),
        **dict.fromkeys(("splitk", "k_batch", "ksplit"), Field("split_k")),
        **dict.fromkeys((*_BATCHES, "groups", "group_count", "num_groups"), _only(one_of("1"))),
        "alpha": _no_more(one_of("1")),
        "structured_sparsity": _of_problem(is_false),
        "grouped_gemm": _only(is_false),
        **dict.fromkeys(
            ("beta", "bias", "scale", "scale_a", "scale_b", "scaleab", "activation",
             "preshuffle", "bpreshuffle", "permute_n"),
            _no_more(is_false),
        ),
    }
)  # fmt: skip
"""What a GEMM's row may state besides sizes and figures."""

GEMMS = Dialect(GemmProblem.op, {**_OF_KERNEL, **GEMM_FIELDS}, _padded_mem)


_BEGINNING = 1 << 20
FUSED = Dialect(
    FusedGemmProblem.op,
    own={
        **GEMMS.own,
        **dict.fromkeys(_BATCHES, Field("batch")),
        **dict.fromkeys(("split_k", "splitk", "k_batch", "ksplit"), _only(one_of("1"))),
        **dict.fromkeys(("op", "op_type", "operation"), _only(one_of("batched_gemm", "gemm_multi_d"))),
    },
)


_NAMES = (
    (FUSED.op, NAME),
    (GEMMS.op, re.compile(r"\bgemm_\w*?_[rc]{3,4}_\w+")),
    (CONVOLUTIONS.op, CONVOLUTIONS.kernel_word),
)
KERNEL_WORD = re.compile("|".join(pattern.pattern for _, pattern in _NAMES))
"""Pattern of a kernel's name of any of these operations in running text."""


def dialect_of(op: str) -> Dialect:
    """Returns the dialect of an operation."""
    own = {one.op: one for one in (CONVOLUTIONS, GEMMS, FUSED)}
    return own.get(op) or Dialect(op)


def op_of_name(kernel: str) -> str:
    """Returns the operation whose kernels have such a name; "" if none has."""
    return next((op for op, pattern in _NAMES if pattern.match(kernel)), "")


def dialect_of_text(text: str, op: str = "") -> Dialect:
    """Returns the dialect of most kernels that the beginning of a text names, or of an operation; that of
    convolutions if it names none. Batches have to state their number."""
    names = KERNEL_WORD.findall(text, 0, _BEGINNING)
    counts = Counter(filter(None, map(op_of_name, names)))
    op = op or max(counts, key=lambda one: counts[one], default=CONVOLUTIONS.op)
    is_batched = op == FUSED.op and any("batched" in name for name in names)
    return replace(FUSED, needed=("batch",)) if is_batched else dialect_of(op)


def dialect_of_header(names: Sequence[str], text: str = "", op: str = "") -> Dialect:
    """Returns the dialect of a table's columns, or of an operation. text: all of the table, for the names of
    its kernels."""
    lower = {name.strip().lower() for name in names}
    is_product = "m" in lower and not {"c", "hi"} & lower
    found = dialect_of_text(text, op)
    return found if op or is_product == (found is not CONVOLUTIONS) else GEMMS if is_product else CONVOLUTIONS


def of_another(op: str) -> str:
    """Returns why a row of another operation than its file's is refused."""
    return f"kernel of another operation: {op}, which --op {op} takes"
