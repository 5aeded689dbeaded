// kernels/gpu/instructions_sm90.hpp, emulated: every function of that file, by the emulator.
#pragma once

#include "emulator.hpp"
#include "types.hpp"

#define TO_GFX950 0
#define TO_SM90 1

#include "emulated_module.hpp"

#define TO_LDS_OF_TILES(bytes) TO_EMULATED_MODULE(32, 0)
#define TO_LDS_IS_DYNAMIC 1

namespace to {

constexpr int LANES = 32;

TO_DEVICE int thread_id() { return emu_thread(); }
TO_DEVICE int block_x() { return emu_block(0); }
TO_DEVICE int block_y() { return emu_block(1); }
TO_DEVICE int block_z() { return emu_block(2); }
TO_DEVICE i64 grid_threads() { return emu_grid_threads(); }

TO_DEVICE int shuffle(int x, int lane) { return emu_from_lane(x, lane & 31); }
// PTX ISA, "bar": also orders the memory accesses of the threads that take part.
TO_DEVICE void bar_sync() {
  emu_release();
  emu_barrier();
  emu_acquire();
}
// Of the harness's own work on the device, whose text has both architectures' barriers.
TO_DEVICE void workgroup_barrier() {
  emu_release();
  emu_barrier();
  emu_acquire();
}
TO_DEVICE void hide(int &) {}
TO_DEVICE void in_global(const void *) {}

template <int BYTES> TO_DEVICE void cp_async(u16 *to, const u16 *from, u32 live) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "PTX ISA, cp.async: cp-size is 4, 8 or 16");
  emu_cp_async(to, from, BYTES, (int)live);
}
TO_DEVICE void cp_async_commit_group() { emu_cp_async_commit(); }
template <int PENDING> TO_DEVICE void cp_async_wait_group() { emu_cp_async_wait(PENDING); }

// The emulator's vectors are clang's, the kernels' may be classes (types.hpp).
template <class To, class From> TO_DEVICE To as(From x) { return __builtin_bit_cast(To, x); }

TO_DEVICE U4 ldmatrix_x4(const u16 *p) { return as<U4>(emu_ldmatrix_x4(p, 0)); }
TO_DEVICE U4 ldmatrix_x4_trans(const u16 *p) { return as<U4>(emu_ldmatrix_x4(p, 1)); }

TO_DEVICE u16 round_to_bf16(float x) { return emu_round(EMU_BF16, x); }
TO_DEVICE u16 round_to_fp16(float x) { return emu_round(EMU_FP16, x); }
// PTX ISA, cvt to a pair: its first operand goes to the upper half, its second one to the lower half.
TO_DEVICE u32 round_to_bf16x2(float high, float low) {
  return (u32)emu_round(EMU_BF16, high) << 16 | emu_round(EMU_BF16, low);
}
TO_DEVICE u32 round_to_fp16x2(float high, float low) {
  return (u32)emu_round(EMU_FP16, high) << 16 | emu_round(EMU_FP16, low);
}

TO_DEVICE void mma_m16n8k16(int format, F4 &c, U4 a, u32 b0, u32 b1) {
  c = as<F4>(emu_mma_m16n8k16(format, as<emu_u4>(a), emu_u2{b0, b1}, as<emu_f4>(c)));
}
TO_DEVICE void mma_m16n8k16_bf16(F4 &c, U4 a, u32 b0, u32 b1) { mma_m16n8k16(EMU_BF16, c, a, b0, b1); }
TO_DEVICE void mma_m16n8k16_fp16(F4 &c, U4 a, u32 b0, u32 b1) { mma_m16n8k16(EMU_FP16, c, a, b0, b1); }

} // namespace to
