// gfx950's own instructions (clang's HIP, waves of 64), one thin function each: nothing here decides anything.
// What stands in for this file in an emulation has the same names (tests/kernels/emulated_gpu).
#pragma once

#include "types.hpp"

#define TO_GFX950 1
#define TO_SM90 0

#define TO_DEVICE __attribute__((device, always_inline)) inline
#define TO_SHARED __attribute__((address_space(3)))
#define TO_GLOBAL __attribute__((address_space(1)))
#define TO_UNROLL _Pragma("unroll")
#define TO_ROLLED _Pragma("unroll 1")

// A variable of the workgroup in LDS, and the LDS that tiles lie in.
#define TO_LDS_VARIABLE static __attribute__((shared))
#define TO_LDS_OF_TILES(bytes) static __attribute__((shared, aligned(16))) unsigned char to_lds[bytes];
#define TO_LDS_IS_DYNAMIC 0

// What the host finds by name: constants, and kernels for a number of threads and of waves on each SIMD.
#define TO_VISIBLE __attribute__((visibility("protected")))
#define TO_CONSTANT __attribute__((device))
#define TO_VISIBLE_CONSTANT __attribute__((device, used))
#define TO_KERNEL(threads) \
  TO_VISIBLE __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void
#define TO_KERNEL_OF_WAVES(threads, waves) \
  TO_VISIBLE __attribute__((global, amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves))) void

namespace to {

constexpr int LANES = 64;

TO_DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }
TO_DEVICE int block_x() { return __builtin_amdgcn_workgroup_id_x(); }
TO_DEVICE int block_y() { return __builtin_amdgcn_workgroup_id_y(); }
TO_DEVICE int block_z() { return __builtin_amdgcn_workgroup_id_z(); }
// Threads of the whole grid along x: the dispatch packet holds them.
TO_DEVICE i64 grid_threads() {
  return ((const __attribute__((address_space(4))) u32 *)__builtin_amdgcn_dispatch_ptr())[3];
}

TO_DEVICE int first_lane(int x) { return __builtin_amdgcn_readfirstlane(x); }
TO_DEVICE int permute(int lane, int x) { return __builtin_amdgcn_ds_bpermute(lane * 4, x); }

TO_DEVICE void release_lds() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local"); }
TO_DEVICE void acquire_lds() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local"); }
template <int COUNTERS> TO_DEVICE void s_waitcnt() { __builtin_amdgcn_s_waitcnt(COUNTERS); }
// With a wait of its own for all accesses to LDS: the one that clang adds for a release fence is lost in loop headers
// (clang 22, LLVM issue 211684).
TO_DEVICE void s_barrier() {
  s_waitcnt<0xc07f>(); // lgkmcnt(0), nothing else
  __builtin_amdgcn_s_barrier();
}

TO_DEVICE void sched_barrier() { __builtin_amdgcn_sched_barrier(0); }
template <int KIND, int COUNT> TO_DEVICE void sched_group() { __builtin_amdgcn_sched_group_barrier(KIND, COUNT, 0); }
template <int PRIORITY> TO_DEVICE void set_priority() { __builtin_amdgcn_s_setprio(PRIORITY); }
// The compiler does not know what x is from here on.
TO_DEVICE void hide(int &x) { asm volatile("" : "+v"(x)); }

// 16 bytes a lane: lane i's go to `wave_base + 16 * i`. As assembly, since clang up to 22 counts the builtin in lgkmcnt,
// where the hardware does not (LLVM pull request 179305), and then waits too little for other accesses to LDS. What the
// compiler does not know to be in flight only makes its waits on vmcnt stricter. m0 needs a wait state.
TO_DEVICE void global_load_lds_x4(const void *from, TO_SHARED void *wave_base) {
  asm volatile("s_nop 0\n\tglobal_load_lds_dwordx4 %0, off"
               :
               : "v"((TO_GLOBAL const void *)from), "{m0}"(wave_base)
               : "memory");
}

// To nearest, ties to even.
TO_DEVICE u16 round_to_bf16(float x) { return __builtin_bit_cast(u16, (__bf16)x); }
TO_DEVICE u16 round_to_fp16(float x) { return __builtin_bit_cast(u16, (_Float16)x); }

typedef short S4 __attribute__((ext_vector_type(4)));
typedef __bf16 B8 __attribute__((ext_vector_type(8)));
typedef _Float16 H4 __attribute__((ext_vector_type(4)));
typedef _Float16 H8 __attribute__((ext_vector_type(8)));
typedef int I8 __attribute__((ext_vector_type(8)));

TO_DEVICE F4 mfma_16x16x16_bf16(U2 a, U2 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(S4, a), __builtin_bit_cast(S4, b), c, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x8_bf16(U2 a, U2 b, F16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(S4, a), __builtin_bit_cast(S4, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_16x16x32_bf16(U4 a, U4 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(B8, a), __builtin_bit_cast(B8, b), c, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x16_bf16(U4 a, U4 b, F16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(B8, a), __builtin_bit_cast(B8, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_16x16x16_fp16(U2 a, U2 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(H4, a), __builtin_bit_cast(H4, b), c, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x8_fp16(U2 a, U2 b, F16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(H4, a), __builtin_bit_cast(H4, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_16x16x32_fp16(U4 a, U4 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(H8, a), __builtin_bit_cast(H8, b), c, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x16_fp16(U4 a, U4 b, F16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(H8, a), __builtin_bit_cast(H8, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_16x16x4_fp32(u32 a, u32 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x4f32(__builtin_bit_cast(float, a), __builtin_bit_cast(float, b), c, 0, 0, 0);
}
// Sixteen products of 4 x 4 x 4 at once.
TO_DEVICE F4 mfma_4x4x4x16_bf16(U2 a, U2 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_4x4x4bf16_1k(__builtin_bit_cast(S4, a), __builtin_bit_cast(S4, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_4x4x4x16_fp16(U2 a, U2 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_4x4x4f16(__builtin_bit_cast(H4, a), __builtin_bit_cast(H4, b), c, 0, 0, 0);
}
TO_DEVICE F4 mfma_16x16x32_fp8(U2 a, U2 b, F4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x16_fp8(U2 a, U2 b, F16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}
TO_DEVICE I8 joined(U4 low, U4 high) {
  return __builtin_bit_cast(I8, __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
}
// Of 8-bit elements (format 0: e4m3), with no scale.
TO_DEVICE F4 mfma_16x16x128_fp8(U4 a, U4 a_more, U4 b, U4 b_more, F4 c) {
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(joined(a, a_more), joined(b, b_more), c, 0, 0, 0, 0, 0, 0);
}
TO_DEVICE F16 mfma_32x32x64_fp8(U4 a, U4 a_more, U4 b, U4 b_more, F16 c) {
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(joined(a, a_more), joined(b, b_more), c, 0, 0, 0, 0, 0, 0);
}

} // namespace to
