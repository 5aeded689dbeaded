// The kernel's fields as constants: what the #defines of a translation unit mean.
#pragma once

#define TO_FORWARD 0
#define TO_BWD_DATA 1
#define TO_BWD_WEIGHT 2
#define TO_BF16 0
#define TO_FP16 1
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

#include "abi.h"
#include "device.hpp"

namespace to {

constexpr int DIRECTION = TO_DIRECTION;
constexpr bool FORWARD = DIRECTION == TO_FORWARD, BWD_DATA = DIRECTION == TO_BWD_DATA,
               BWD_WEIGHT = DIRECTION == TO_BWD_WEIGHT;
constexpr bool IS_3D = TO_NDIM == 3;
constexpr int TILE_M = TO_TILE_M, TILE_N = TO_TILE_N, TILE_K = TO_TILE_K;
constexpr int WAVE_M = TO_WAVE_M, WAVE_N = TO_WAVE_N;
constexpr int WARP_M = TO_WARP_TILE_M, WARP_N = TO_WARP_TILE_N, WARP_K = TO_WARP_TILE_K;
constexpr int VECTOR_A = TO_VECTOR_A, VECTOR_B = TO_VECTOR_B, VECTOR_C = TO_VECTOR_C;
constexpr int PIPELINE = TO_PIPELINE;
constexpr bool INTERWAVE = TO_SCHEDULER == TO_INTERWAVE;
constexpr bool TWO_BUFFERS = TO_DSB;
constexpr bool SPLIT_IMAGE = TO_SPLIT_IMAGE, EXPLICIT_GEMM = TO_EXPLICIT_GEMM, TWO_STAGE = TO_TWO_STAGE;
constexpr int MERGE = TO_GROUPS_TO_MERGE;
constexpr bool PAD_M = TO_PAD_M, PAD_N = TO_PAD_N, PAD_K = TO_PAD_K;
constexpr bool CSHUFFLE = TO_EPILOGUE == TO_CSHUFFLE;
constexpr int THREADS = WAVE_M * WAVE_N * LANES;

constexpr bool IS_ASYNC = PIPELINE == TO_COMP_ASYNC || PIPELINE == TO_BASIC_ASYNC_V1;
constexpr bool IS_COMPUTE = PIPELINE == TO_COMPV3 || PIPELINE == TO_COMPV4 || PIPELINE == TO_COMPV5 ||
                            PIPELINE == TO_COMPV6 || PIPELINE == TO_COMP_ASYNC;

static_assert(TO_WAVE_K == 1, "waves along k are not written: wave_k is 1");
static_assert(TILE_M % (WAVE_M * WARP_M) == 0 && TILE_N % (WAVE_N * WARP_N) == 0 && TILE_K % WARP_K == 0,
              "a tile is whole waves of whole warp tiles");
static_assert(TILE_K % 8 == 0 && TILE_M % 8 == 0 && TILE_N % 8 == 0, "a tile is whole 16-byte units");
static_assert(VECTOR_A <= 8 && VECTOR_B <= 8 && VECTOR_C <= 8, "a load or store moves at most 16 bytes");
static_assert(!SPLIT_IMAGE || FORWARD, "split_image is for forward");
static_assert(!TWO_STAGE || BWD_WEIGHT, "two_stage is for bwd_weight");
static_assert(!(MERGE > 1 && EXPLICIT_GEMM), "explicit_gemm multiplies the tensors of one group as they are");
static_assert(TWO_BUFFERS || !(PIPELINE == TO_COMPV4 || PIPELINE == TO_COMP_ASYNC), "this pipeline needs two buffers");
static_assert(!INTERWAVE || !IS_COMPUTE, "compute pipelines are intrawave");

// Tiles in LDS: A as [m][k] where memory is contiguous along k, else as [k][m]; B likewise. sm_90 turns fragments when it
// reads them. gfx950 turns a tile once, when it is stored, unless a copy takes it straight from memory.
constexpr bool A_TURNED = TO_GFX950 && !IS_ASYNC && BWD_WEIGHT, B_TURNED = TO_GFX950 && !IS_ASYNC && !FORWARD;
constexpr bool A_K_CONTIGUOUS = !BWD_WEIGHT || A_TURNED, B_K_CONTIGUOUS = FORWARD || B_TURNED;
constexpr int A_COLS = A_K_CONTIGUOUS ? TILE_K : TILE_M, B_COLS = B_K_CONTIGUOUS ? TILE_K : TILE_N;
constexpr int A_ELEMENTS = TILE_M * TILE_K, B_ELEMENTS = TILE_N * TILE_K, STAGE_ELEMENTS = A_ELEMENTS + B_ELEMENTS;

// On sm_90 comp_async keeps two to four buffers: as many as let two workgroups (of four warps: three) share the
// LDS of a multiprocessor.
constexpr bool fit(int stages) { return stages * STAGE_ELEMENTS * 2 <= (THREADS <= 128 ? 72 : 100) << 10; }
constexpr int STAGES = !(TO_SM90 && PIPELINE == TO_COMP_ASYNC) ? 1 + TWO_BUFFERS : fit(4) ? 4 : fit(3) ? 3 : 2;
constexpr int RESULT_BYTES = TWO_STAGE ? 4 : 2;
constexpr int SHUFFLE_BYTES = CSHUFFLE ? TILE_M * TILE_N * RESULT_BYTES : 0;
constexpr int LDS_BYTES = STAGES * STAGE_ELEMENTS * 2 > SHUFFLE_BYTES ? STAGES * STAGE_ELEMENTS * 2 : SHUFFLE_BYTES;

} // namespace to
