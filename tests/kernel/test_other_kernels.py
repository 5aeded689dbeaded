"""Names of kernels that no operation here has."""

from __future__ import annotations

import pytest

from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.kernel.named import other_kernel

TAIL = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("direct_tile_conv_fprop_fp16_tile_grouped_v3", "a direct convolution"),
        ("gemm_wavelet_fp16_rcr_128x128x64", "a GEMM with waves that only load"),
        (f"gemm_multi_d_{TAIL}", "one with further operands, of unstated number and use"),
        (f"gemm_{TAIL}_multid_MultiDAdd_d1", "one with an epilogue"),
        (f"gemm_batched_{TAIL}", "a batched GEMM"),
        (f"batched_gemm_{TAIL}", "a batched GEMM"),
        (f"grouped_gemm_{TAIL}", "a grouped GEMM"),
        ("grouped_gemm_bquant_fp8_rcr_compv3_cshuffle_intrawave_qg1x1x128", "a GEMM with scales of rows or"),
        ("gemm_rowcolquant_fp8_rcr_compv3_cshuffle_intrawave_128x128x64", "a GEMM with scales of rows or"),
        (f"gemm_streamk_{TAIL}", "stream-K"),
        (f"gemm_{TAIL}_preshuffle", "a GEMM whose B is shuffled beforehand"),
        (f"gemm_{TAIL}_vec1_1_8", "a GEMM of fixed vector widths"),
    ],
)
def test_kernels_of_other_operations_are_named(name: str, what: str) -> None:
    assert other_kernel(name).startswith(what)
    with pytest.raises(KernelError, match=f" is {what}.*: no operation here has such kernels"):
        parse_kernel_name(name)


def test_own_names_are_not_and_unknown_ones_say_what_is_wrong() -> None:
    for name in (f"gemm_{TAIL}", "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave_gm4", "anything"):
        assert other_kernel(name) == ""
    with pytest.raises(KernelError, match="dtype 'bf8' is not one of bf16, fp16, fp8, fp32"):
        parse_kernel_name(f"gemm_{TAIL}".replace("fp16", "bf8"))
