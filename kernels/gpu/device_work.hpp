// What the harness itself does on a GPU: inputs, the reference result, comparison. For gfx950 (HIP) and sm_90
// (CUDA), without any vendor's headers. harness/target/gpu_device.py launches these kernels: blocks of 256
// threads, as many as are useful, all loops strided by the grid.
//
//     to_fill_integers, to_fill_pattern   inputs (harness/measure/check_data.py says why just these)
//     to_scale, to_negate                 other inputs, and what must come of them (device/factors.py)
//     to_reference, to_reference_long     the convolution by its definition, accumulated in fp32
//     to_product, to_product_long,
//     to_product_tiles                    the same of a GEMM
//     to_compare, to_within,
//     to_count_other                      a verdict in device memory
//     to_stamp                            the time by another clock than the events'
#pragma once

#if defined(__AMDGCN__)
#define TO_ON_AMD 1
#elif defined(__NVPTX__)
#define TO_ON_AMD 0
#endif

#if defined(TO_INSTRUCTIONS) // an emulation's
#include TO_INSTRUCTIONS
#define TO_WORK_DEVICE
#elif defined(__NVCC__)
#include "instructions_sm90.hpp"
#define TO_WORK_DEVICE __attribute__((device))
#endif

#if defined(TO_DEVICE) // then the instructions have names, in namespace to
#define TO_WORK_KERNEL extern "C" TO_KERNEL(256)
#define TO_WORK_SHARED TO_LDS_VARIABLE
#elif defined(__AMDGCN__) || defined(__NVPTX__)
#define TO_WORK_KERNEL extern "C" __attribute__((global)) void
#define TO_WORK_DEVICE __attribute__((device))
#define TO_WORK_SHARED static __attribute__((shared))
#endif

#if defined(TO_WORK_KERNEL)

#define TO_WORK_INLINE static inline TO_WORK_DEVICE __attribute__((always_inline))

namespace to_work {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum Dtype { BF16 = 0, FP16 = 1, FP32 = 2, FP8 = 3 };
constexpr u32 kThreads = 256;

// Extents in elements; C and K are totals over the groups; depth members are 1 (pad: 0) in 2D.
struct Convolution {
  const void *in0, *in1;
  void *out;
  int direction;  // 0 forward, 1 bwd_data, 2 bwd_weight
  int dtype;
  int N, C, K, G;
  int Di, Hi, Wi;
  int Z, Y, X;
  int Do, Ho, Wo;
  int stride_d, stride_h, stride_w;
  int pad_d, pad_h, pad_w;
  int dilation_d, dilation_h, dilation_w;
};

// C = A B, C by rows. Elements from one row of A to the next, from one depth to the next, and so of B.
struct Product {
  const void *a, *b;
  void *c;
  long long a_row, a_depth, b_depth, b_column;
  int M, N, K;
  int dtype, result_dtype;
};

// One operand of the pattern `mantissa`. Magnitudes run from least to most, or evenly from -most to most where least
// is 0; signs are at random. An element at position p = (i / inner) % extent with extent / 2 <= p < 2 * (extent / 2)
// repeats the one extent / 2 before it, times fold_sign (0: does not), plus -1, 0 or 1 where fold_sign is negative.
// Column i / (column_inner * depth) * column_inner + i % column_inner has but one element that is not zero, between
// one_least and one_most, if it is even (selected: 1) or in any case (2).
struct Pattern {
  long long inner, extent, column_inner, depth;
  int least, most, one_least, one_most;
  int fold_sign, selected;
  float scale;
  int dtype;
};

// A tensor as four axes. The element at (a, b, c, d) has the numbers sum(place * one) and sum(place * other) in two
// vectors of factors. Exponents run over `span` numbers from `least` on, which the first two of a vector are the ends
// of; those of `other` are subtracted if `inverse`. Signs are at random but for number 0, which has one_first and
// other_first.
struct Factors {
  long long extents[4], one[4], other[4];
  unsigned long long one_seed, other_seed;
  int one_least, one_span, other_least, other_span, inverse, one_first, other_first, dtype;
};

// Zeroed before each comparison; `first` starts at the largest number.
struct Verdict {
  u64 wrong;      // values that differ
  u64 first;      // the lowest index of one
  u64 unwritten;  // values that still are the poison: all bits set
  u64 nan;        // other NaN
};

#if defined(TO_DEVICE)
TO_WORK_INLINE u32 thread() { return to::thread_id(); }
TO_WORK_INLINE u32 block() { return to::block_x(); }
TO_WORK_INLINE u32 blocks() { return (u32)(to::grid_threads() / kThreads); }
TO_WORK_INLINE void barrier() { to::workgroup_barrier(); }
#else
TO_WORK_INLINE u32 thread() {
#if TO_ON_AMD
  return __builtin_amdgcn_workitem_id_x();
#else
  return (u32)__nvvm_read_ptx_sreg_tid_x();
#endif
}
TO_WORK_INLINE u32 block() {
#if TO_ON_AMD
  return __builtin_amdgcn_workgroup_id_x();
#else
  return (u32)__nvvm_read_ptx_sreg_ctaid_x();
#endif
}
TO_WORK_INLINE u32 blocks() {
#if TO_ON_AMD
  return __builtin_amdgcn_grid_size_x() / kThreads;
#else
  return (u32)__nvvm_read_ptx_sreg_nctaid_x();
#endif
}
TO_WORK_INLINE void barrier() {
#if TO_ON_AMD
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_waitcnt(0xc07f); // lgkmcnt(0): see instructions_gfx950.hpp
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
  __nvvm_bar_sync(0);
#endif
}
#endif
#if defined(TO_INSTRUCTIONS)
TO_WORK_INLINE u64 clock() { return 0; }
#elif defined(__AMDGCN__)
TO_WORK_INLINE u64 clock() { return __builtin_amdgcn_s_memrealtime(); }
#else
TO_WORK_INLINE u64 clock() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
#endif
TO_WORK_INLINE i64 first_index() { return (i64)block() * kThreads + thread(); }
TO_WORK_INLINE i64 grid_stride() { return (i64)blocks() * kThreads; }

TO_WORK_INLINE u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }
TO_WORK_INLINE float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }

// To the nearest, ties to even.
TO_WORK_INLINE u16 to_bf16(float value) {
  u32 bits = bits_of(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0u; // NaN
  return (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

template <int dtype> struct Stored;
template <> struct Stored<BF16> {
  typedef u16 type;
  static TO_WORK_DEVICE u16 encode(float value) { return to_bf16(value); }
  static TO_WORK_DEVICE float decode(u16 bits) { return float_of((u32)bits << 16); }
};
template <> struct Stored<FP16> {
  typedef u16 type;
#if defined(__NVCC__)
  static TO_WORK_DEVICE u16 encode(float value) { return to::round_to_fp16(value); }
  static TO_WORK_DEVICE float decode(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#else
  static TO_WORK_DEVICE u16 encode(float value) { return __builtin_bit_cast(u16, (_Float16)value); }
  static TO_WORK_DEVICE float decode(u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }
#endif
};
template <> struct Stored<FP32> {
  typedef u32 type;
  static TO_WORK_DEVICE u32 encode(float value) { return bits_of(value); }
  static TO_WORK_DEVICE float decode(u32 bits) { return float_of(bits); }
};

// OCP's e4m3: no infinities, all exponents and mantissas but NaN are numbers.
template <> struct Stored<FP8> {
  typedef u8 type;
  // To the nearest, ties to even; the largest number where it is beyond.
  static TO_WORK_DEVICE u8 encode(float value) {
    u32 bits = bits_of(value), sign = bits >> 24 & 0x80u;
    float size = float_of(bits & 0x7FFFFFFFu);
    if (size >= 464.0f) return (u8)(sign | 0x7Eu);
    // Adding a number whose last place is the result's, 2^-9, rounds to it.
    if (size < 0.015625f) return (u8)(sign | (bits_of(size + 16384.0f) & 0xFu));
    u32 rounded = bits_of(size) + 0x7FFFFu + (bits_of(size) >> 20 & 1u);
    return (u8)(sign | (rounded >> 20) - (120u << 3));
  }
  static TO_WORK_DEVICE float decode(u8 bits) {
    u32 sign = (u32)(bits & 0x80u) << 24, exponent = bits >> 3 & 15u, mantissa = bits & 7u;
    if ((bits & 0x7Fu) == 0x7Fu) return float_of(0x7FC00000u);
    if (exponent) return float_of(sign | (exponent + 120u) << 23 | mantissa << 20);
    float small = (float)mantissa * 0.001953125f;
    return sign ? -small : small;
  }
};

// The finaliser of splitmix64: equal (seed, index) give equal numbers on every device.
TO_WORK_INLINE u64 mix(u64 seed, u64 index) {
  u64 z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Of a number of 64 bits that many threads change at once, in any order.
#if defined(__NVCC__)
#define TO_WORK_ADD(to, value) asm volatile("red.relaxed.sys.add.u64 [%0], %1;" ::"l"(&(to)), "l"(value) : "memory")
#define TO_WORK_LOWER(to, value) asm volatile("red.relaxed.sys.min.u64 [%0], %1;" ::"l"(&(to)), "l"(value) : "memory")
#else
#define TO_WORK_ADD(to, value) __atomic_fetch_add(&(to), value, __ATOMIC_RELAXED)
#define TO_WORK_LOWER(to, value) __atomic_fetch_min(&(to), value, __ATOMIC_RELAXED)
#endif

TO_WORK_INLINE void store(void *out, i64 at, int dtype, float value) {
  if (dtype == BF16) ((u16 *)out)[at] = Stored<BF16>::encode(value);
  else if (dtype == FP16) ((u16 *)out)[at] = Stored<FP16>::encode(value);
  else if (dtype == FP8) ((u8 *)out)[at] = Stored<FP8>::encode(value);
  else ((float *)out)[at] = value;
}

TO_WORK_INLINE float fetch(const void *from, i64 at, int dtype) {
  if (dtype == BF16) return Stored<BF16>::decode(((const u16 *)from)[at]);
  if (dtype == FP16) return Stored<FP16>::decode(((const u16 *)from)[at]);
  if (dtype == FP8) return Stored<FP8>::decode(((const u8 *)from)[at]);
  return ((const float *)from)[at];
}

// One product's indices: which value of each operand the step `r` of output value `at` multiplies.
// forward: steps run over (z, y, x, c); bwd_data: (z, y, x, k); bwd_weight: (n, d, h, w) of the output image.
template <int direction> struct Walk;

template <> struct Walk<0> {
  const Convolution &p;
  int c, k;
  i64 n, od, oh, ow, g, channel;
  TO_WORK_DEVICE Walk(const Convolution &p_, i64 at) : p(p_), c(p_.C / p_.G), k(p_.K / p_.G) {
    channel = at % k, at /= k;
    g = at % p.G, at /= p.G;
    ow = at % p.Wo, at /= p.Wo;
    oh = at % p.Ho, at /= p.Ho;
    od = at % p.Do, n = at / p.Do;
  }
  TO_WORK_DEVICE int rows() const { return p.Z * p.Y * p.X; }
  TO_WORK_DEVICE int columns() const { return c; }
  // Where a row of products begins in both operands and how far apart its values are; false: all zero.
  TO_WORK_DEVICE bool row(int tap, i64 &first, i64 &second, i64 &step0, i64 &step1) const {
    int x = tap % p.X, y = tap / p.X % p.Y, z = tap / p.X / p.Y;
    i64 d = od * p.stride_d - p.pad_d + (i64)z * p.dilation_d;
    i64 h = oh * p.stride_h - p.pad_h + (i64)y * p.dilation_h;
    i64 w = ow * p.stride_w - p.pad_w + (i64)x * p.dilation_w;
    if (d < 0 || d >= p.Di || h < 0 || h >= p.Hi || w < 0 || w >= p.Wi) return false;
    first = ((((n * p.Di + d) * p.Hi + h) * p.Wi + w) * p.G + g) * c;
    second = ((g * k + channel) * rows() + tap) * c;
    step0 = step1 = 1;
    return true;
  }
};

template <> struct Walk<1> {
  const Convolution &p;
  int c, k;
  i64 n, id, ih, iw, g, channel;
  TO_WORK_DEVICE Walk(const Convolution &p_, i64 at) : p(p_), c(p_.C / p_.G), k(p_.K / p_.G) {
    channel = at % c, at /= c;
    g = at % p.G, at /= p.G;
    iw = at % p.Wi, at /= p.Wi;
    ih = at % p.Hi, at /= p.Hi;
    id = at % p.Di, n = at / p.Di;
  }
  TO_WORK_DEVICE int rows() const { return p.Z * p.Y * p.X; }
  TO_WORK_DEVICE int columns() const { return k; }
  TO_WORK_DEVICE bool row(int tap, i64 &first, i64 &second, i64 &step0, i64 &step1) const {
    int x = tap % p.X, y = tap / p.X % p.Y, z = tap / p.X / p.Y;
    i64 d = id + p.pad_d - (i64)z * p.dilation_d;
    i64 h = ih + p.pad_h - (i64)y * p.dilation_h;
    i64 w = iw + p.pad_w - (i64)x * p.dilation_w;
    if (d < 0 || h < 0 || w < 0 || d % p.stride_d || h % p.stride_h || w % p.stride_w) return false;
    d /= p.stride_d, h /= p.stride_h, w /= p.stride_w;
    if (d >= p.Do || h >= p.Ho || w >= p.Wo) return false;
    first = ((((n * p.Do + d) * p.Ho + h) * p.Wo + w) * p.G + g) * k;
    second = (g * k * rows() + tap) * c + channel;
    step0 = 1, step1 = (i64)rows() * c;
    return true;
  }
};

template <> struct Walk<2> {
  const Convolution &p;
  int c, k;
  i64 z, y, x, g, channel, filter;
  TO_WORK_DEVICE Walk(const Convolution &p_, i64 at) : p(p_), c(p_.C / p_.G), k(p_.K / p_.G) {
    channel = at % c, at /= c;
    x = at % p.X, at /= p.X;
    y = at % p.Y, at /= p.Y;
    z = at % p.Z, at /= p.Z;
    filter = at % k, g = at / k;
  }
  // A row of products is a row of the output image, cut to what lies inside the input.
  TO_WORK_DEVICE int rows() const { return p.N * p.Do * p.Ho; }
  TO_WORK_DEVICE int columns() const { return p.Wo; }
  TO_WORK_DEVICE bool row(int at, i64 &first, i64 &second, i64 &step0, i64 &step1) const {
    int oh = at % p.Ho, od = at / p.Ho % p.Do, n = at / p.Ho / p.Do;
    i64 d = (i64)od * p.stride_d - p.pad_d + z * p.dilation_d;
    i64 h = (i64)oh * p.stride_h - p.pad_h + y * p.dilation_h;
    if (d < 0 || d >= p.Di || h < 0 || h >= p.Hi) return false;
    i64 w = x * p.dilation_w - p.pad_w;
    step0 = (i64)p.stride_w * p.C, step1 = p.K;
    first = ((((i64)n * p.Di + d) * p.Hi + h) * p.Wi + w) * p.C + g * c + channel;
    second = (((i64)n * p.Do + od) * p.Ho + oh) * p.Wo * p.K + g * k + filter;
    return true;
  }
  TO_WORK_DEVICE bool inside(int ow) const {
    i64 w = (i64)ow * p.stride_w - p.pad_w + x * p.dilation_w;
    return w >= 0 && w < p.Wi;
  }
};

template <int direction> TO_WORK_INLINE bool inside(const Walk<direction> &, int) { return true; }
template <> inline TO_WORK_DEVICE bool inside<2>(const Walk<2> &walk, int column) { return walk.inside(column); }

// The sum of every `lanes`-th product of one output value, beginning with product `lane`.
template <int direction, int dtype>
TO_WORK_INLINE float sum_products(const Convolution &p, i64 at, u32 lane, u32 lanes) {
  typedef typename Stored<dtype>::type T;
  const T *in0 = (const T *)p.in0, *in1 = (const T *)p.in1;
  Walk<direction> walk(p, at);
  float sum = 0;
  int rows = walk.rows(), columns = walk.columns();
  // Lanes share a row's columns when a row is long, else they take rows of their own.
  bool by_column = (u32)columns >= lanes;
  int row_from = by_column ? 0 : (int)lane, row_step = by_column ? 1 : (int)lanes;
  int column_from = by_column ? (int)lane : 0, column_step = by_column ? (int)lanes : 1;
  for (int row = row_from; row < rows; row += row_step) {
    i64 first, second, step0, step1;
    if (!walk.row(row, first, second, step0, step1)) continue;
#pragma unroll 4
    for (int column = column_from; column < columns; column += column_step)
      if (inside<direction>(walk, column))
        sum += Stored<dtype>::decode(in0[first + column * step0]) * Stored<dtype>::decode(in1[second + column * step1]);
  }
  return sum;
}

template <int direction>
TO_WORK_INLINE float sum_products_of(const Convolution &p, i64 at, u32 lane, u32 lanes) {
  if (p.dtype == BF16) return sum_products<direction, BF16>(p, at, lane, lanes);
  if (p.dtype == FP16) return sum_products<direction, FP16>(p, at, lane, lanes);
  return sum_products<direction, FP32>(p, at, lane, lanes);
}

TO_WORK_INLINE float value_of(const Convolution &p, i64 at, u32 lane, u32 lanes) {
  if (p.direction == 0) return sum_products_of<0>(p, at, lane, lanes);
  if (p.direction == 1) return sum_products_of<1>(p, at, lane, lanes);
  return sum_products_of<2>(p, at, lane, lanes);
}

// Every `lanes`-th product of value `at` of C, beginning with product `lane`.
template <int dtype> TO_WORK_INLINE float sum_depths(const Product &p, i64 at, u32 lane, u32 lanes) {
  typedef typename Stored<dtype>::type T;
  const T *a = (const T *)p.a + at / p.N * p.a_row, *b = (const T *)p.b + at % p.N * p.b_column;
  float sum = 0;
#pragma unroll 4
  for (i64 k = lane; k < p.K; k += lanes) sum += Stored<dtype>::decode(a[k * p.a_depth]) * Stored<dtype>::decode(b[k * p.b_depth]);
  return sum;
}
TO_WORK_INLINE float value_of(const Product &p, i64 at, u32 lane, u32 lanes) {
  if (p.dtype == BF16) return sum_depths<BF16>(p, at, lane, lanes);
  if (p.dtype == FP16) return sum_depths<FP16>(p, at, lane, lanes);
  if (p.dtype == FP8) return sum_depths<FP8>(p, at, lane, lanes);
  return sum_depths<FP32>(p, at, lane, lanes);
}
TO_WORK_INLINE i64 values(const Product &p) { return (i64)p.M * p.N; }

TO_WORK_INLINE i64 values(const Convolution &p) {
  if (p.direction == 0) return (i64)p.N * p.Do * p.Ho * p.Wo * p.K;
  if (p.direction == 1) return (i64)p.N * p.Di * p.Hi * p.Wi * p.C;
  return (i64)p.K * p.Z * p.Y * p.X * (p.C / p.G);
}

} // namespace to_work

// Integers from -amplitude to amplitude; only the fraction kept / 2^32 of them, the others 0 (2^32: all).
TO_WORK_KERNEL to_fill_integers(void *out, long long count, unsigned long long seed, long long amplitude,
                                unsigned long long kept, int dtype, float scale) {
  using namespace to_work;
  for (i64 i = first_index(); i < count; i += grid_stride()) {
    u64 random = mix(seed, (u64)i);
    i64 value = (i64)((u32)(random >> 32) % (u32)(2 * amplitude + 1)) - amplitude;
    store(out, i, dtype, (random & 0xFFFFFFFFull) < kept ? (float)value * scale : 0.0f);
  }
}

namespace to_work {
TO_WORK_INLINE i64 magnitude(u64 random, int least, int most) {
  if (least == 0) return (i64)((u32)(random >> 33) % (u32)(2 * most + 1)) - most;
  i64 value = least + (i64)((u32)(random >> 33) % (u32)(most - least + 1));
  return random & 1 ? value : -value;
}

TO_WORK_INLINE i64 pattern_value(const Pattern &p, u64 seed, i64 i) {
  if (p.selected) {
    i64 column = i / (p.column_inner * p.depth) * p.column_inner + i % p.column_inner;
    if (p.selected == 2 || column % 2 == 0) {
      u64 random = mix(~seed, (u64)column);
      bool here = (i64)((random >> 1) % (u64)p.depth) == i / p.column_inner % p.depth;
      return here ? magnitude(mix(seed, (u64)i), p.one_least, p.one_most) : 0;
    }
  }
  i64 half = p.extent / 2, position = i / p.inner % p.extent;
  if (!p.fold_sign || position < half || position >= 2 * half) return magnitude(mix(seed, (u64)i), p.least, p.most);
  i64 value = p.fold_sign * magnitude(mix(seed, (u64)(i - half * p.inner)), p.least, p.most);
  return p.fold_sign < 0 ? value + (i64)((mix(seed, (u64)i) >> 33) % 3) - 1 : value;
}

TO_WORK_INLINE int exponent(u64 seed, int least, int span, i64 number) {
  return number < 2 ? least + (number ? span - 1 : 0) : least + (int)((u32)(mix(seed, (u64)number) >> 33) % (u32)span);
}
// By murmur's finaliser of 32 bits: this runs before every batch of timed runs, for each element.
TO_WORK_INLINE bool negated(u64 seed, int first, i64 number) {
  u32 bits = ((u32)seed ^ (u32)number * 0x9E3779B9u) + (u32)(seed >> 32);
  bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
  bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
  return number ? bits >> 16 & 1 : first;
}

template <class Number> TO_WORK_INLINE void numbers_in(const Factors &f, Number i, i64 &one, i64 &other) {
#pragma unroll
  for (int axis = 3; axis >= 0; --axis) {
    if (f.extents[axis] == 1) continue;
    const Number next = i / (Number)f.extents[axis];
    const i64 place = (i64)(i - next * (Number)f.extents[axis]);
    one += place * f.one[axis], other += place * f.other[axis];
    i = next;
  }
}
// Whether 64 bits must be divided, which takes several times as long as 32.
TO_WORK_INLINE bool is_long(const Factors &f, i64 i) {
  return (i | f.extents[0] | f.extents[1] | f.extents[2] | f.extents[3]) >> 32;
}
TO_WORK_INLINE void numbers(const Factors &f, i64 i, i64 &one, i64 &other) {
  one = other = 0;
  if (is_long(f, i)) numbers_in<u64>(f, (u64)i, one, other);
  else numbers_in<u32>(f, (u32)i, one, other);
}

// The value of a result that stands for the i-th of some that lie in even strides.
TO_WORK_INLINE i64 sampled(i64 i, i64 stride) { return stride == 1 ? i : i * stride + (i64)(mix(11, (u64)i) % (u64)stride); }
} // namespace to_work

TO_WORK_KERNEL to_fill_pattern(void *out, long long count, unsigned long long seed, to_work::Pattern pattern) {
  using namespace to_work;
  for (i64 i = first_index(); i < count; i += grid_stride())
    store(out, i, pattern.dtype, (float)pattern_value(pattern, seed, i) * pattern.scale);
}

// Each value times two powers of two, none of which it loses a bit by.
TO_WORK_KERNEL to_scale(void *values, long long count, to_work::Factors f) {
  using namespace to_work;
  for (i64 i = first_index(); i < count; i += grid_stride()) {
    i64 one, other;
    numbers(f, i, one, other);
    int power = exponent(f.other_seed, f.other_least, f.other_span, other);
    power = exponent(f.one_seed, f.one_least, f.one_span, one) + (f.inverse ? -power : power);
    store(values, i, f.dtype, fetch(values, i, f.dtype) * float_of((u32)(127 + power) << 23));
  }
}

namespace to_work {
struct alignas(16) Chunk {
  u32 words[4];
};

template <class Word> TO_WORK_INLINE void negate_one(const Factors &f, Word *values, i64 i) {
  i64 one, other;
  numbers(f, i, one, other);
  if (negated(f.one_seed, f.one_first, one) != negated(f.other_seed, f.other_first, other))
    values[i] ^= (Word)((Word)1 << (8 * sizeof(Word) - 1));
}

// A chunk that begins with element i and ends in the same row: one division for all, one hash for a factor that the
// row shares.
template <class Word> TO_WORK_INLINE void negate_chunk(const Factors &f, Word *values, i64 i) {
  i64 one, other;
  numbers(f, i, one, other);
  bool by_one = negated(f.one_seed, f.one_first, one), by_other = negated(f.other_seed, f.other_first, other);
  Chunk chunk = *(const Chunk *)(values + i);
#pragma unroll
  for (u32 at = 0; at < sizeof(Chunk) / sizeof(Word); ++at) {
    chunk.words[at * sizeof(Word) / 4] ^= (u32)(by_one != by_other) << (8 * sizeof(Word) * (at + 1) - 1) % 32;
    if (f.one[3]) by_one = negated(f.one_seed, f.one_first, one += f.one[3]);
    if (f.other[3]) by_other = negated(f.other_seed, f.other_first, other += f.other[3]);
  }
  *(Chunk *)(values + i) = chunk;
}

template <class Word> TO_WORK_INLINE void negate(const Factors &f, Word *values, i64 count) {
  constexpr i64 kEach = sizeof(Chunk) / sizeof(Word);
  const bool aligned = (u64)values % sizeof(Chunk) == 0;
  for (i64 i = first_index() * kEach; i < count; i += grid_stride() * kEach) {
    const i64 place = is_long(f, i) ? i % f.extents[3] : (i64)((u32)i % (u32)f.extents[3]);
    if (aligned && place + kEach <= f.extents[3]) negate_chunk(f, values, i);
    else
      for (i64 at = i; at < i + kEach && at < count; ++at) negate_one(f, values, at);
  }
}
} // namespace to_work

// Half of the rows, columns and depths, at random. It runs before every batch of timed runs: as fast as memory.
TO_WORK_KERNEL to_negate(void *values, long long count, to_work::Factors f) {
  using namespace to_work;
  if (f.dtype == FP32) negate(f, (u32 *)values, count);
  else if (f.dtype == FP8) negate(f, (u8 *)values, count);
  else negate(f, (u16 *)values, count);
}

// One thread an output value.
TO_WORK_KERNEL to_reference(to_work::Convolution p, long long count, long long stride) {
  using namespace to_work;
  for (i64 i = first_index(); i < count; i += grid_stride())
    store(p.out, i, p.dtype, value_of(p, sampled(i, stride), 0, 1));
}

// One block an output value: for few values of many products.
namespace to_work {
template <class Problem>
TO_WORK_INLINE void sum_by_blocks(const Problem &p, void *out, int dtype, i64 count, i64 stride) {
  TO_WORK_SHARED float partial[kThreads];
  u32 lane = thread();
  for (i64 i = block(); i < count; i += blocks()) {
    partial[lane] = value_of(p, sampled(i, stride), lane, kThreads);
    barrier();
    for (u32 half = kThreads / 2; half; half /= 2) {
      if (lane < half) partial[lane] += partial[lane + half];
      barrier();
    }
    if (lane == 0) store(out, i, dtype, partial[0]);
    barrier();
  }
}
} // namespace to_work

TO_WORK_KERNEL to_reference_long(to_work::Convolution p, long long count, long long stride) {
  to_work::sum_by_blocks(p, p.out, p.dtype, count, stride);
}

TO_WORK_KERNEL to_product(to_work::Product p, long long count, long long stride) {
  using namespace to_work;
  for (i64 i = first_index(); i < count; i += grid_stride())
    store(p.c, i, p.result_dtype, value_of(p, sampled(i, stride), 0, 1));
}
TO_WORK_KERNEL to_product_long(to_work::Product p, long long count, long long stride) {
  to_work::sum_by_blocks(p, p.c, p.result_dtype, count, stride);
}

namespace to_work {
constexpr u32 kTile = 128, kRow = kTile + 1, kDepth = 16, kEach = 8; // kRow: neighbours in depth lie in different banks

// A slice of an operand, kDepth x kTile, from `first` on; zeros beyond its ends. Neighbouring threads read neighbours.
TO_WORK_INLINE void load_slice(float (&slice)[kDepth][kRow], const void *from, int dtype, i64 first, i64 extent,
                               i64 step, i64 depth, i64 deepest, i64 depth_step) {
  for (u32 i = thread(); i < kDepth * kTile; i += kThreads) {
    u32 k = depth_step == 1 ? i % kDepth : i / kTile, m = depth_step == 1 ? i / kDepth : i % kTile;
    bool there = first + m < extent && depth + k < deepest;
    slice[k][m] = there ? fetch(from, (first + m) * step + (depth + k) * depth_step, dtype) : 0.0f;
  }
}
} // namespace to_work

// All values, for large results: a block sums kTile x kTile of them in fp32, each in the order of the depth.
TO_WORK_KERNEL to_product_tiles(to_work::Product p) {
  using namespace to_work;
  TO_WORK_SHARED float a[kDepth][kRow], b[kDepth][kRow];
  i64 across = (p.N + kTile - 1) / kTile, tiles = (p.M + kTile - 1) / kTile * across;
  u32 row = thread() / (kTile / kEach), column = thread() % (kTile / kEach);
  for (i64 tile = block(); tile < tiles; tile += blocks()) {
    i64 m = tile / across * kTile, n = tile % across * kTile;
    float sums[kEach][kEach] = {};
    for (i64 k = 0; k < p.K; k += kDepth) {
      load_slice(a, p.a, p.dtype, m, p.M, p.a_row, k, p.K, p.a_depth);
      load_slice(b, p.b, p.dtype, n, p.N, p.b_column, k, p.K, p.b_depth);
      barrier();
#pragma unroll 4
      for (u32 deep = 0; deep < kDepth; ++deep) {
        float left[kEach], right[kEach];
#pragma unroll
        for (u32 i = 0; i < kEach; ++i) {
          left[i] = a[deep][row + i * (kTile / kEach)];
          right[i] = b[deep][column + i * (kTile / kEach)];
        }
#pragma unroll
        for (u32 i = 0; i < kEach; ++i)
#pragma unroll
          for (u32 j = 0; j < kEach; ++j) sums[i][j] += left[i] * right[j];
      }
      barrier();
    }
#pragma unroll
    for (u32 i = 0; i < kEach; ++i)
#pragma unroll
      for (u32 j = 0; j < kEach; ++j) {
        i64 to_row = m + row + i * (kTile / kEach), to_column = n + column + j * (kTile / kEach);
        if (to_row < p.M && to_column < p.N) store(p.c, to_row * p.N + to_column, p.result_dtype, sums[i][j]);
      }
  }
}

// Bit for bit, but zeros of either sign are equal, and so are NaN but for the poison. `want` holds `count` values, one for each `stride` of `got`.
TO_WORK_KERNEL to_compare(const void *got, const void *want, long long count, int dtype, to_work::Verdict *verdict,
                          long long stride) {
  using namespace to_work;
  u64 wrong = 0, first = ~0ull, unwritten = 0, nan = 0;
  for (i64 i = first_index(); i < count; i += grid_stride()) {
    u32 a, b, sign, infinity, poison;
    i64 at = sampled(i, stride);
    if (dtype == FP32) {
      a = ((const u32 *)got)[at], b = ((const u32 *)want)[i];
      sign = 0x80000000u, infinity = 0x7F800000u, poison = 0xFFFFFFFFu;
    } else {
      a = ((const u16 *)got)[at], b = ((const u16 *)want)[i];
      sign = 0x8000u, infinity = dtype == BF16 ? 0x7F80u : 0x7C00u, poison = 0xFFFFu;
    }
    if (a == b || !((a | b) & ~sign)) continue;
    if ((b & ~sign) > infinity && (a & ~sign) > infinity && a != poison) continue;
    ++wrong;
    if ((u64)at < first) first = (u64)at;
    if (a == poison) ++unwritten;
    else if ((a & ~sign) > infinity) ++nan;
  }
  if (!wrong) return;
  TO_WORK_ADD(verdict->wrong, wrong);
  TO_WORK_LOWER(verdict->first, first);
  if (unwritten) TO_WORK_ADD(verdict->unwritten, unwritten);
  if (nan) TO_WORK_ADD(verdict->nan, nan);
}

// `got` has rows of `width` values, and bounds are there for `rows` of them: those at multiples of `step`; with step 0
// rows i, i + rows, ... have the same bounds. Values without bounds must be numbers, those with NaN as bounds NaN.
TO_WORK_KERNEL to_within(const void *got, const void *low, const void *high, long long count, int dtype,
                         to_work::Verdict *verdict, long long width, long long rows, long long step) {
  using namespace to_work;
  u64 wrong = 0, first = ~0ull, unwritten = 0, nan = 0;
  for (i64 i = first_index(); i < count; i += grid_stride()) {
    i64 row = i / width, column = i % width, bound = -1;
    if (!step) bound = row % rows * width + column;
    else if (row % step == 0 && row / step < rows) bound = row / step * width + column;
    u32 value, least = 0, most = 0, sign, infinity, poison;
    if (dtype == FP32) {
      value = ((const u32 *)got)[i];
      if (bound >= 0) least = ((const u32 *)low)[bound], most = ((const u32 *)high)[bound];
      sign = 0x80000000u, infinity = 0x7F800000u, poison = 0xFFFFFFFFu;
    } else {
      value = ((const u16 *)got)[i];
      if (bound >= 0) least = ((const u16 *)low)[bound], most = ((const u16 *)high)[bound];
      sign = 0x8000u, infinity = dtype == BF16 ? 0x7F80u : 0x7C00u, poison = 0xFFFFu;
    }
    const bool number = (value & ~sign) <= infinity;
    if (number && bound < 0) continue;
    const bool no_number = (least & ~sign) > infinity;
    if (no_number && !number && value != poison) continue;
    // In this order of integers, numbers are ordered as their values are, and both zeros are 0.
    const i64 place = value & sign ? -(i64)(value & ~sign) : (i64)value;
    const i64 from = least & sign ? -(i64)(least & ~sign) : (i64)least;
    const i64 to = most & sign ? -(i64)(most & ~sign) : (i64)most;
    if (number && !no_number && from <= place && place <= to) continue;
    ++wrong;
    if ((u64)i < first) first = (u64)i;
    if (value == poison) ++unwritten;
    else if (!number) ++nan;
  }
  if (!wrong) return;
  TO_WORK_ADD(verdict->wrong, wrong);
  TO_WORK_LOWER(verdict->first, first);
  if (unwritten) TO_WORK_ADD(verdict->unwritten, unwritten);
  if (nan) TO_WORK_ADD(verdict->nan, nan);
}

// The time by a clock that is not the events': nanoseconds, or ticks of 10 ns (AMD).
TO_WORK_KERNEL to_stamp(unsigned long long *at) {
  using namespace to_work;
  if (!first_index()) *at = clock();
}

// How many bytes of two ranges are not `value`: the guard zones before and after a buffer.
TO_WORK_KERNEL to_count_other(const unsigned char *before, const unsigned char *after, long long each, int value,
                              to_work::Verdict *verdict) {
  using namespace to_work;
  u64 other = 0;
  for (i64 i = first_index(); i < each; i += grid_stride())
    other += (before[i] != (u8)value) + (after[i] != (u8)value);
  if (other) TO_WORK_ADD(verdict->wrong, other);
}

#endif
