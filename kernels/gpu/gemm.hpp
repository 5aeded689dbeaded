// One GEMM kernel of the GPU family: C = A B on the matrix units of gfx950 or sm_90, by the tiles, pipelines and
// epilogues of the convolutions. The including file defines the kernel's fields; see abi.h for them.
#pragma once

#include "epilogue.hpp"

TO_LDS_OF_TILES(to::LDS_BYTES)

namespace to {
// On gfx950: 512 registers a lane where sums and tiles under way take half of 256, and in fp32, whose fragments are twice
// as large, where so many loads need addresses.
constexpr int HELD_VALUES = TILE_M * TILE_N / THREADS + TILE_VECTORS * 4 * (IS_ASYNC ? 0 : PIPELINE == TO_MEM ? IN_FLIGHT : 1);
constexpr bool HOLDS_MUCH = HELD_VALUES >= 128 || (ELEMENT_BYTES == 4 && TILE_VECTORS > 16);
constexpr int WAVES_PER_SIMD = THREADS > 512 ? THREADS / 256 : HOLDS_MUCH && THREADS <= 256 ? 1 : 2;
} // namespace to

static_assert(sizeof(to_gpu_gemm_args) == 48 && sizeof(to_gpu_launch_info) == 36);

extern "C" {

TO_VISIBLE TO_CONSTANT extern const to_gpu_launch_info to_launch_info;
TO_VISIBLE TO_VISIBLE_CONSTANT const to_gpu_launch_info to_launch_info = {
    TILE_ORACLE_GPU_ABI_VERSION,
    to::THREADS,
    TO_LDS_IS_DYNAMIC ? to::LDS_BYTES : 0,
    to::PERSISTENT ? TO_GPU_PERSISTENT : 0,
    TO_GPU_GEMM + TO_LAYOUT,
    to::TILE_M,
    to::TILE_N,
    TO_TILE_K,
    1,
};

TO_KERNEL_OF_WAVES(to::THREADS, to::WAVES_PER_SIMD) to_conv(to_gpu_gemm_args args) {
  using namespace to;
  Gemm gemm(args);
  Lds lds = (Lds)to_lds;
  auto compute = [&](int tile) __attribute__((always_inline)) {
    gemm.take_tile(tile);
    Result result;
    run_pipeline(result, Mover2(gemm, args), lds);
    Output out(gemm, args);
    if constexpr (CSHUFFLE)
      store_shuffled(result, out, gemm.first_n, lds);
    else
      store_directly(result, out, gemm.first_n);
  };
  if constexpr (PERSISTENT) {
    int workgroups = (int)(grid_threads() / THREADS);
    TO_ROLLED
    for (int tile = block_x(); tile < gemm.tiles; tile += workgroups) {
      compute(tile);
      // Before the next tile comes into LDS.
      barrier();
    }
  } else if ((int)block_x() < gemm.tiles) {
    // No loop, even of one tile: registers would be kept for the next.
    compute(block_x());
  }
}

} // extern "C"
