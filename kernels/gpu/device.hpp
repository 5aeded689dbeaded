// The device layer: what differs between gfx950 (waves of 64, MFMA) and sm_90 (warps of 32, mma.sync), seen in one way
// by all other files. The instructions themselves stand in a file an architecture. No vendor's headers.
//
// The matrix unit is seen through blocks of BM x BN x BK: fragments of A and B, read from tiles in LDS, and
// an accumulator. What is one instruction on gfx950 is two m16n8k16 on sm_90.
#pragma once

#if defined(TO_INSTRUCTIONS) // an emulation's, of whichever architecture (tests/kernels/emulated_gpu)
#include TO_INSTRUCTIONS
#elif defined(__HIP__)
#include "instructions_gfx950.hpp"
#else
#include "instructions_sm90.hpp"
#endif

namespace to {

// An element of an operand, as it moves: its bits (of fp8: those of a pair). UNIT of them are 16 bytes.
#if TO_DTYPE == TO_FP32
using Element = u32;
constexpr int UNIT_SHIFT = 2;
#else
using Element = u16;
constexpr int UNIT_SHIFT = 3;
#endif
constexpr int ELEMENT_BYTES = sizeof(Element), UNIT = 1 << UNIT_SHIFT;
static_assert(UNIT * ELEMENT_BYTES == 16);

// N elements as they lie in memory.
template <int BYTES> struct RawOf;
template <> struct RawOf<2> { using type = u16; };
template <> struct RawOf<4> { using type = u32; };
template <> struct RawOf<8> { using type = U2; };
template <> struct RawOf<16> { using type = U4; };
template <int N> using Raw = typename RawOf<N * ELEMENT_BYTES>::type;

// shift_in moves all elements down by one and puts a new last one in: N calls fill a vector, first element first.
#if TO_DTYPE == TO_FP32

TO_DEVICE void shift_in(u32 &v, u32 x) { v = x; }
TO_DEVICE void shift_in(U2 &v, u32 x) { v = U2{v.y, x}; }
TO_DEVICE void shift_in(U4 &v, u32 x) { v = U4{v.y, v.z, v.w, x}; }

TO_DEVICE u32 element(u32 v, int) { return v; }
TO_DEVICE u32 element(U2 v, int e) { return v[e]; }
TO_DEVICE u32 element(U4 v, int e) { return v[e]; }

#else

TO_DEVICE void shift_in(u16 &v, u16 x) { v = x; }
TO_DEVICE void shift_in(u32 &v, u16 x) { v = v >> 16 | (u32)x << 16; }
TO_DEVICE void shift_in(U2 &v, u16 x) { v = U2{v.x >> 16 | v.y << 16, v.y >> 16 | (u32)x << 16}; }
TO_DEVICE void shift_in(U4 &v, u16 x) {
  v = U4{v.x >> 16 | v.y << 16, v.y >> 16 | v.z << 16, v.z >> 16 | v.w << 16, v.w >> 16 | (u32)x << 16};
}

TO_DEVICE u16 element(u16 v, int) { return v; }
TO_DEVICE u16 element(u32 v, int e) { return (u16)(v >> e % 2 * 16); }
TO_DEVICE u16 element(U2 v, int e) { return (u16)(v[e / 2] >> e % 2 * 16); }
TO_DEVICE u16 element(U4 v, int e) { return (u16)(v[e / 2] >> e % 2 * 16); }

#endif

// fp32 -> a result of 16 bits (of fp8: fp16): the one rounding, to nearest even.
TO_DEVICE u16 narrow(float x) {
#if TO_DTYPE == TO_BF16
  return round_to_bf16(x);
#else
  return round_to_fp16(x);
#endif
}
TO_DEVICE u32 narrow2(float low, float high) {
#if TO_GFX950
  return (u32)narrow(low) | (u32)narrow(high) << 16;
#elif TO_DTYPE == TO_BF16
  return round_to_bf16x2(high, low);
#else
  return round_to_fp16x2(high, low);
#endif
}

// The same for all lanes of a wave, and (on gfx950) known to be.
TO_DEVICE int uniform(int x) {
#if TO_GFX950
  return first_lane(x);
#else
  return x;
#endif
}

// The value of another lane of this wave.
TO_DEVICE int from_lane(int x, int lane) {
#if TO_GFX950
  return permute(lane, x);
#else
  return shuffle(x, lane);
#endif
}
TO_DEVICE const Element *from_lane(const Element *p, int lane) {
  u64 x = (u64)p;
  return (const Element *)((u64)(u32)from_lane((int)(x >> 32), lane) << 32 | (u32)from_lane((int)x, lane));
}
TO_DEVICE bool from_lane(bool x, int lane) { return from_lane((int)x, lane); }

// From here on the compiler does not know what x is: what is computed from it is computed here, not kept in
// registers from before a loop.
TO_DEVICE void forget(int &x) { hide(x); }

// ---- order ------------------------------------------------------------------------------------------

// All threads of the workgroup, and what they wrote to LDS.
TO_DEVICE void barrier() {
#if TO_GFX950
  release_lds();
  s_barrier();
  acquire_lds();
#else
  bar_sync();
#endif
}

// All waves in step, without a promise about memory: between what a wave reads and what it computes.
TO_DEVICE void waves_in_step() {
#if TO_GFX950
  sched_barrier();
  s_barrier();
  sched_barrier();
#else
  bar_sync();
#endif
}

// What stands before in the source also comes before in the binary. (sm_90: the asm statements keep their order.)
TO_DEVICE void keep_order() {
#if TO_GFX950
  sched_barrier();
#endif
}

TO_DEVICE void matrix_priority(bool high) {
#if TO_GFX950
  if (high)
    set_priority<1>();
  else
    set_priority<0>();
#endif
}

// ---- tiles in LDS -----------------------------------------------------------------------------------

// Where element (row, column) of a tile lies. Neighbouring rows put their 16-byte units into different
// banks, so that eight rows of one column, which the matrix unit reads together, never collide.
template <int COLS> TO_DEVICE int lds_index(int row, int column) {
  constexpr int UNITS = COLS / UNIT;
  int unit = column >> UNIT_SHIFT;
  if constexpr (UNITS % 8 == 0)
    unit ^= row & 7;
  else if constexpr (UNITS == 4)
    unit ^= row >> 1 & 3;
  else if constexpr (UNITS == 2)
    unit ^= row >> 2 & 1;
  return row * COLS + unit * UNIT + (column & (UNIT - 1));
}

#if TO_GFX950

typedef TO_SHARED Element *Lds;
template <class T> TO_DEVICE T lds_load(Lds tile, int index) { return *(TO_SHARED const T *)(tile + index); }
template <class T> TO_DEVICE void lds_store(Lds tile, int index, T x) { *(TO_SHARED T *)(tile + index) = x; }
template <class T> TO_DEVICE T global_load(const Element *p) { return *(TO_GLOBAL const T *)p; }
template <class T> TO_DEVICE void global_store(void *p, T x) { *(TO_GLOBAL T *)p = x; }

// 16 bytes of zeros, for lanes that have nothing to copy: a copy into LDS always writes what every lane points to.
TO_CONSTANT const U4 zeros[1] = {U4{0, 0, 0, 0}};

// One vector a lane, from memory to LDS without passing through registers. The hardware writes lane i's
// vector to `wave_base + 16 * i` bytes.
template <int VEC> TO_DEVICE void async_copy(Lds wave_base, const Element *from, bool live) {
  static_assert(VEC == UNIT);
  const Element *p = live ? from : (const Element *)zeros;
  global_load_lds_x4(p, (TO_SHARED void *)wave_base);
}
TO_DEVICE void async_commit() {}
// Until no more than the last PENDING batches are under way. There are never more than two buffers here.
template <int PENDING> TO_DEVICE void async_wait() {
  static_assert(PENDING == 0);
  s_waitcnt<0x0f70>(); // vmcnt(0), nothing else
}

constexpr int BM = TO_WARP_TILE_M, BN = TO_WARP_TILE_N;
#if TO_DTYPE == TO_FP8
constexpr int BK = TO_WARP_TILE_K / 2; // pairs
static_assert((BM == 16 && BN == 16 && (BK == 16 || BK == 32 || BK == 64)) ||
                  (BM == 32 && BN == 32 && (BK == 8 || BK == 16 || BK == 32)),
              "the matrix unit's blocks of fp8 are 16x16x32, 16x16x64, 16x16x128, 32x32x16, 32x32x32 and 32x32x64");
#elif TO_DTYPE == TO_FP32
constexpr int BK = TO_WARP_TILE_K;
static_assert(BM == 16 && BN == 16 && (BK == 4 || BK == 16),
              "the matrix unit's blocks of fp32 are 16x16x4, and 16x16x16 of four such");
#else
constexpr int BK = TO_WARP_TILE_K;
static_assert((BM == 16 && BN == 16 && (BK == 16 || BK == 32)) || (BM == 32 && BN == 32 && (BK == 8 || BK == 16)) ||
                  (BM * BN == 256 && (BM == 4 || BN == 4) && BK == 16),
              "the matrix unit's blocks are 16x16x16, 16x16x32, 32x32x8, 32x32x16, 4x64x16 and 64x4x16");
#endif
// Sixteen matrices of 4 x 4 at once: they share the four rows (columns) of one operand, and lie side by side in the other.
constexpr bool SIXTEEN = BM == 4 || BN == 4;
constexpr int PER_LANE = SIXTEEN ? 16 : BM * BK / LANES; // elements (pairs) of A, and of B, that a lane holds
constexpr int RUN = 4;                    // neighbours along n in an accumulator

struct TwoVectors {
  U4 low, high;
};
template <int N> struct FragmentOf { using type = Raw<N>; };
template <> struct FragmentOf<16> { using type = TwoVectors; };
using Fragment = FragmentOf<PER_LANE>::type;
struct Acc {
  typedef float V __attribute__((ext_vector_type(BM * BN / LANES)));
  V v;
};

// N neighbours along k of one row. K_CONTIGUOUS: the tile is [rows][COLS of k], else [k][COLS of rows].
template <bool K_CONTIGUOUS, int COLS, int N> TO_DEVICE Raw<N> load_depths(Lds tile, int row, int k) {
  if constexpr (K_CONTIGUOUS) {
    return lds_load<Raw<N>>(tile, lds_index<COLS>(row, k));
  } else {
    Raw<N> f{};
    TO_UNROLL
    for (int j = 0; j < N; ++j) shift_in(f, lds_load<Element>(tile, lds_index<COLS>(k + j, row)));
    return f;
  }
}
// One fragment, of which the block has ROWS rows.
template <bool K_CONTIGUOUS, int COLS, int ROWS> TO_DEVICE Fragment load_fragment(Lds tile, int row, int k) {
  int lane = thread_id() % LANES;
  row += lane % ROWS;
  if constexpr (PER_LANE == 16) {
    // Which depths a lane holds does not matter where A and B do it in the same way: whole vectors, half a block apart.
    if constexpr (!SIXTEEN) k += lane / ROWS * 8;
    return Fragment{load_depths<K_CONTIGUOUS, COLS, 8>(tile, row, k),
                    load_depths<K_CONTIGUOUS, COLS, 8>(tile, row, k + BK / 2)};
  } else {
    return load_depths<K_CONTIGUOUS, COLS, PER_LANE>(tile, row, k + lane / ROWS * PER_LANE);
  }
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_a(Lds tile, int m, int k) {
  return load_fragment<K_CONTIGUOUS, COLS, BM>(tile, m, k);
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_b(Lds tile, int n, int k) {
  return load_fragment<K_CONTIGUOUS, COLS, BN>(tile, n, k);
}

// acc += a * b. The operands change places, so that a lane's accumulators are neighbours along n.
TO_DEVICE void multiply(Acc &acc, Fragment a, Fragment b) {
#if TO_DTYPE == TO_FP8
#if TO_WARP_TILE_M == 16 && TO_WARP_TILE_K == 128
  acc.v = mfma_16x16x128_fp8(b.low, b.high, a.low, a.high, acc.v);
#elif TO_WARP_TILE_M == 32 && TO_WARP_TILE_K == 64
  acc.v = mfma_32x32x64_fp8(b.low, b.high, a.low, a.high, acc.v);
#else
#if TO_WARP_TILE_M == 16
#define TO_MFMA mfma_16x16x32_fp8
#else
#define TO_MFMA mfma_32x32x16_fp8
#endif
#if TO_WARP_TILE_M * TO_WARP_TILE_K == 512
  acc.v = TO_MFMA(b, a, acc.v);
#else
  acc.v = TO_MFMA(U2{b.x, b.y}, U2{a.x, a.y}, acc.v);
  acc.v = TO_MFMA(U2{b.z, b.w}, U2{a.z, a.w}, acc.v);
#endif
#endif
#elif TO_DTYPE == TO_FP32
  // A lane holds neighbours along k; of each instruction's four depths every group of lanes has one.
  TO_UNROLL
  for (int e = 0; e < PER_LANE; ++e) acc.v = mfma_16x16x4_fp32(element(b, e), element(a, e), acc.v);
#else
#if TO_DTYPE == TO_BF16
#define TO_MFMA(shape) mfma_##shape##_bf16
#else
#define TO_MFMA(shape) mfma_##shape##_fp16
#endif
#if TO_WARP_TILE_M == 4 || TO_WARP_TILE_N == 4
  acc.v = TO_MFMA(4x4x4x16)(U2{b.low.x, b.low.y}, U2{a.low.x, a.low.y}, acc.v);
  acc.v = TO_MFMA(4x4x4x16)(U2{b.low.z, b.low.w}, U2{a.low.z, a.low.w}, acc.v);
  acc.v = TO_MFMA(4x4x4x16)(U2{b.high.x, b.high.y}, U2{a.high.x, a.high.y}, acc.v);
  acc.v = TO_MFMA(4x4x4x16)(U2{b.high.z, b.high.w}, U2{a.high.z, a.high.w}, acc.v);
#elif TO_WARP_TILE_M == 16 && TO_WARP_TILE_K == 16
  acc.v = TO_MFMA(16x16x16)(b, a, acc.v);
#elif TO_WARP_TILE_M == 32 && TO_WARP_TILE_K == 8
  acc.v = TO_MFMA(32x32x8)(b, a, acc.v);
#elif TO_WARP_TILE_M == 16
  acc.v = TO_MFMA(16x16x32)(b, a, acc.v);
#else
  acc.v = TO_MFMA(32x32x16)(b, a, acc.v);
#endif
#endif
#undef TO_MFMA
}

// f(m, n, values): RUN neighbours along n, for all that this lane holds of a block.
template <class F> TO_DEVICE void each_run(const Acc &acc, F f) {
  int lane = thread_id() % LANES;
  TO_UNROLL
  for (int r = 0; r < BM * BN / LANES / RUN; ++r) {
    float values[RUN];
    TO_UNROLL
    for (int j = 0; j < RUN; ++j) values[j] = acc.v[r * RUN + j];
    f(lane % BM, r * (RUN * LANES / BM) + lane / BM * RUN, values);
  }
}

// Asks the compiler's scheduler to put READS reads of LDS before every MULTIPLIES products of blocks, which count as one
// matrix instruction each; in fp32 as what they are.
template <int READS, int MULTIPLIES, int GROUPS> TO_DEVICE void interleave_hint() {
  constexpr int INSTRUCTIONS = TO_DTYPE == TO_FP32 ? PER_LANE : 1;
  TO_UNROLL
  for (int g = 0; g < GROUPS; ++g) {
    sched_group<0x100, READS>();
    sched_group<0x008, MULTIPLIES * INSTRUCTIONS>();
  }
}

#else // sm_90

static_assert(TO_DTYPE != TO_FP32, "sm_90's matrix unit multiplies tf32, which is not fp32");
typedef u16 *Lds;
template <class T> TO_DEVICE T lds_load(Lds tile, int index) {
  return *(TO_SHARED const T *)(tile + index);
}
template <class T> TO_DEVICE void lds_store(Lds tile, int index, T x) {
  *(TO_SHARED T *)(tile + index) = x;
}
template <class T> TO_DEVICE T global_load(const u16 *p) {
  in_global(p);
  return *(TO_GLOBAL const T *)p;
}
template <class T> TO_DEVICE void global_store(void *p, T x) {
  in_global(p);
  *(TO_GLOBAL T *)p = x;
}

// One vector, from memory to LDS without passing through registers; zeros where it is not live.
template <int VEC> TO_DEVICE void async_copy(Lds to, const u16 *from, bool live) {
  cp_async<VEC * 2>(to, from, live ? VEC * 2 : 0);
}
TO_DEVICE void async_commit() { cp_async_commit_group(); }
template <int PENDING> TO_DEVICE void async_wait() { cp_async_wait_group<PENDING>(); }

constexpr int BM = 16, BN = 16, BK = 16;
constexpr int RUN = 2;
static_assert(TO_WARP_TILE_M % BM == 0 && TO_WARP_TILE_N % BN == 0 && TO_WARP_TILE_K % BK == 0,
              "warp tiles are made of blocks of 16x16x16");

using Fragment = U4; // A: 16 x 16; B: two blocks of 8 columns
struct Acc {
  F4 low, high; // columns 0-7 and 8-15
};

// K_CONTIGUOUS: the tile is [rows][COLS of k], else [k][COLS of rows]; sixteen rows further on, columns are exchanged
// in the same way, so those go into the address as a constant. A's four 8 x 8 matrices go down m
// first, B's go down k first, as mma.sync wants them.
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_a(Lds tile, int m, int k) {
  int lane = thread_id() % LANES;
  if constexpr (K_CONTIGUOUS)
    return ldmatrix_x4(tile + m * COLS + lds_index<COLS>(lane % 16, k + lane / 16 * 8));
  else
    return ldmatrix_x4_trans(tile + k * COLS + lds_index<COLS>(lane / 16 * 8 + lane % 8, m + lane / 8 % 2 * 8));
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_b(Lds tile, int n, int k) {
  int lane = thread_id() % LANES;
  if constexpr (K_CONTIGUOUS)
    return ldmatrix_x4(tile + n * COLS + lds_index<COLS>(lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
  else
    return ldmatrix_x4_trans(tile + k * COLS + lds_index<COLS>(lane % 16, n + lane / 16 * 8));
}

TO_DEVICE void mma(F4 &c, U4 a, u32 b0, u32 b1) {
#if TO_DTYPE == TO_BF16
  mma_m16n8k16_bf16(c, a, b0, b1);
#else
  mma_m16n8k16_fp16(c, a, b0, b1);
#endif
}
TO_DEVICE void multiply(Acc &acc, Fragment a, Fragment b) {
  mma(acc.low, a, b.x, b.y);
  mma(acc.high, a, b.z, b.w);
}

// f(m, n, values): RUN neighbours along n, for all that this lane holds of a block.
template <class F> TO_DEVICE void each_run(const Acc &acc, F f) {
  int lane = thread_id() % LANES, m = lane / 4, n = lane % 4 * 2;
  float values[4][2] = {
      {acc.low.x, acc.low.y}, {acc.low.z, acc.low.w}, {acc.high.x, acc.high.y}, {acc.high.z, acc.high.w}};
  f(m, n, values[0]);
  f(m + 8, n, values[1]);
  f(m, n + 8, values[2]);
  f(m + 8, n + 8, values[3]);
}

template <int READS, int MULTIPLIES, int GROUPS> TO_DEVICE void interleave_hint() {}

#endif

// ---- division by a number known only at run time ----------------------------------------------------

TO_DEVICE u32 mul_high(u32 a, u32 b) { return (u64)a * b >> 32; }

// Quotients of 31-bit numbers with one multiplication (Granlund and Montgomery 1994: the multiplier is
// 2^32 + m, rounded up). The last bit of the fp64 quotient does not matter: 31-bit dividends leave room for it.
struct Divisor {
  u32 m, d;
  int shift;

  TO_DEVICE Divisor() {}
  TO_DEVICE explicit Divisor(int divisor) {
    d = divisor < 1 ? 1 : divisor;
    shift = d == 1 ? 0 : 32 - __builtin_clz(d - 1);
    double rest = (double)(((u64)1 << shift) - d) * 4294967296.0;
    m = (u32)(u64)(rest / (double)d) + 1;
  }
  TO_DEVICE int quotient(int n) const { return (mul_high((u32)n, m) + (u32)n) >> shift; }
  // n becomes the remainder.
  TO_DEVICE int split(int &n) const {
    int q = quotient(n);
    n -= q * (int)d;
    return q;
  }
};

TO_DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }

} // namespace to
