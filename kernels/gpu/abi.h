/* What a compiled GPU kernel exports, the structure that it takes, and the grid that it is launched with.
 *
 * A kernel's binary (a gfx950 code object, or PTX or a cubin for sm_90) holds
 *
 *   to_conv          the kernel, of a GEMM too; takes one to_gpu_args (to_gpu_gemm_args) by value
 *   to_finish        only with TO_GPU_TWO_STAGE: sums the workspace into `out`; the same argument
 *   to_launch_info   a to_gpu_launch_info in device memory, found with cu/hipModuleGetGlobal
 *
 * Extents are in elements. For 2D problems the depth members are 1 (pad: 0). All pointers are 16-byte
 * aligned. Tensors may have more than 2^31 elements, but rows, columns and depth of the GEMM below must be
 * less than 2^31 - 2^16 each, and so must one image (Di*Hi*Wi*C and Do*Ho*Wo*K elements); along every axis an image's
 * extent and twice its padding must be less than 2^30: the host refuses other problems.
 *
 * Launch of to_conv: block (threads, 1, 1), lds_bytes of dynamic shared memory (on sm_90 the host raises the
 * function's limit when it is above 48 KiB), grid (x, y, z):
 *
 *   x = ceil(rows / tile_m) * ceil(columns / tile_n), with TO_GPU_SPLIT_IMAGE N * ceil(rows / N / tile_m) *
 *       ceil(columns / tile_n)
 *   y = G / groups_to_merge                  (at most 65535: the host refuses other problems)
 *   z = see below                            (at most 65535)
 *
 *   direction    rows                                                   columns                 z
 *   forward      N*Do*Ho*Wo                                             merge*K/G               1
 *   bwd_data     N*ceil(Di/stride_d)*ceil(Hi/stride_h)*ceil(Wi/stride_w) merge*C/G   stride_d*stride_h*stride_w
 *   bwd_weight   merge*K/G                                              merge*C/G*Z*Y*X         split_k
 *
 * where merge = groups_to_merge. split_k is 1 unless TO_GPU_TWO_STAGE is set; then it is any number from 1 to
 * ceil(N*Do*Ho*Wo / tile_k), and a good one is the smallest that makes x*y*z at least twice the number
 * of compute units, but no more than 64. The workspace has 4 * split_k * K*Z*Y*X*C/G bytes (fp32; need not be
 * initialised), else it is null.
 * Launch of to_finish: block (256, 1, 1), no dynamic shared memory, grid (min(ceil(K*Z*Y*X*C/G / 256), 65535), 1, 1).
 *
 * GEMM: M, N and K must be less than 2^31 - 2^16 each. Launch of to_conv as above, grid (x, 1, 1): x is the number of tiles,
 * ceil(M / tile_m) * ceil(N / tile_n), which must be below 2^30; with TO_GPU_PERSISTENT any number from 1 to that, and a good
 * one is what the compute units hold at once. No workspace. Of fp8 (OCP's e4m3; rcr only) K must be even, and C is fp16.
 *
 * A translation unit is one #define a field of the kernel, then #include "grouped_conv.hpp":
 *
 *   TO_DIRECTION  TO_FORWARD TO_BWD_DATA TO_BWD_WEIGHT     TO_DTYPE      TO_BF16 TO_FP16 TO_FP8 TO_FP32
 *   TO_PIPELINE   TO_BASIC_V1 TO_BASIC_ASYNC_V1 TO_MEM TO_COMPV3 TO_COMPV4 TO_COMPV5 TO_COMPV6 TO_COMP_ASYNC
 *   TO_SCHEDULER  TO_INTRAWAVE TO_INTERWAVE                TO_EPILOGUE   TO_CSHUFFLE TO_DEFAULT
 *   numbers       TO_NDIM TO_TILE_M/N/K TO_WAVE_M/N/K TO_WARP_TILE_M/N/K TO_VECTOR_A/B/C TO_GROUPS_TO_MERGE
 *   0 or 1        TO_DSB TO_SPLIT_IMAGE TO_EXPLICIT_GEMM TO_TWO_STAGE TO_PAD_M/N/K
 *
 * of a GEMM #include "gemm.hpp", with TO_LAYOUT (TO_RCR TO_RRR TO_CRR TO_CCR) and TO_PERSISTENT instead of TO_DIRECTION,
 * TO_NDIM, TO_GROUPS_TO_MERGE, TO_SPLIT_IMAGE, TO_EXPLICIT_GEMM and TO_TWO_STAGE,
 *
 * compiled as HIP (gfx950) or CUDA (sm_90), C++20, without any vendor's headers.
 *
 * Every element of `out` is written, none is read, nothing else is written.
 */
#ifndef TILE_ORACLE_GPU_ABI_H
#define TILE_ORACLE_GPU_ABI_H

#define TILE_ORACLE_GPU_ABI_VERSION 1

/* 128 bytes: 4 pointers and 24 ints */
typedef struct to_gpu_args {
  const void *in0; /* forward: X   bwd_data: dY  bwd_weight: X  */
  const void *in1; /* forward: W   bwd_data: W   bwd_weight: dY */
  void *out;       /* forward: Y   bwd_data: dX  bwd_weight: dW */
  void *workspace;
  int N, C, K, G; /* C and K are totals over the groups */
  int Di, Hi, Wi;
  int Z, Y, X;
  int Do, Ho, Wo;
  int stride_d, stride_h, stride_w;
  int pad_d, pad_h, pad_w;
  int dilation_d, dilation_h, dilation_w;
  int split_k;
  int reserved; /* 0 */
} to_gpu_args;

/* 48 bytes. A is M x K, B is K x N, both by rows or by columns; C is M x N, by rows. */
typedef struct to_gpu_gemm_args {
  const void *a;
  const void *b;
  void *c;
  void *reserved; /* null */
  int M, N, K;
  int reserved_too; /* 0 */
} to_gpu_gemm_args;

#define TO_GPU_TWO_STAGE 1   /* to_conv writes fp32 sums to the workspace, to_finish the result */
#define TO_GPU_SPLIT_IMAGE 2 /* no tile holds pixels of two images */
#define TO_GPU_PERSISTENT 4  /* GEMM: a workgroup takes tiles until there are none */
#define TO_GPU_GEMM 3        /* `direction` of a GEMM: this, and 0 rcr, 1 rrr, 2 crr, 3 ccr more */

typedef struct to_gpu_launch_info {
  int abi_version; /* TILE_ORACLE_GPU_ABI_VERSION */
  int threads;     /* of a workgroup */
  int lds_bytes;   /* dynamic */
  int flags;
  int direction; /* 0 forward, 1 bwd_data, 2 bwd_weight, TO_GPU_GEMM and more: a GEMM */
  int tile_m, tile_n, tile_k;
  int groups_to_merge;
} to_gpu_launch_info;

#endif
