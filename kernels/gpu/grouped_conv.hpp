// One kernel of the GPU family: grouped convolution (forward, data gradient, weight gradient; 2D and 3D) as an
// implicit GEMM on the matrix units of gfx950 or sm_90. The including file defines the kernel's fields; see
// abi.h for them, for what is exported and how it is launched, and docs/kernels.md for what they mean.
#pragma once

#include "epilogue.hpp"

TO_LDS_OF_TILES(to::LDS_BYTES)

namespace to {
// On gfx950: two waves a SIMD, or as many as the workgroup has: 256 registers a lane rather than more waves, and 512 for
// the weight gradient's deep tiles, whose two operands are both gathered.
constexpr bool IS_DEEP = TILE_K * ELEMENT_BYTES >= 256;
constexpr int WAVES_PER_SIMD = THREADS > 512 ? THREADS / 256 : BWD_WEIGHT && IS_DEEP && THREADS <= 256 ? 1 : 2;
} // namespace to

static_assert(sizeof(to_gpu_args) == 128 && sizeof(to_gpu_launch_info) == 36);

extern "C" {

TO_VISIBLE TO_CONSTANT extern const to_gpu_launch_info to_launch_info;
TO_VISIBLE TO_VISIBLE_CONSTANT const to_gpu_launch_info to_launch_info = {
    TILE_ORACLE_GPU_ABI_VERSION,
    to::THREADS,
    TO_LDS_IS_DYNAMIC ? to::LDS_BYTES : 0,
    (to::TWO_STAGE ? TO_GPU_TWO_STAGE : 0) | (to::SPLIT_IMAGE ? TO_GPU_SPLIT_IMAGE : 0),
    to::DIRECTION,
    to::TILE_M,
    to::TILE_N,
    to::TILE_K,
    to::MERGE,
};

TO_KERNEL_OF_WAVES(to::THREADS, to::WAVES_PER_SIMD) to_conv(to_gpu_args args) {
  using namespace to;
  const Gemm gemm(args);
  if (gemm.outside) return;
  Lds lds = (Lds)to_lds;
  Result result;
  run_pipeline(result, Mover2(gemm, args), lds);
  Output out(gemm, args);
  if constexpr (CSHUFFLE)
    store_shuffled(result, out, gemm.first_n, lds);
  else
    store_directly(result, out, gemm.first_n);
}

#if TO_TWO_STAGE
// The parts of split_k, added in their order: the same result every time.
TO_KERNEL(256) to_finish(to_gpu_args args) {
  using namespace to;
  i64 total = (i64)args.K * (args.Z * args.Y * args.X) * (args.C / args.G);
  i64 stride = grid_threads();
  const float *parts = (const float *)args.workspace;
  for (i64 i = (i64)block_x() * 256 + thread_id(); i < total; i += stride) {
    float sum = 0;
    for (int s = 0; s < args.split_k; ++s) sum += parts[s * total + i];
    put((Rounded *)args.out + i, sum);
  }
}
#endif

} // extern "C"
