// GPU kernels that misbehave on demand: what one does is its tile_m. Built in the place of kernels/gpu/grouped_conv.hpp,
// beside the real abi.h and what of device_work.hpp is no kernel.
#pragma once

#include "abi.h"
#include "work_functions.hpp"

enum Mode {
    GOOD = 1,
    WRONG = 2,
    UNWRITTEN = 3,
    BESIDE = 4,
    OUT_OF_BOUNDS = 5,
    ENDLESS = 6,
    ILLEGAL = 7,
    TOO_MUCH_LDS = 8,
    OTHER_ABI = 9,
    BEFORE_WORKSPACE = 10,
    CHANGES_INPUTS = 11,
    EVERY_EIGHTH = 12,
    KEEPS_FIRST_OPERAND = 13,
    DROPS_NAN = 14,
    SPREADS_NAN = 15,
};

#define DIRECTION_TO_FORWARD 0
#define DIRECTION_TO_BWD_DATA 1
#define DIRECTION_TO_BWD_WEIGHT 2
#define JOIN(a, b) a##b
#define DIRECTION_OF(word) JOIN(DIRECTION_, word)
#define DTYPE_TO_BF16 0
#define DTYPE_TO_FP16 1
#define DTYPE_OF(word) JOIN(DTYPE_, word)

#if defined(TO_INSTRUCTIONS) // an emulation's
TO_LDS_OF_TILES(0)
#define EVIL_KERNEL extern "C" void
#define EVIL_MEMORY static
#define EVIL_INFO extern "C" __attribute__((used, visibility("default")))
#else
#define EVIL_KERNEL extern "C" __attribute__((global)) void
#define EVIL_MEMORY static __attribute__((device))
#define EVIL_INFO extern "C" __attribute__((device, used, visibility("protected")))
#endif

#if defined(__NVCC__)
#define TRAP() __asm__ volatile("trap;")
#else
#define TRAP __builtin_trap
#endif

EVIL_INFO const to_gpu_launch_info to_launch_info = {
    TILE_ORACLE_GPU_ABI_VERSION + (TO_TILE_M == OTHER_ABI),
    64,
    TO_TILE_M == TOO_MUCH_LDS ? 300 * 1024 : 0,
    TO_TWO_STAGE ? TO_GPU_TWO_STAGE : 0,
    DIRECTION_OF(TO_DIRECTION),
    TO_TILE_M,
    TO_TILE_N,
    TO_TILE_K,
    1};

EVIL_MEMORY unsigned runs = 0; // so far
EVIL_MEMORY const void *kept_from = nullptr;
EVIL_MEMORY unsigned short kept[1 << 14]; // the first operand, as it was when its address was new

EVIL_KERNEL to_conv(to_gpu_args a) {
  using namespace to_work;
  u32 lane = thread();
  if (TO_TILE_M == ENDLESS)
    for (;;) __asm__ volatile("");
  if (TO_TILE_M == OUT_OF_BOUNDS) *(volatile int *)(1ull << 45) = 1;
  if (TO_TILE_M == ILLEGAL) TRAP();
  Convolution p{a.in0, a.in1, a.out, DIRECTION_OF(TO_DIRECTION), DTYPE_OF(TO_DTYPE),
                a.N, a.C, a.K, a.G, a.Di, a.Hi, a.Wi, a.Z, a.Y, a.X, a.Do, a.Ho, a.Wo,
                a.stride_d, a.stride_h, a.stride_w, a.pad_d, a.pad_h, a.pad_w,
                a.dilation_d, a.dilation_h, a.dilation_w};
  if (block() != 0) return;
  if (TO_TILE_M == EVERY_EIGHTH) {
    unsigned now = runs;
    barrier();
    if (lane == 0) runs = now + 1;
    if (now > 5 && now % 8) return;
  }
  if (TO_TILE_M == KEEPS_FIRST_OPERAND) {
    bool there = kept_from == a.in0;
    barrier();
    for (i64 at = lane; !there && at < (i64)a.N * a.Di * a.Hi * a.Wi * a.C; at += 64)
      kept[at] = ((const unsigned short *)a.in0)[at];
    if (lane == 0) kept_from = a.in0;
    barrier();
    p.in0 = kept;
  }
  i64 count = values(p) - (TO_TILE_M == UNWRITTEN);
  for (i64 at = lane; at < count; at += 64) {
    float value = value_of(p, at, 0, 1);
    if (TO_TILE_M == DROPS_NAN && value != value) value = 0;
    if (TO_TILE_M == SPREADS_NAN) value += 0 * fetch(p.in0, 0, p.dtype);
    store(p.out, at, p.dtype, TO_TILE_M == WRONG && at == 5 ? 2 * value + 1 : value);
  }
  if (TO_TILE_M == BESIDE && lane == 0) ((u16 *)a.out)[count] = 1;
  if (TO_TILE_M == CHANGES_INPUTS && lane == 0)
    ((u16 *)a.in0)[9] = 0x4040;
  if (TO_TILE_M == BEFORE_WORKSPACE && lane == 0) ((u16 *)a.workspace)[-1] = 1;
}

EVIL_KERNEL to_finish(to_gpu_args) {}
