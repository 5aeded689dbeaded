"""A kernel family that compiles quickly and misbehaves on demand, selected by its tile_m."""

from __future__ import annotations

from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

SMALL_FAMILY = """\
#include "abi.h"
#include <stdint.h>
#if TO_TILE_M == 13
#error "thirteen rows are one too many"
#endif
extern "C" {
int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
#if TO_TILE_M != 11
int64_t to_workspace_bytes(const to_conv_args *args) { return args->N * TO_TILE_M; }
#endif
int32_t to_launch(const to_conv_args *args) { __builtin_memset(args->out, 0, args->N); return TO_OK; }
#if TO_TILE_M == 19
__attribute__((weak)) int32_t perhaps_somewhere(void);
__attribute__((visibility("default"))) int32_t asks(void) {
    return perhaps_somewhere ? perhaps_somewhere() : 0;
}
#endif
#if TO_TILE_M == 17
int32_t somewhere_else(void);
__attribute__((visibility("default"))) int32_t needs_more(void) { return somewhere_else(); }
#endif
}
"""


def make_kernel(tile_m: int = 64, **fields: object) -> GroupedConvKernel:
    values: dict[str, object] = {"direction": "forward", "dtype": "bf16", "ndim": 2}
    values |= {"tile_m": tile_m, "tile_n": 64, "tile_k": 64, "wave_m": 1, "wave_n": 1, "wave_k": 1}
    values |= {"warp_tile_m": 6, "warp_tile_n": 16, "warp_tile_k": 1}
    return GroupedConvKernel(**(values | fields))  # type: ignore[arg-type]
