"""Kernels of a source with configurations of its own: the name holds everything, and reads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.arch import load_arch
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.kernel import kernel_from_row, parse_kernel_name
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation import Kind, operation_named, operation_names
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pool import pool_of_kind
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.session.pair_id import pair_id, pair_of

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")
KERNEL = NamedKernel(KIND, "triton", "matmul", (("num_warps", 8), ("BLOCK_M", 128), ("EVEN_K", True)))
PROBLEM = GemmProblem("bf16", "rcr", 512, 256, 128)


def test_the_name_has_kind_function_and_sorted_values() -> None:
    assert KERNEL.name == "gemm_bf16_rcr_triton.matmul.BLOCK_M=128.EVEN_K=True.num_warps=8"
    assert KERNEL.short_name == "triton.matmul.BLOCK_M=128.EVEN_K=True.num_warps=8"
    assert parse_kernel_name(KERNEL.name) == KERNEL
    conv = NamedKernel(Kind.of("grouped_conv", direction="forward", dtype="fp16", ndim=3), "lib", "f")
    assert conv.name == "grouped_conv_forward_fp16_3d_lib.f"
    assert parse_kernel_name(conv.name) == conv


_WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


@given(
    function=_WORDS,
    values=st.dictionaries(
        _WORDS, st.booleans() | st.integers(0, 10**9) | _WORDS.filter(str.isalpha), max_size=6
    ),
)
def test_names_read_back(function: str, values: dict[str, int | bool | str]) -> None:
    values = {name: value for name, value in values.items() if value not in ("True", "False")}
    kernel = NamedKernel(KIND, "triton", function, tuple(values.items()))
    assert parse_kernel_name(kernel.name) == kernel


@pytest.mark.parametrize("value", [-1, 1.5, None, "a-b", "", "7", "True", "é"])
def test_values_that_a_name_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(KernelError, match=r"X = .* cannot be part of a kernel's name"):
        NamedKernel(KIND, "triton", "f", (("X", value),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "gemm_bf16_rcr_triton.f.num_warps=8.BLOCK_M=4",
        "gemm_bf16_xyz_triton.f",
        "triton.f",
        "gemm_bf16_rcr_triton.",
        "gemm_bf16_rcr_triton.f.A=1.A=2",
        "x." * 500,
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(KernelError):
        parse_kernel_name(name)


def test_a_row_of_records_gives_the_kernel_by_its_name() -> None:
    row = {"kernel": KERNEL.name, "tile_m": None, **KERNEL.as_row()}
    assert kernel_from_row(row, "gemm") == KERNEL
    assert KERNEL.as_row() == {"dtype": "bf16", "layout": "rcr"}


def test_the_architecture_leaves_its_limits_to_the_source() -> None:
    arch = load_arch("sm_90")
    assert arch.refusal(KERNEL) is None
    assert arch.problem_refusal(KERNEL, PROBLEM) is None
    other = GemmProblem("fp16", "rcr", 512, 256, 128)
    assert "kind: the kernel is for gemm bf16 rcr" in str(arch.problem_refusal(KERNEL, other))


def test_a_test_id_names_the_pair() -> None:
    one = pair_id(PROBLEM, KERNEL)
    assert pair_of(f"sweep.py::test_pair[{one}]") == (PROBLEM.id, KERNEL.short_name)
    assert pair_of(f"sweep.py::test_pair[3-{one}-x]")[0] == PROBLEM.id


def test_filters_use_the_configured_values() -> None:
    assert KernelFilter("BLOCK_M >= 128 and num_warps == 8 and function == 'matmul'").matches(KERNEL)
    assert KernelFilter("EVEN_K == 1 and dtype == 'bf16'").matches(KERNEL)
    assert not KernelFilter("BLOCK_M < 128").matches(KERNEL)
    with pytest.raises(RuleError, match=r"is not configured with BLOCK_N; it has: source, function, BLOCK_M"):
        KernelFilter("BLOCK_N == 1").matches(KERNEL)
    with pytest.raises(RuleError, match="a kernel has no field 'blok_m'"):
        KernelFilter("blok_m == 1")
    with pytest.raises(RuleError, match="has no tile_m; it has: source, function, BLOCK_M"):
        KernelFilter("tile_m == 64").matches(KERNEL)


# Kernels that differ in a few sizes: their names read back, and their rules propose every size.

OPS = [one for one in operation_names() if issubclass(operation_named(one).kernel, SizedKernel)]


@pytest.mark.parametrize("op", OPS)
def test_names_of_every_kind_read_back(op: str) -> None:
    operation = operation_named(op)
    for kind in operation.kinds({}):
        pool = pool_of_kind(kind, "cpu", "default")
        assert pool
        for kernel in pool:
            assert kernel.kind == kind
            assert parse_kernel_name(kernel.name) == kernel
            (refused,) = operation.refusals(load_arch("gfx950"), kernel)
            assert refused.startswith(f"arch: {op} has no kernels of the project's own family for gfx950")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scaled_gemm_fp8_e4m3_row_columns5", "no scaled_gemm kernel with columns 5: it is one of 1, 4, 16"),
        ("softmax_int8_lanes4", "no softmax kernel with dtype 'int8': it is one of "),
        ("fused_gemm_bf16_rcr_relu_columns4", "no fused_gemm kernel with epilogue 'relu': it is one of none"),
        ("attention_bf16_keys32", "not the name of a kernel of attention; one looks like attention_bf16_d"),
        ("rms_norm_bf16_lanes4_lanes4", "not the name of a kernel of rms_norm; one looks like rms_norm_"),
    ],
)
def test_other_names_say_why(name: str, said: str) -> None:
    with pytest.raises(KernelError) as raised:
        parse_kernel_name(name)
    assert said in str(raised.value)
