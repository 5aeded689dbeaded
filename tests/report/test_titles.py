"""Names of problems and kernels for people, in pages."""

from __future__ import annotations

import pytest

from tile_oracle.pages.words import kernel_words, titles
from tile_oracle.problem import problem_from_id


@pytest.mark.parametrize(
    ("problem", "title"),
    [
        ("forward-bf16-n4-c192-k388-i512x512-f1x1", "1x1, 192 to 388, 512 x 512, n4"),
        ("forward-bf16-n1-c64-k64-i56x56-f3x3-p1", "3x3, 64 to 64, 56 x 56, n1"),
        ("forward-bf16-n1-c64-k64-i56x56-f3x3", "3x3, 64 to 64, 56 x 56, n1, pad 0"),
        (
            "bwd_data-bf16-n1-g2-c64-k64-i56x57-f5x3-s2x1-p2x1",
            "5x3, 64 to 64, 56 x 57, n1, stride 2x1, 2 groups",
        ),
        ("forward-fp16-n1-c64-k64-i8x8x8-f3x3x3-p2-d2", "3x3x3, 64 to 64, 8 x 8 x 8, n1, dilation 2"),
        ("gemm-bf16-rcr-m1-n4096-k512-s4", "1 x 4,096 x 512, rcr, split_k 4"),
        (
            "attention-bf16-b2-h32-g8-q4096-k8192-d128-causal",
            "4,096 queries, 8,192 keys, 32 heads of 128 (8 of K, V), n2, causal",
        ),
        ("softmax-bf16-r4096-c128", "4,096 rows of 128"),
        ("rms_norm-bf16-r8-c1024", "8 rows of 1,024"),
        ("scaled_gemm-fp8_e4m3-block-m16-n4096-k7168", "16 x 4,096 x 7,168, scales by block"),
        (
            "fused_gemm-bf16-rcr-bias_gelu-m16-n4096-k1024-b32",
            "16 x 4,096 x 1,024, rcr, bias_gelu, batch of 32",
        ),
        ("fused_gemm-bf16-rcr-none-m16-n96-k32", "16 x 96 x 32, rcr"),
        (
            "fused_moe-bf16-gate_up-t64-e8-k2-h4096-i14336-zipf100",
            "gate_up, 64 tokens to 2 of 8 experts, 4,096 by 14,336, zipf 100",
        ),
        (
            "paged_attention-bf16-fp8_e4m3-b64-h32-g8-q1-k8192-d128-p16-w1024-sinks",
            "decode, 64 x 8,192 keys, 32 heads of 128 (8 of K, V), fp8_e4m3, window 1,024, sinks",
        ),
    ],
)
def test_a_problem_has_its_size_in_words(problem: str, title: str) -> None:
    assert problem_from_id(problem).title == title
    assert titles([problem, "no id"]) == {problem: title}


def test_problems_of_several_directions_and_data_types_name_them() -> None:
    plain = "3x3, 64 to 64, 8 x 8, n1"
    assert titles([f"{one}-n1-c64-k64-i8x8-f3x3-p1" for one in ("forward-bf16", "bwd_data-fp16")]) == {
        "forward-bf16-n1-c64-k64-i8x8-f3x3-p1": f"{plain}, forward, bf16",
        "bwd_data-fp16-n1-c64-k64-i8x8-f3x3-p1": f"{plain}, bwd_data, fp16",
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "triton.tma_warps.BLOCK_K=64.BLOCK_M=128.BLOCK_N=256.GROUP_M=8.MORE_N=0.REGISTERS=False.SWAP=True.num_stages=4",
            "triton.tma_warps 128x256x64 GROUP_M=8 MORE_N=0 SWAP stages=4",
        ),
        ("triton.matmul.BLOCK_M=128.num_warps=4", "triton.matmul BLOCK_M=128 warps=4"),
        ("triton.decode.BLOCK_M=16.BLOCK_N=128.SPLITS=4", "triton.decode 16x128 SPLITS=4"),
        ("triton.softmax_rows.BLOCK=1024.num_warps=4", "triton.softmax_rows BLOCK=1024 warps=4"),
        ("cublaslt.a66.cluster=5.scale=0.5.tile=201", "cublaslt.a66 cluster=5 scale=0.5 tile=201"),
        ("64x64x64_comp_async_intrawave_dsb_v4x4x4", "64x64x64_comp_async_intrawave_dsb_v4x4x4"),
    ],
)
def test_a_kernel_of_settings_is_said_in_fewer_letters(name: str, shown: str) -> None:
    assert kernel_words(name) == shown
