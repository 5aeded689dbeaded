// The kernel's fields as constants: what the #defines of a translation unit mean. TO_LAYOUT makes it a GEMM.
#pragma once

#define TO_FORWARD 0
#define TO_BWD_DATA 1
#define TO_BWD_WEIGHT 2
#define TO_BF16 0
#define TO_FP16 1
#define TO_FP8 2
#define TO_FP32 3
#define TO_BASIC_V1 0
#define TO_BASIC_ASYNC_V1 1
#define TO_MEM 2
#define TO_COMPV3 3
#define TO_COMPV4 4
#define TO_COMPV5 5
#define TO_COMPV6 6
#define TO_COMP_ASYNC 7
#define TO_INTRAWAVE 0
#define TO_INTERWAVE 1
#define TO_DEFAULT 0
#define TO_CSHUFFLE 1
#define TO_RCR 0
#define TO_RRR 1
#define TO_CRR 2
#define TO_CCR 3

#ifdef TO_LAYOUT
#define TO_IS_GEMM 1
#define TO_TWO_STAGE 0
#else
#define TO_IS_GEMM 0
#define TO_PERSISTENT 0
#endif

#include "abi.h"
#include "device.hpp"

namespace to {

// Whether memory is contiguous along the depth.
#if TO_IS_GEMM
constexpr bool A_ALONG_K = TO_LAYOUT == TO_RCR || TO_LAYOUT == TO_RRR;
constexpr bool B_ALONG_K = TO_LAYOUT == TO_RCR || TO_LAYOUT == TO_CCR;
#else
constexpr int DIRECTION = TO_DIRECTION;
constexpr bool FORWARD = DIRECTION == TO_FORWARD, BWD_DATA = DIRECTION == TO_BWD_DATA,
               BWD_WEIGHT = DIRECTION == TO_BWD_WEIGHT;
constexpr bool IS_3D = TO_NDIM == 3;
constexpr bool A_ALONG_K = !BWD_WEIGHT, B_ALONG_K = FORWARD;
constexpr bool SPLIT_IMAGE = TO_SPLIT_IMAGE, EXPLICIT_GEMM = TO_EXPLICIT_GEMM;
constexpr int MERGE = TO_GROUPS_TO_MERGE;
#endif
// Elements of 8 bits travel in pairs along the depth: all that is said of one of 16 bits holds for a pair.
constexpr int PACKED = TO_DTYPE == TO_FP8 ? 2 : 1;
constexpr int TILE_M = TO_TILE_M, TILE_N = TO_TILE_N, TILE_K = TO_TILE_K / PACKED;
constexpr int WAVE_M = TO_WAVE_M, WAVE_N = TO_WAVE_N;
constexpr int WARP_M = TO_WARP_TILE_M, WARP_N = TO_WARP_TILE_N, WARP_K = TO_WARP_TILE_K / PACKED;
constexpr int VECTOR_A = TO_VECTOR_A / PACKED, VECTOR_B = TO_VECTOR_B / PACKED, VECTOR_C = TO_VECTOR_C;
constexpr int PIPELINE = TO_PIPELINE;
constexpr bool INTERWAVE = TO_SCHEDULER == TO_INTERWAVE;
constexpr bool TWO_BUFFERS = TO_DSB;
constexpr bool TWO_STAGE = TO_TWO_STAGE, PERSISTENT = TO_PERSISTENT;
constexpr bool PAD_M = TO_PAD_M, PAD_N = TO_PAD_N, PAD_K = TO_PAD_K;
constexpr bool CSHUFFLE = TO_EPILOGUE == TO_CSHUFFLE;
constexpr int THREADS = WAVE_M * WAVE_N * LANES;

constexpr bool IS_ASYNC = PIPELINE == TO_COMP_ASYNC || PIPELINE == TO_BASIC_ASYNC_V1;
constexpr bool IS_COMPUTE = PIPELINE == TO_COMPV3 || PIPELINE == TO_COMPV4 || PIPELINE == TO_COMPV5 ||
                            PIPELINE == TO_COMPV6 || PIPELINE == TO_COMP_ASYNC;

static_assert(PACKED == 1 || (A_ALONG_K && B_ALONG_K), "pairs along the depth lie together in rcr matrices only");
static_assert(TO_WAVE_K == 1, "waves along k are not written: wave_k is 1");
static_assert(TILE_M % (WAVE_M * WARP_M) == 0 && TILE_N % (WAVE_N * WARP_N) == 0 && TILE_K % WARP_K == 0,
              "a tile is whole waves of whole warp tiles");
static_assert(TILE_K % UNIT == 0 && TILE_M % UNIT == 0 && TILE_N % UNIT == 0, "a tile is whole 16-byte units");
static_assert(VECTOR_A <= UNIT && VECTOR_B <= UNIT && VECTOR_C <= UNIT, "a load or store moves at most 16 bytes");
#if !TO_IS_GEMM
static_assert(!SPLIT_IMAGE || FORWARD, "split_image is for forward");
static_assert(!TWO_STAGE || BWD_WEIGHT, "two_stage is for bwd_weight");
static_assert(!(MERGE > 1 && EXPLICIT_GEMM), "explicit_gemm multiplies the tensors of one group as they are");
#endif
static_assert(TWO_BUFFERS || !(PIPELINE == TO_COMPV4 || PIPELINE == TO_COMP_ASYNC), "this pipeline needs two buffers");
static_assert(!INTERWAVE || !IS_COMPUTE, "compute pipelines are intrawave");

// Tiles in LDS: A as [m][k] where memory is contiguous along k, else as [k][m]; B likewise. sm_90 turns fragments when it
// reads them. gfx950 turns a tile once, when it is stored, unless a copy takes it straight from memory.
constexpr bool A_TURNED = TO_GFX950 && !IS_ASYNC && !A_ALONG_K, B_TURNED = TO_GFX950 && !IS_ASYNC && !B_ALONG_K;
constexpr bool A_K_CONTIGUOUS = A_ALONG_K || A_TURNED, B_K_CONTIGUOUS = B_ALONG_K || B_TURNED;
constexpr int A_COLS = A_K_CONTIGUOUS ? TILE_K : TILE_M, B_COLS = B_K_CONTIGUOUS ? TILE_K : TILE_N;
constexpr int A_ELEMENTS = TILE_M * TILE_K, B_ELEMENTS = TILE_N * TILE_K, STAGE_ELEMENTS = A_ELEMENTS + B_ELEMENTS;

// On sm_90 comp_async keeps two to four buffers: as many as let two workgroups (of four warps: three) share the
// LDS of a multiprocessor.
constexpr int STAGE_BYTES = STAGE_ELEMENTS * ELEMENT_BYTES;
constexpr bool fit(int stages) { return stages * STAGE_BYTES <= (THREADS <= 128 ? 72 : 100) << 10; }
constexpr int STAGES = !(TO_SM90 && PIPELINE == TO_COMP_ASYNC) ? 1 + TWO_BUFFERS : fit(4) ? 4 : fit(3) ? 3 : 2;
constexpr int RESULT_BYTES = TWO_STAGE ? 4 : ELEMENT_BYTES;
constexpr int SHUFFLE_BYTES = CSHUFFLE ? TILE_M * TILE_N * RESULT_BYTES : 0;
constexpr int LDS_BYTES = STAGES * STAGE_BYTES > SHUFFLE_BYTES ? STAGES * STAGE_BYTES : SHUFFLE_BYTES;

} // namespace to
