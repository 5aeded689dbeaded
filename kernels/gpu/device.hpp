// The device layer: everything that differs between gfx950 (clang's HIP, waves of 64, MFMA) and sm_90
// (clang's CUDA, warps of 32, mma.sync). No vendor's headers.
//
// The matrix unit is seen through blocks of BM x BN x BK: fragments of A and B, read from tiles in LDS, and
// an accumulator. What is one instruction on gfx950 is two m16n8k16 on sm_90.
#pragma once

#if defined(__HIP__)
#define TO_GFX950 1
#define TO_SM90 0
#else
#define TO_GFX950 0
#define TO_SM90 1
#endif

#define TO_DEVICE __attribute__((device, always_inline)) inline
#define TO_UNROLL _Pragma("unroll")
#define TO_ROLLED _Pragma("unroll 1")

#if TO_GFX950
#define TO_SHARED __attribute__((address_space(3)))
#define TO_GLOBAL __attribute__((address_space(1)))
#endif

namespace to {

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float F2 __attribute__((ext_vector_type(2)));
typedef float F4 __attribute__((ext_vector_type(4)));
typedef float F16 __attribute__((ext_vector_type(16)));
typedef u32 U2 __attribute__((ext_vector_type(2)));
typedef u32 U4 __attribute__((ext_vector_type(4)));

// N elements of 16 bits as they lie in memory.
template <int N> struct RawOf;
template <> struct RawOf<1> { using type = u16; };
template <> struct RawOf<2> { using type = u32; };
template <> struct RawOf<4> { using type = U2; };
template <> struct RawOf<8> { using type = U4; };
template <int N> using Raw = typename RawOf<N>::type;

// Moves all elements down by one and puts a new last one in: N calls fill a vector, first element first.
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

#if TO_DTYPE == TO_BF16
typedef __bf16 Elem;
#else
typedef _Float16 Elem;
#endif

// fp32 -> the element type: the one rounding, to nearest even.
TO_DEVICE u16 narrow(float x) { return __builtin_bit_cast(u16, (Elem)x); }
#if TO_SM90
TO_DEVICE u32 narrow2(float low, float high) {
  u32 r;
#if TO_DTYPE == TO_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}
#else
TO_DEVICE u32 narrow2(float low, float high) { return (u32)narrow(low) | (u32)narrow(high) << 16; }
#endif

// ---- where we are -----------------------------------------------------------------------------------

#if TO_GFX950
constexpr int LANES = 64;
TO_DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }
TO_DEVICE int block_x() { return __builtin_amdgcn_workgroup_id_x(); }
TO_DEVICE int block_y() { return __builtin_amdgcn_workgroup_id_y(); }
TO_DEVICE int block_z() { return __builtin_amdgcn_workgroup_id_z(); }
// The dispatch packet holds the grid in threads; to_finish is always launched with 256 of them a block.
TO_DEVICE i64 finish_threads() {
  return ((const __attribute__((address_space(4))) u32 *)__builtin_amdgcn_dispatch_ptr())[3];
}
// The same for all lanes of a wave, and known to be.
TO_DEVICE int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
#else
constexpr int LANES = 32;
TO_DEVICE int thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
TO_DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
TO_DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
TO_DEVICE int block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
TO_DEVICE i64 finish_threads() { return (i64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x(); }
TO_DEVICE int uniform(int x) { return x; }
#endif

// The value of another lane of this wave.
TO_DEVICE int from_lane(int x, int lane) {
#if TO_GFX950
  return __builtin_amdgcn_ds_bpermute(lane * 4, x);
#else
  int r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(r) : "r"(x), "r"(lane));
  return r;
#endif
}
TO_DEVICE const u16 *from_lane(const u16 *p, int lane) {
  u64 x = (u64)p;
  return (const u16 *)((u64)(u32)from_lane((int)(x >> 32), lane) << 32 | (u32)from_lane((int)x, lane));
}
TO_DEVICE bool from_lane(bool x, int lane) { return from_lane((int)x, lane); }

// From here on the compiler does not know what x is: what is computed from it is computed here, not kept in
// registers from before a loop.
TO_DEVICE void forget(int &x) {
#if TO_GFX950
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+r"(x));
#endif
}

// ---- order ------------------------------------------------------------------------------------------

// All threads of the workgroup, and what they wrote to LDS.
TO_DEVICE void barrier() {
#if TO_GFX950
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  __nvvm_bar_sync(0);
#endif
}

// All waves in step, without a promise about memory: between what a wave reads and what it computes.
TO_DEVICE void waves_in_step() {
#if TO_GFX950
  __builtin_amdgcn_sched_barrier(0);
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_sched_barrier(0);
#else
  __nvvm_bar_sync(0);
#endif
}

// What stands before in the source also comes before in the binary. (sm_90: the asm statements keep their order.)
TO_DEVICE void keep_order() {
#if TO_GFX950
  __builtin_amdgcn_sched_barrier(0);
#endif
}

TO_DEVICE void matrix_priority(bool high) {
#if TO_GFX950
  if (high)
    __builtin_amdgcn_s_setprio(1);
  else
    __builtin_amdgcn_s_setprio(0);
#endif
}

// ---- tiles in LDS -----------------------------------------------------------------------------------

// Where element (row, column) of a tile lies. Neighbouring rows put their 16-byte units into different
// banks, so that eight rows of one column, which the matrix unit reads together, never collide.
template <int COLS> TO_DEVICE int lds_index(int row, int column) {
  constexpr int UNITS = COLS / 8;
  int unit = column >> 3;
  if constexpr (UNITS % 8 == 0)
    unit ^= row & 7;
  else if constexpr (UNITS == 4)
    unit ^= row >> 1 & 3;
  else if constexpr (UNITS == 2)
    unit ^= row >> 2 & 1;
  return row * COLS + unit * 8 + (column & 7);
}

#if TO_GFX950

typedef TO_SHARED u16 *Lds;
template <class T> TO_DEVICE T lds_load(Lds tile, int index) { return *(TO_SHARED const T *)(tile + index); }
template <class T> TO_DEVICE void lds_store(Lds tile, int index, T x) { *(TO_SHARED T *)(tile + index) = x; }
template <class T> TO_DEVICE T global_load(const u16 *p) { return *(TO_GLOBAL const T *)p; }
template <class T> TO_DEVICE void global_store(void *p, T x) { *(TO_GLOBAL T *)p = x; }

// 16 bytes of zeros, for lanes that have nothing to copy: a copy into LDS always writes what every lane points to.
__attribute__((device)) const U4 zeros[1] = {U4{0, 0, 0, 0}};

// One vector a lane, from memory to LDS without passing through registers. The hardware writes lane i's
// vector to `wave_base + 16 * i` bytes.
template <int VEC> TO_DEVICE void async_copy(Lds wave_base, const u16 *from, bool live) {
  static_assert(VEC == 8);
  const u16 *p = live ? from : (const u16 *)zeros;
  __builtin_amdgcn_global_load_lds((TO_GLOBAL void *)p, (TO_SHARED void *)wave_base, 16, 0, 0);
}
TO_DEVICE void async_commit() {}
// Until no more than the last PENDING batches are under way. There are never more than two buffers here.
template <int PENDING> TO_DEVICE void async_wait() {
  static_assert(PENDING == 0);
  __builtin_amdgcn_s_waitcnt(0x0f70); // vmcnt(0), nothing else
}

constexpr int BM = TO_WARP_TILE_M, BN = TO_WARP_TILE_N, BK = TO_WARP_TILE_K;
static_assert((BM == 16 && BN == 16 && (BK == 16 || BK == 32)) || (BM == 32 && BN == 32 && (BK == 8 || BK == 16)),
              "the matrix unit's blocks are 16x16x16, 16x16x32, 32x32x8 and 32x32x16");
constexpr int PER_LANE = BM * BK / LANES; // elements of A, and of B, that a lane holds: 4 or 8
constexpr int RUN = 4;                    // neighbours along n in an accumulator

typedef short S4 __attribute__((ext_vector_type(4)));
typedef Elem E4 __attribute__((ext_vector_type(4)));
typedef Elem E8 __attribute__((ext_vector_type(8)));
using Fragment = Raw<PER_LANE>;
struct Acc {
  typedef float V __attribute__((ext_vector_type(BM * BN / LANES)));
  V v;
};

// One fragment. K_CONTIGUOUS: the tile is [rows][COLS of k], else [k][COLS of rows].
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_fragment(Lds tile, int row, int k) {
  int lane = thread_id() % LANES;
  row += lane % BM;
  k += lane / BM * PER_LANE;
  if constexpr (K_CONTIGUOUS) {
    return lds_load<Fragment>(tile, lds_index<COLS>(row, k));
  } else {
    Fragment f{};
    TO_UNROLL
    for (int j = 0; j < PER_LANE; ++j) shift_in(f, lds_load<u16>(tile, lds_index<COLS>(k + j, row)));
    return f;
  }
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_a(Lds tile, int m, int k) {
  return load_fragment<K_CONTIGUOUS, COLS>(tile, m, k);
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_b(Lds tile, int n, int k) {
  return load_fragment<K_CONTIGUOUS, COLS>(tile, n, k);
}

// acc += a * b. The operands change places, so that a lane's accumulators are neighbours along n.
TO_DEVICE void multiply(Acc &acc, Fragment a, Fragment b) {
#if TO_DTYPE == TO_BF16
#if TO_WARP_TILE_M == 16 && TO_WARP_TILE_K == 16
  acc.v = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(S4, b), __builtin_bit_cast(S4, a), acc.v, 0, 0, 0);
#elif TO_WARP_TILE_M == 32 && TO_WARP_TILE_K == 8
  acc.v = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(S4, b), __builtin_bit_cast(S4, a), acc.v, 0, 0, 0);
#elif TO_WARP_TILE_M == 16
  acc.v = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(E8, b), __builtin_bit_cast(E8, a), acc.v, 0, 0, 0);
#else
  acc.v = __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(E8, b), __builtin_bit_cast(E8, a), acc.v, 0, 0, 0);
#endif
#else
#if TO_WARP_TILE_M == 16 && TO_WARP_TILE_K == 16
  acc.v = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(E4, b), __builtin_bit_cast(E4, a), acc.v, 0, 0, 0);
#elif TO_WARP_TILE_M == 32 && TO_WARP_TILE_K == 8
  acc.v = __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(E4, b), __builtin_bit_cast(E4, a), acc.v, 0, 0, 0);
#elif TO_WARP_TILE_M == 16
  acc.v = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(E8, b), __builtin_bit_cast(E8, a), acc.v, 0, 0, 0);
#else
  acc.v = __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(E8, b), __builtin_bit_cast(E8, a), acc.v, 0, 0, 0);
#endif
#endif
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

// Asks the compiler's scheduler to put READS reads of LDS before every MULTIPLIES matrix instructions.
template <int READS, int MULTIPLIES, int GROUPS> TO_DEVICE void interleave_hint() {
  TO_UNROLL
  for (int g = 0; g < GROUPS; ++g) {
    __builtin_amdgcn_sched_group_barrier(0x100, READS, 0);
    __builtin_amdgcn_sched_group_barrier(0x008, MULTIPLIES, 0);
  }
}

#else // sm_90

typedef u16 *Lds;
TO_DEVICE u32 shared_address(const u16 *p) { return (u32)(u64)(__attribute__((address_space(3))) const u16 *)p; }
template <class T> TO_DEVICE T lds_load(Lds tile, int index) {
  return *(__attribute__((address_space(3))) const T *)(tile + index);
}
template <class T> TO_DEVICE void lds_store(Lds tile, int index, T x) {
  *(__attribute__((address_space(3))) T *)(tile + index) = x;
}
template <class T> TO_DEVICE T global_load(const u16 *p) { return *(__attribute__((address_space(1))) const T *)p; }
template <class T> TO_DEVICE void global_store(void *p, T x) { *(__attribute__((address_space(1))) T *)p = x; }

// One vector, from memory to LDS without passing through registers; zeros where it is not live.
template <int VEC> TO_DEVICE void async_copy(Lds to, const u16 *from, bool live) {
  u32 bytes = live ? VEC * 2 : 0;
  if constexpr (VEC == 8)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
                 "n"(VEC * 2)
                 : "memory");
}
TO_DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> TO_DEVICE void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

constexpr int BM = 16, BN = 16, BK = 16;
constexpr int RUN = 2;
static_assert(TO_WARP_TILE_M % BM == 0 && TO_WARP_TILE_N % BN == 0 && TO_WARP_TILE_K % BK == 0,
              "warp tiles are made of blocks of 16x16x16");

using Fragment = U4; // A: 16 x 16; B: two blocks of 8 columns
struct Acc {
  F4 low, high; // columns 0-7 and 8-15
};

TO_DEVICE U4 read_matrices(const u16 *p) {
  U4 f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
               : "r"(shared_address(p))
               : "memory");
  return f;
}
TO_DEVICE U4 read_matrices_transposed(const u16 *p) {
  U4 f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
               : "r"(shared_address(p))
               : "memory");
  return f;
}

// K_CONTIGUOUS: the tile is [rows][COLS of k], else [k][COLS of rows]; sixteen rows further on, columns are exchanged
// in the same way, so those go into the address as a constant. A's four 8 x 8 matrices go down m
// first, B's go down k first, as mma.sync wants them.
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_a(Lds tile, int m, int k) {
  int lane = thread_id() % LANES;
  if constexpr (K_CONTIGUOUS)
    return read_matrices(tile + m * COLS + lds_index<COLS>(lane % 16, k + lane / 16 * 8));
  else
    return read_matrices_transposed(tile + k * COLS + lds_index<COLS>(lane / 16 * 8 + lane % 8, m + lane / 8 % 2 * 8));
}
template <bool K_CONTIGUOUS, int COLS> TO_DEVICE Fragment load_b(Lds tile, int n, int k) {
  int lane = thread_id() % LANES;
  if constexpr (K_CONTIGUOUS)
    return read_matrices(tile + n * COLS + lds_index<COLS>(lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
  else
    return read_matrices_transposed(tile + k * COLS + lds_index<COLS>(lane % 16, n + lane / 16 * 8));
}

TO_DEVICE void mma(F4 &c, U4 a, u32 b0, u32 b1) {
#if TO_DTYPE == TO_BF16
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
               : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
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
