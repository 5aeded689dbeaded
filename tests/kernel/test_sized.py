"""Kernels that differ in a few sizes: their names read back, and their rules propose every size."""

from __future__ import annotations

import pytest

from tile_oracle.arch import load_arch
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.pool import pool_of_kind

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
