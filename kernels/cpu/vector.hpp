// Vectors of fp32, the width that the machine has, and the conversions between them and the element type.
//
// Everything is GNU vector extensions, so the same text makes SSE2, AVX2, AVX-512 and NEON code; single
// instructions that the extensions cannot express are inline assembly behind the macro of their ISA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TO_INLINE static inline __attribute__((always_inline))
#define TO_INLINE_MEMBER inline __attribute__((always_inline))
#define TO_NOINLINE_MEMBER __attribute__((noinline))
#define TO_NOINLINE static __attribute__((noinline, unused))
#if defined(__clang__)
#define TO_UNROLL _Pragma("clang loop unroll(full)")
#define TO_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define TO_UNROLL _Pragma("GCC unroll 64")
#define TO_NO_UNROLL _Pragma("GCC unroll 1")
#endif

extern "C" void *memset(void *, int, size_t);

namespace to {

using i64 = int64_t;

#if defined(__AVX512F__)
constexpr int VW = 16; // lanes of fp32
constexpr int REGISTERS = 32;
#elif defined(__AVX__)
constexpr int VW = 8;
constexpr int REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int VW = 4;
constexpr int REGISTERS = 32;
#else
constexpr int VW = 4;
constexpr int REGISTERS = 16;
#endif

typedef float V __attribute__((vector_size(VW * 4)));
typedef uint32_t U __attribute__((vector_size(VW * 4)));
typedef uint16_t H __attribute__((vector_size(VW * 2)));
typedef uint16_t H2 __attribute__((vector_size(VW * 4))); // as many bytes as V: VW pairs
typedef float VMem __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef uint32_t UMem __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef uint16_t HMem __attribute__((vector_size(VW * 2), aligned(2), may_alias));
typedef uint16_t H2Mem __attribute__((vector_size(VW * 4), aligned(2), may_alias));

#if TO_DTYPE == TO_FP32
using Elem = float;
#else
using Elem = uint16_t;
#endif

#if TO_DTYPE == TO_BF16 && defined(__AVX512BF16__)
constexpr bool DOT = true; // packed panels hold pairs along k for vdpbf16ps
#else
constexpr bool DOT = false;
#endif
constexpr int PK = DOT ? 2 : 1; // elements of k in one 4-byte unit of a packed panel

TO_INLINE i64 min64(i64 a, i64 b) { return a < b ? a : b; }
TO_INLINE i64 max64(i64 a, i64 b) { return a > b ? a : b; }
TO_INLINE i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

template <int... I> struct Seq {};
#if defined(__clang__)
template <class T, T... I> struct SeqOf { using type = Seq<I...>; };
template <int N> using MakeSeq = typename __make_integer_seq<SeqOf, int, N>::type;
#else
template <int N> struct MakeSeqOf { using type = Seq<__integer_pack(N)...>; };
template <int N> using MakeSeq = typename MakeSeqOf<N>::type;
#endif
using Lanes = MakeSeq<VW>;

template <int... I> TO_INLINE V splat_lanes(float x, Seq<I...>) { return V{((void)I, x)...}; }
TO_INLINE V splat(float x) { return splat_lanes(x, Lanes{}); }
template <int... I> TO_INLINE U splat_lanes(uint32_t x, Seq<I...>) { return U{((void)I, x)...}; }
TO_INLINE U splat(uint32_t x) { return splat_lanes(x, Lanes{}); }

TO_INLINE V load_v(const float *p) { return *(const VMem *)p; }
TO_INLINE void store_v(float *p, V v) { *(VMem *)p = v; }
TO_INLINE void store_u(float *p, U v) { *(UMem *)p = v; }

// ---- acc + a * b, of fp32 lanes or of bf16 pairs ----------------------------------------------

TO_INLINE V fma(V acc, V a, V b) { return acc + a * b; }

TO_INLINE V mac(V acc, V a, V b) {
#if TO_DTYPE == TO_BF16 && defined(__AVX512BF16__)
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
#else
  return fma(acc, a, b);
#endif
}

// ---- element -> fp32 --------------------------------------------------------------------------

TO_INLINE U select(U mask, U yes, U no) { return (mask & yes) | (~mask & no); }

TO_INLINE V widen_bf16(H h) { return (V)(__builtin_convertvector(h, U) << 16); }

TO_INLINE V widen_fp16(H h) {
#if defined(__F16C__)
  V v;
  asm("vcvtph2ps %1, %0" : "=v"(v) : "v"(h));
  return v;
#elif defined(__aarch64__)
  typedef __fp16 F __attribute__((vector_size(VW * 2)));
  return __builtin_convertvector((F)h, V);
#else
  U u = __builtin_convertvector(h, U);
  U magnitude = u & 0x7fffu;
  U normal = (magnitude << 13) + splat(112u << 23);
  U special = normal + splat(112u << 23); // infinity and NaN
  typedef int32_t I __attribute__((vector_size(VW * 4)));
  U subnormal = (U)(__builtin_convertvector((I)magnitude, V) * splat(0x1p-24f));
  U value = select((U)(magnitude >= 0x7c00u), special, normal);
  value = select((U)(magnitude < 0x400u), subnormal, value);
  return (V)(value | ((u & 0x8000u) << 16));
#endif
}

TO_INLINE V load(const float *p) { return load_v(p); }
TO_INLINE V load(const uint16_t *p) {
  H h = *(const HMem *)p;
  return TO_DTYPE == TO_BF16 ? widen_bf16(h) : widen_fp16(h);
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
TO_INLINE uint32_t lane_mask(i64 count) { return (uint32_t)(((uint64_t)1 << count) - 1); }
#endif

// The first `count` (0 to VW) elements; zero in the other lanes, whose memory is not touched.
TO_INLINE V load_n(const float *p, i64 count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  V v;
  asm("vmovups %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*(const VMem *)p), "Yk"((uint16_t)lane_mask(count)));
  return v;
#else
  float lanes[VW] = {};
  TO_NO_UNROLL
  for (i64 t = 0; t < count; ++t) lanes[t] = p[t];
  return load_v(lanes);
#endif
}
TO_INLINE H load_halves_n(const uint16_t *p, i64 count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  H h;
  asm("vmovdqu16 %1, %0%{%2%}%{z%}" : "=v"(h) : "m"(*(const HMem *)p), "Yk"(lane_mask(count)));
  return h;
#else
  uint16_t lanes[VW] = {};
  TO_NO_UNROLL
  for (i64 t = 0; t < count; ++t) lanes[t] = p[t];
  return *(const HMem *)lanes;
#endif
}
TO_INLINE V load_n(const uint16_t *p, i64 count) {
  H h = load_halves_n(p, count);
  return TO_DTYPE == TO_BF16 ? widen_bf16(h) : widen_fp16(h);
}

// 2 * VW raw 16-bit elements (fewer: zero beyond `count`).
TO_INLINE H2 load_raw(const uint16_t *p) { return *(const H2Mem *)p; }
TO_INLINE H2 load_raw_n(const uint16_t *p, i64 count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  H2 h;
  asm("vmovdqu16 %1, %0%{%2%}%{z%}" : "=v"(h) : "m"(*(const H2Mem *)p), "Yk"(lane_mask(count)));
  return h;
#else
  uint16_t lanes[2 * VW] = {};
  TO_NO_UNROLL
  for (i64 t = 0; t < count; ++t) lanes[t] = p[t];
  return *(const H2Mem *)lanes;
#endif
}

// VW pairs (low[i], high[i]) as 32-bit units.
TO_INLINE U interleave(H low, H high) {
  return __builtin_convertvector(low, U) | (__builtin_convertvector(high, U) << 16);
}

// ---- fp32 -> element: the one rounding, to nearest even; NaN stays NaN -------------------------

TO_INLINE H narrow_bf16(V v) {
  U u = (U)v;
  U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  U nan = (u >> 16) | 0x40u;
  U result = select((U)((u & 0x7fffffffu) > 0x7f800000u), nan, rounded);
  return __builtin_convertvector(result, H);
}

TO_INLINE H narrow_fp16(V v) {
#if defined(__F16C__)
  H h;
  asm("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(v));
  return h;
#else
  U u = (U)v;
  U sign = (u >> 16) & 0x8000u;
  U magnitude = u & 0x7fffffffu;
  U normal = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - splat(112u << 10);
  // Adding 0.5, whose last bit is worth 2^-24, rounds to fp16's subnormal grid.
  U subnormal = (U)((V)magnitude + splat(0.5f)) - splat(0x3f000000u);
  U result = select((U)(magnitude < 0x38800000u), subnormal, normal);
  result = select((U)(magnitude >= 0x477ff000u), splat(0x7c00u), result);
  result = select((U)(magnitude > 0x7f800000u), splat(0x7e00u), result);
  return __builtin_convertvector(result | sign, H);
#endif
}

TO_INLINE void store(float *p, V v) { store_v(p, v); }
TO_INLINE void store(uint16_t *p, V v) { *(HMem *)p = TO_DTYPE == TO_BF16 ? narrow_bf16(v) : narrow_fp16(v); }

// The first `count` (0 to VW) lanes; no other memory is written.
TO_INLINE void store_n(Elem *p, V v, i64 count) {
  if (count >= VW) {
    store(p, v);
    return;
  }
  Elem lanes[VW];
  store(lanes, v);
  TO_NO_UNROLL
  for (i64 t = 0; t < count; ++t) p[t] = lanes[t];
}

TO_INLINE void store_scalar(Elem *p, float x) {
  Elem lanes[VW];
  store(lanes, splat(x));
  *p = lanes[0];
}

// ---- across lanes -----------------------------------------------------------------------------

template <int S, int... I> TO_INLINE V swap_low(V a, V b, Seq<I...>) {
  return __builtin_shufflevector(a, b, ((I & S) ? I - S + VW : I)...);
}
template <int S, int... I> TO_INLINE V swap_high(V a, V b, Seq<I...>) {
  return __builtin_shufflevector(a, b, ((I & S) ? I + VW : I + S)...);
}
template <int S> TO_INLINE void transpose_step(V (&x)[VW]) {
  TO_UNROLL
  for (int i = 0; i < VW; ++i)
    if (!(i & S)) {
      V a = x[i], b = x[i + S];
      x[i] = swap_low<S>(a, b, Lanes{});
      x[i + S] = swap_high<S>(a, b, Lanes{});
    }
}
// VW x VW units of 32 bits.
TO_INLINE void transpose(V (&x)[VW]) {
  if constexpr (VW > 8) transpose_step<8>(x);
  if constexpr (VW > 4) transpose_step<4>(x);
  transpose_step<2>(x);
  transpose_step<1>(x);
}

template <int S, int... I> TO_INLINE V rotate(V a, Seq<I...>) {
  return __builtin_shufflevector(a, a, ((I + S) % VW)...);
}
TO_INLINE float sum_lanes(V v) {
  if constexpr (VW > 8) v += rotate<VW / 2>(v, Lanes{});
  if constexpr (VW > 4) v += rotate<VW >= 8 ? 4 : 1>(v, Lanes{});
  v += rotate<2>(v, Lanes{});
  v += rotate<1>(v, Lanes{});
  return v[0];
}

} // namespace to
