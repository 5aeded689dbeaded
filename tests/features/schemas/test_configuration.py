"""The configuration of kernels of every source, read from their names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import KernelError
from tile_oracle.features.schemas.configuration import CONFIGURATION, configuration
from tile_oracle.kernel import NamedKernel
from tile_oracle.operation import Kind

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")


def test_a_triton_kernel() -> None:
    values = "BLOCK_K=128.BLOCK_M=16.BLOCK_N=64.GROUP_M=8.SPLIT_K=4.num_stages=5.num_warps=4"
    known = configuration(f"gemm_bf16_rcr_triton.split_k.{values}")
    assert [known[one] for one in ("tile_m", "tile_n", "tile_k", "waves", "stages", "group", "parts")] == [
        *(16, 64, 128, 4, 5, 8, 4)
    ]
    assert (known["source"], known["rest"]) == (1, 0)


def test_a_kernel_of_the_family() -> None:
    name = "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_False_True_128x64x32_2x4x1_32x32x16"
    known = configuration(name)
    assert [
        known[one] for one in ("tile_m", "tile_n", "tile_k", "waves", "padded", "persistent", "parts")
    ] == [*(128, 64, 32, 8, 2, 1, 1)]
    assert known["source"] == 0
    assert known["rest"] != configuration(name.replace("32x32x16", "16x16x32"))["rest"], "all fields count"


def test_cublaslts_tiles_are_those_of_the_transposed_result() -> None:
    known = configuration("gemm_bf16_rcr_cublaslt.a66.cluster=3.stages=36.tile=23")
    assert (known["source"], known["tile_m"], known["tile_n"]) == (2, 256, 128)
    assert (known["cluster"], known["stages"]) == (3, 36)
    assert configuration("gemm_bf16_rcr_cublaslt.a66.tile=634")["tile_n"] > 0
    assert configuration("gemm_bf16_rcr_cublaslt.a66.tile=99999")["tile_n"] == 0


@given(
    st.dictionaries(
        st.sampled_from(["BLOCK_M", "BLOCK_N", "num_warps", "FLAG", "MODE", "tile"]),
        st.one_of(st.integers(0, 10**6), st.booleans(), st.sampled_from(["a", "wide"])),
    )
)
def test_every_configuration_has_every_column(values: dict[str, int | bool | str]) -> None:
    kernel = NamedKernel(KIND, "triton", "mine", tuple(values.items()))
    known = configuration(kernel.name)
    assert known.keys() == CONFIGURATION.keys()
    assert all(isinstance(value, float) for value in known.values())


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(KernelError):
        configuration("gemm_bf16_rcr_triton")
