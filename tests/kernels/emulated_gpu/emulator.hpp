// The emulated GPU, as a kernel sees it: what emulated instructions are made of. emulator.cpp says how it works.
//
// All functions are called by a lane. Those that say "wave" return when all lanes of the wave have called them.
#pragma once

typedef unsigned emu_u2 __attribute__((ext_vector_type(2)));
typedef unsigned emu_u4 __attribute__((ext_vector_type(4)));
typedef float emu_f4 __attribute__((ext_vector_type(4)));
typedef float emu_f16 __attribute__((ext_vector_type(16)));

// Formats of matrix elements.
enum { EMU_BF16, EMU_FP16, EMU_FP8, EMU_FP32 };

// What the loader of a kernel must know of its module.
struct emu_module {
  int lanes;                           // of a wave
  int static_lds_bytes;                // of to_lds; what the launch asks for is added
  unsigned char *variables, *variables_end;        // other variables in LDS
  const unsigned char *constants, *constants_end;  // in device memory
};

extern "C" {

// LDS for tiles. What lies behind what was asked for is out of bounds.
extern unsigned char to_lds[];

__attribute__((const)) int emu_thread();
__attribute__((const)) int emu_block(int axis);
__attribute__((const)) long long emu_grid_threads();

// A barrier of the workgroup (wave), and what orders LDS around it.
void emu_barrier();
void emu_release();
void emu_acquire();

// Values of other lanes (wave).
int emu_first_lane(int x);
int emu_from_lane(int x, int lane);

// gfx950: a copy of 16 bytes a lane to `wave_base + 16 * lane`, and the wait for all but the last `pending` (wave).
void emu_load_to_lds(const void *from, void *wave_base);
void emu_wait_loads(int pending);

// sm_90: a copy of `bytes`, of which `live` are read and the others zeros; groups of them.
void emu_cp_async(void *to, const void *from, int bytes, int live);
void emu_cp_async_commit();
void emu_cp_async_wait(int pending_groups);

// Matrix instructions (wave). m, n, k and the format are those of the instruction.
emu_f4 emu_mfma_16x16(int k, int format, emu_u4 a, emu_u4 b, emu_f4 c);
emu_f16 emu_mfma_32x32(int k, int format, emu_u4 a, emu_u4 b, emu_f16 c);
emu_f4 emu_mfma_4x4x4x16(int format, emu_u4 a, emu_u4 b, emu_f4 c);
emu_f4 emu_mfma_16x16x128_fp8(emu_u4 a, emu_u4 a_more, emu_u4 b, emu_u4 b_more, emu_f4 c);
emu_f16 emu_mfma_32x32x64_fp8(emu_u4 a, emu_u4 a_more, emu_u4 b, emu_u4 b_more, emu_f16 c);
emu_f4 emu_mma_m16n8k16(int format, emu_u4 a, emu_u2 b, emu_f4 c);
emu_u4 emu_ldmatrix_x4(const void *row, int transposed);

// To nearest, ties to even.
unsigned short emu_round(int format, float x);

} // extern "C"
