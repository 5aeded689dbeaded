// The instructions of gfx90a and gfx942. They have those of gfx950 but for the matrix instructions that gfx950 doubled in
// depth (16x16x32 and 32x32x16 of 16-bit types). Two older ones of half the depth stand in for each of these.
//
// clang compiles only the functions that a kernel calls, so gfx950's other new instructions (copies of 16 bytes into LDS,
// f8f6f4) are in no code object: the pipelines and warp tiles that call them are refused (kernels/arch_specs.json).
#pragma once

// The functions of gfx950 that are replaced get another name.
#define mfma_16x16x32_bf16 gfx950_mfma_16x16x32_bf16
#define mfma_16x16x32_fp16 gfx950_mfma_16x16x32_fp16
#define mfma_32x32x16_bf16 gfx950_mfma_32x32x16_bf16
#define mfma_32x32x16_fp16 gfx950_mfma_32x32x16_fp16
#define sched_group gfx950_sched_group
#if defined(TO_GFX950_INSTRUCTIONS) // an emulation's (tests/kernels/emulated_gpu)
#include TO_GFX950_INSTRUCTIONS
#else
#include "instructions_gfx950.hpp"
#endif
#undef mfma_16x16x32_bf16
#undef mfma_16x16x32_fp16
#undef mfma_32x32x16_bf16
#undef mfma_32x32x16_fp16
#undef sched_group

namespace to {

// A lane holds eight neighbours along the depth. The first instruction multiplies the first four of every lane, the second
// the others. A and B are split alike, so each product of the block is in one of the two.
TO_DEVICE U2 first_half(U4 x) { return U2{x.x, x.y}; }
TO_DEVICE U2 second_half(U4 x) { return U2{x.z, x.w}; }

TO_DEVICE F4 mfma_16x16x32_bf16(U4 a, U4 b, F4 c) {
  c = mfma_16x16x16_bf16(first_half(a), first_half(b), c);
  return mfma_16x16x16_bf16(second_half(a), second_half(b), c);
}
TO_DEVICE F4 mfma_16x16x32_fp16(U4 a, U4 b, F4 c) {
  c = mfma_16x16x16_fp16(first_half(a), first_half(b), c);
  return mfma_16x16x16_fp16(second_half(a), second_half(b), c);
}
TO_DEVICE F16 mfma_32x32x16_bf16(U4 a, U4 b, F16 c) {
  c = mfma_32x32x8_bf16(first_half(a), first_half(b), c);
  return mfma_32x32x8_bf16(second_half(a), second_half(b), c);
}
TO_DEVICE F16 mfma_32x32x16_fp16(U4 a, U4 b, F16 c) {
  c = mfma_32x32x8_fp16(first_half(a), first_half(b), c);
  return mfma_32x32x8_fp16(second_half(a), second_half(b), c);
}

#if defined(TO_DTYPE) // a kernel's unit, not the harness's own work
// The scheduler counts matrix instructions (kind 8), the callers blocks, of which the deep ones are two instructions here.
constexpr bool DEEP_BLOCKS = TO_DTYPE != TO_FP32 && TO_WARP_TILE_M * TO_WARP_TILE_N * TO_WARP_TILE_K > 16 * 16 * 16 &&
                             TO_WARP_TILE_K != 8 && TO_WARP_TILE_M == TO_WARP_TILE_N;
template <int KIND, int COUNT> TO_DEVICE void sched_group() {
  gfx950_sched_group<KIND, KIND == 0x008 && DEEP_BLOCKS ? 2 * COUNT : COUNT>();
}
#endif

} // namespace to
