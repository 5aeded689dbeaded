// What a library with one of CK Tile's kernels exports. harness/tile_oracle/device/ck_tile_library.py is the other side.
#pragma once

#include <cstddef>
#include <cstdint>

#define TO_CK_ABI_VERSION 1

enum to_ck_op : int32_t { TO_CK_CONV = 0, TO_CK_GEMM = 1 };

// One problem and its data on the device. Of convolutions C and K count all groups; of GEMM only m, n, k count.
// in0, in1, out: forward X W Y, bwd_data dY W dX, bwd_weight X dY dW, GEMM A B C.
struct to_ck_problem {
  const void *in0, *in1;
  void *out, *workspace;
  int32_t N, C, K, G, Di, Hi, Wi, Z, Y, X, Do, Ho, Wo;
  int32_t stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h, dilation_w;
  int32_t gemm_m, gemm_n, gemm_k;
  int32_t op;
};

// What a launch will be.
struct to_ck_plan_t {
  int64_t workspace_bytes;
  int32_t grid[3];
  int32_t threads;
  int32_t lds_bytes;
  int32_t zero_fills;  // whether the launch begins with an output of zeros, which is part of its time
};

enum to_ck_status : int32_t { TO_CK_OK = 0, TO_CK_UNSUPPORTED = 1 };

#define TO_CK_EXPORT extern "C" __attribute__((visibility("default")))

TO_CK_EXPORT int32_t to_ck_abi_version();
// The kernel's full name.
TO_CK_EXPORT const char *to_ck_kernel();
// Whether the kernel takes a problem (pointers may be null), and how. why: a text that ends in 0, if it does not.
TO_CK_EXPORT int32_t to_ck_plan(const to_ck_problem *problem, to_ck_plan_t *plan, char *why, size_t why_bytes);
// Starts the kernel on a stream (hipStream_t) and returns HIP's error number; below zero: it could not begin.
TO_CK_EXPORT int32_t to_ck_launch(const to_ck_problem *problem, void *stream);
