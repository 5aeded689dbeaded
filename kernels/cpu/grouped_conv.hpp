// A grouped-convolution kernel: one translation unit defines the configuration and includes this file.
//
//     TO_DIRECTION  TO_FORWARD, TO_BWD_DATA, TO_BWD_WEIGHT
//     TO_DTYPE      TO_BF16, TO_FP16, TO_FP32: of both operands and the result
//     TO_NDIM       2 or 3
//     TO_TILE_M, TO_TILE_N, TO_TILE_K      cache blocks
//     TO_MICRO_M, TO_MICRO_N               register block; TO_MICRO_N a multiple of 16
//     TO_PIPELINE   TO_DIRECT, TO_PACK_B, TO_PACK_AB, TO_PACK_AB_DOUBLE
//     TO_TRANSPOSED 1: the result of a 1x1 TO_BWD_DATA of one image row is written position by position of a
//                   channel, not channel by channel of a position (for GEMMs of the layout ccr); else 0
//
// Exports what abi.h declares. Needs no header of the C or C++ library.
#pragma once

#define TO_FORWARD 0
#define TO_BWD_DATA 1
#define TO_BWD_WEIGHT 2
#define TO_FP32 0
#define TO_BF16 1
#define TO_FP16 2
#define TO_DIRECT 0
#define TO_PACK_B 1
#define TO_PACK_AB 2
#define TO_PACK_AB_DOUBLE 3

#ifndef TO_TRANSPOSED
#define TO_TRANSPOSED 0
#endif
#if TO_TRANSPOSED && TO_DIRECTION != TO_BWD_DATA
#error only TO_BWD_DATA writes its result transposed
#endif

#include "abi.h"

#if TO_PIPELINE == TO_DIRECT
#include "direct.hpp"
#else
#include "gemm.hpp"
#endif

namespace to {

#if TO_PIPELINE == TO_DIRECT
using Kernel = Direct;
#else
using Kernel = Gemm;
#endif

struct Clock {
  long seconds, nanoseconds;
};

// What the index arithmetic relies on.
static bool supported(const to_conv_args &a) {
  const i64 positive[] = {a.N, a.C, a.K, a.G, a.Di, a.Hi, a.Wi, a.Z, a.Y, a.X, a.Do, a.Ho, a.Wo,
                          a.stride_d, a.stride_h, a.stride_w, a.dilation_d, a.dilation_h, a.dilation_w};
  for (i64 value : positive)
    if (value < 1) return false;
  if (a.pad_d < 0 || a.pad_h < 0 || a.pad_w < 0 || a.C % a.G || a.K % a.G) return false;
  const bool one_row = a.N == 1 && a.Di == 1 && a.Hi == 1 && a.G == 1 && a.Z == 1 && a.Y == 1 && a.X == 1;
  if (TO_TRANSPOSED && !(one_row && a.stride_w == 1 && a.pad_w == 0)) return false;
  return TO_NDIM == 3 || (a.Di == 1 && a.Z == 1 && a.Do == 1 && a.pad_d == 0);
}

} // namespace to

extern "C" int clock_gettime(int, to::Clock *);

extern "C" {

int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }

int64_t to_workspace_bytes(const to_conv_args *args) {
  if (!to::supported(*args)) return 0;
  to::Kernel kernel;
  to::Arena arena{nullptr, 0};
  kernel.plan(*args, arena);
  return arena.used;
}

int32_t to_launch(const to_conv_args *args) {
  if (!to::supported(*args)) return TO_UNSUPPORTED;
  to::Kernel kernel;
  to::Arena arena{(char *)args->workspace, 0};
  kernel.plan(*args, arena);
  kernel.run_all();
  return TO_OK;
}

int32_t to_time(const to_conv_args *args, int64_t count, uint64_t *nanoseconds) {
  for (int64_t i = 0; i < count; ++i) {
    to::Clock start, stop;
    clock_gettime(1, &start); // CLOCK_MONOTONIC
    int32_t status = to_launch(args);
    clock_gettime(1, &stop);
    if (status != TO_OK) return status;
    nanoseconds[i] = (uint64_t)((stop.seconds - start.seconds) * 1000000000l + stop.nanoseconds - start.nanoseconds);
  }
  return TO_OK;
}

} // extern "C"
