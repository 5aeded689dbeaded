// sm_90's own instructions (CUDA of clang or nvcc, warps of 32), one thin function each: nothing here decides anything.
// What stands in for this file in an emulation has the same names (tests/kernels/emulated_gpu).
#pragma once

#include "types.hpp"

#define TO_GFX950 0
#define TO_SM90 1

#define TO_DEVICE __attribute__((device, always_inline)) inline
#define TO_UNROLL _Pragma("unroll")
#define TO_ROLLED _Pragma("unroll 1")

// A variable of the workgroup in LDS, and the LDS that tiles lie in, whose size the launch says.
#define TO_LDS_VARIABLE static __attribute__((shared))
#define TO_LDS_OF_TILES(bytes) extern __attribute__((shared, aligned(16))) unsigned char to_lds[];
#define TO_LDS_IS_DYNAMIC 1

// What the host finds by name: constants, and kernels for a number of threads. Waves: what registers leave room for.
#define TO_VISIBLE
#define TO_VISIBLE_CONSTANT TO_CONSTANT __attribute__((used))
#define TO_KERNEL(threads) __attribute__((global, launch_bounds(threads))) void
#define TO_KERNEL_OF_WAVES(threads, waves) TO_KERNEL(threads)

// Where things lie. nvcc has no types that say so: it sees where a pointer comes from, or is told by in_global(). Its
// headers are not included; the functions below it knows by name.
#if defined(__NVCC__)
#define TO_SHARED
#define TO_GLOBAL
#define TO_CONSTANT __attribute__((constant))
extern "C" {
__attribute__((device, device_builtin)) void __syncthreads();
__attribute__((device)) unsigned __nv_isGlobal_impl(const void *);
__attribute__((device)) decltype(sizeof(0)) __nv_cvta_generic_to_shared_impl(const void *);
}
#else
#define TO_SHARED __attribute__((address_space(3)))
#define TO_GLOBAL __attribute__((address_space(1)))
#define TO_CONSTANT __attribute__((device))
#endif

namespace to {

constexpr int LANES = 32;

#if defined(__NVCC__)
// Registers are read by PTX, which does not say how large they get.
#define TO_REGISTER(function, name, most)               \
  TO_DEVICE int function() {                            \
    u32 x;                                              \
    asm("mov.u32 %0, %%" name ";" : "=r"(x));           \
    __builtin_assume(x <= most);                        \
    return (int)x;                                      \
  }
TO_REGISTER(thread_id, "tid.x", 1023)
TO_REGISTER(block_x, "ctaid.x", 0x7FFFFFFE)
TO_REGISTER(block_y, "ctaid.y", 65534)
TO_REGISTER(block_z, "ctaid.z", 65534)
TO_REGISTER(blocks_along_x, "nctaid.x", 0x7FFFFFFF)
TO_REGISTER(threads_of_block, "ntid.x", 1024)
#undef TO_REGISTER
TO_DEVICE i64 grid_threads() { return (i64)blocks_along_x() * threads_of_block(); }
TO_DEVICE void bar_sync() { __syncthreads(); }
TO_DEVICE u32 shared_address(const u16 *p) { return (u32)__nv_cvta_generic_to_shared_impl(p); }
TO_DEVICE void in_global(const void *p) { __builtin_assume(__nv_isGlobal_impl(p)); }
// To nearest, ties to even.
TO_DEVICE u16 round_to_bf16(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
TO_DEVICE u16 round_to_fp16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#else
TO_DEVICE int thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
TO_DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
TO_DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
TO_DEVICE int block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
TO_DEVICE i64 grid_threads() { return (i64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x(); }
TO_DEVICE void bar_sync() { __nvvm_bar_sync(0); }
TO_DEVICE u32 shared_address(const u16 *p) { return (u32)(u64)(TO_SHARED const u16 *)p; }
TO_DEVICE void in_global(const void *) {}
// To nearest, ties to even.
TO_DEVICE u16 round_to_bf16(float x) { return __builtin_bit_cast(u16, (__bf16)x); }
TO_DEVICE u16 round_to_fp16(float x) { return __builtin_bit_cast(u16, (_Float16)x); }
#endif
TO_DEVICE void workgroup_barrier() { bar_sync(); } // as device_work.hpp calls it

TO_DEVICE int shuffle(int x, int lane) {
  int r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(r) : "r"(x), "r"(lane));
  return r;
}
// The compiler does not know what x is from here on.
TO_DEVICE void hide(int &x) { asm volatile("" : "+r"(x)); }

// BYTES to shared memory; those from `live` on are zeros, and not read.
template <int BYTES> TO_DEVICE void cp_async(u16 *to, const u16 *from, u32 live) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(live)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from), "r"(live),
                 "n"(BYTES)
                 : "memory");
}
TO_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> TO_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 x 8; lanes 8i to 8i + 7 point to the rows of matrix i.
TO_DEVICE U4 ldmatrix_x4(const u16 *p) {
  U4 f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
               : "r"(shared_address(p))
               : "memory");
  return f;
}
TO_DEVICE U4 ldmatrix_x4_trans(const u16 *p) {
  U4 f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
               : "r"(shared_address(p))
               : "memory");
  return f;
}

// To nearest, ties to even: two numbers.
TO_DEVICE u32 round_to_bf16x2(float high, float low) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TO_DEVICE u32 round_to_fp16x2(float high, float low) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

#define TO_MMA_OPERANDS                           \
  : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)    \
  : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)
TO_DEVICE void mma_m16n8k16_bf16(F4 &c, U4 a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               TO_MMA_OPERANDS);
}
TO_DEVICE void mma_m16n8k16_fp16(F4 &c, U4 a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               TO_MMA_OPERANDS);
}
#undef TO_MMA_OPERANDS

} // namespace to
