// kernels/gpu/instructions_gfx950.hpp, emulated: every function of that file, by the emulator.
#pragma once

#include "emulator.hpp"
#include "types.hpp"

#define TO_GFX950 1
#define TO_SM90 0

#include "emulated_module.hpp"

#define TO_LDS_OF_TILES(bytes) TO_EMULATED_MODULE(64, bytes)
#define TO_LDS_IS_DYNAMIC 0

namespace to {

constexpr int LANES = 64;

TO_DEVICE int thread_id() { return emu_thread(); }
TO_DEVICE int block_x() { return emu_block(0); }
TO_DEVICE int block_y() { return emu_block(1); }
TO_DEVICE int block_z() { return emu_block(2); }
TO_DEVICE i64 grid_threads() { return emu_grid_threads(); }

TO_DEVICE int first_lane(int x) { return emu_first_lane(x); }
// ds_bpermute_b32: the address is in bytes, its bits above those of a lane's number do not count.
TO_DEVICE int permute(int lane, int x) { return emu_from_lane(x, lane & 63); }

TO_DEVICE void release_lds() { emu_release(); }
TO_DEVICE void acquire_lds() { emu_acquire(); }
// s_barrier keeps waves in step, and promises nothing about memory.
TO_DEVICE void s_barrier() { emu_barrier(); }
// AMD's CDNA instruction set manuals, S_WAITCNT: bits 3:0 and 15:14 are vmcnt, 6:4 expcnt, 11:8 lgkmcnt. vmcnt counts all
// vector memory operations in their order; here only copies to LDS, so that a wait with a number promises less.
template <int COUNTERS> TO_DEVICE void s_waitcnt() {
  constexpr int VMCNT = (COUNTERS & 15) | (COUNTERS >> 14 & 3) << 4;
  if (VMCNT < 63) emu_wait_loads(VMCNT);
}

// Of the harness's own work on the device, whose text has both architectures' barriers.
TO_DEVICE void workgroup_barrier() {
  emu_release();
  emu_barrier();
  emu_acquire();
}
TO_DEVICE void sched_barrier() {}
template <int KIND, int COUNT> TO_DEVICE void sched_group() {}
template <int PRIORITY> TO_DEVICE void set_priority() {}
TO_DEVICE void hide(int &) {}

TO_DEVICE void global_load_lds_x4(const void *from, TO_SHARED void *wave_base) { emu_load_to_lds(from, wave_base); }

TO_DEVICE u16 round_to_bf16(float x) { return emu_round(EMU_BF16, x); }
TO_DEVICE u16 round_to_fp16(float x) { return emu_round(EMU_FP16, x); }

TO_DEVICE U4 widened(U2 x) { return U4{x.x, x.y, 0, 0}; }
TO_DEVICE F4 mfma_16x16x16_bf16(U2 a, U2 b, F4 c) { return emu_mfma_16x16(16, EMU_BF16, widened(a), widened(b), c); }
TO_DEVICE F4 mfma_16x16x16_fp16(U2 a, U2 b, F4 c) { return emu_mfma_16x16(16, EMU_FP16, widened(a), widened(b), c); }
TO_DEVICE F4 mfma_16x16x32_bf16(U4 a, U4 b, F4 c) { return emu_mfma_16x16(32, EMU_BF16, a, b, c); }
TO_DEVICE F4 mfma_16x16x32_fp16(U4 a, U4 b, F4 c) { return emu_mfma_16x16(32, EMU_FP16, a, b, c); }
TO_DEVICE F16 mfma_32x32x8_bf16(U2 a, U2 b, F16 c) { return emu_mfma_32x32(8, EMU_BF16, widened(a), widened(b), c); }
TO_DEVICE F16 mfma_32x32x8_fp16(U2 a, U2 b, F16 c) { return emu_mfma_32x32(8, EMU_FP16, widened(a), widened(b), c); }
TO_DEVICE F16 mfma_32x32x16_bf16(U4 a, U4 b, F16 c) { return emu_mfma_32x32(16, EMU_BF16, a, b, c); }
TO_DEVICE F16 mfma_32x32x16_fp16(U4 a, U4 b, F16 c) { return emu_mfma_32x32(16, EMU_FP16, a, b, c); }
TO_DEVICE F4 mfma_4x4x4x16_bf16(U2 a, U2 b, F4 c) { return emu_mfma_4x4x4x16(EMU_BF16, widened(a), widened(b), c); }
TO_DEVICE F4 mfma_4x4x4x16_fp16(U2 a, U2 b, F4 c) { return emu_mfma_4x4x4x16(EMU_FP16, widened(a), widened(b), c); }
TO_DEVICE F4 mfma_16x16x4_fp32(u32 a, u32 b, F4 c) {
  return emu_mfma_16x16(4, EMU_FP32, U4{a, 0, 0, 0}, U4{b, 0, 0, 0}, c);
}
TO_DEVICE F4 mfma_16x16x32_fp8(U2 a, U2 b, F4 c) { return emu_mfma_16x16(32, EMU_FP8, widened(a), widened(b), c); }
TO_DEVICE F16 mfma_32x32x16_fp8(U2 a, U2 b, F16 c) { return emu_mfma_32x32(16, EMU_FP8, widened(a), widened(b), c); }
TO_DEVICE F4 mfma_16x16x128_fp8(U4 a, U4 a_more, U4 b, U4 b_more, F4 c) {
  return emu_mfma_16x16x128_fp8(a, a_more, b, b_more, c);
}
TO_DEVICE F16 mfma_32x32x64_fp8(U4 a, U4 a_more, U4 b, U4 b_more, F16 c) {
  return emu_mfma_32x32x64_fp8(a, a_more, b, b_more, c);
}

} // namespace to
