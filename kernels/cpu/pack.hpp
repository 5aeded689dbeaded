// Packing: from tensors in memory to panels of 4-byte units in the order that the micro-kernel reads.
//
// A unit is one fp32 value, or a pair of bf16 values that are neighbours along the reduction. Vector
// stores may run over the end of a row by less than a vector: rows are written in order, so what they
// run over is written later, and the last row of a buffer has slack behind it.
#pragma once

#include "index_map.hpp"

namespace to {

template <bool Raw> struct GatheredOf { using type = float; };
template <> struct GatheredOf<true> { using type = uint16_t; };
using Gathered = typename GatheredOf<DOT>::type; // what a gathered row holds: fp32, or raw bf16
constexpr int GV = VW * PK;                      // elements of Gathered in a vector

TO_INLINE void put(float *to, const Elem *from, i64 length) {
  i64 t = 0;
  TO_NO_UNROLL
  for (; t + VW <= length; t += VW) store_v(to + t, load(from + t));
  if (t < length) store_v(to + t, load_n(from + t, length - t));
}
TO_INLINE void put(uint16_t *to, const Elem *from, i64 length) {
  const uint16_t *raw = (const uint16_t *)from;
  i64 t = 0;
  TO_NO_UNROLL
  for (; t + 2 * VW <= length; t += 2 * VW) *(H2Mem *)(to + t) = load_raw(raw + t);
  if (t < length) *(H2Mem *)(to + t) = load_raw_n(raw + t, length - t);
}
TO_INLINE void clear(float *to, i64 length) {
  TO_NO_UNROLL
  for (i64 t = 0; t < length; t += VW) store_v(to + t, V{});
}
TO_INLINE void clear(uint16_t *to, i64 length) {
  TO_NO_UNROLL
  for (i64 t = 0; t < length; t += 2 * VW) *(H2Mem *)(to + t) = H2{};
}

// One row of im2col: `length` elements, then zeros up to a whole vector.
TO_INLINE void gather_row(Gathered *to, const Elem *image, const Image &m, const Row &r, const Segment *segments,
                          int count, i64 length) {
  TO_NO_UNROLL
  for (int s = 0; s < count; ++s) {
    const Segment &g = segments[s];
    Gathered *at = to + g.at;
    if (!inside_dh(m, r, g)) {
      clear(at, g.length);
      continue;
    }
    i64 w = r.w + g.w;
    i64 low = max64(-w * m.run_channels - g.first, 0);
    i64 high = min64((m.extent[2] - w) * m.run_channels - g.first, g.length);
    if (low >= high) {
      clear(at, g.length);
      continue;
    }
    if (low > 0) clear(at, low);
    put(at + low, image + r.base + g.delta + g.first + low, high - low);
    if (high < g.length) clear(at + high, g.length - high);
  }
  if (length % GV) {
    i64 end = ceil_div(length, GV) * GV;
    TO_NO_UNROLL
    for (i64 t = length; t < end; ++t) to[t] = 0;
  }
}

// `width` units (a multiple of VW) of one row of a panel whose rows are units of the reduction: rows
// `first` and, for pairs, `second` (null: zeros), `live` elements long, zeros beyond.
TO_INLINE void put_units(float *to, const Elem *first, const Elem *second, i64 live, i64 width) {
  TO_NO_UNROLL
  for (i64 t = 0; t < width; t += VW) {
    i64 n = live - t;
    if constexpr (DOT) {
      H low = n >= VW ? *(const HMem *)(first + t) : n > 0 ? load_halves_n((const uint16_t *)first + t, n) : H{};
      H high{};
      if (second)
        high = n >= VW ? *(const HMem *)(second + t) : n > 0 ? load_halves_n((const uint16_t *)second + t, n) : H{};
      store_u(to + t, interleave(low, high));
    } else {
      store_v(to + t, n >= VW ? load(first + t) : n > 0 ? load_n(first + t, n) : V{});
    }
  }
}

// Columns [0, live) of a row-major matrix, `length` elements of each from `from` on, become VW columns
// of a panel: unit u of column j goes to to[u * ld + j]. Columns from `live` on repeat the
// last one: whatever they make is never stored.
TO_INLINE void put_transposed(float *to, i64 ld, const Elem *from, i64 row, i64 live, i64 length) {
  i64 units = ceil_div(length, PK);
  TO_NO_UNROLL
  for (i64 u = 0; u < units; u += VW) {
    V x[VW];
    i64 left = length - u * PK;
    bool whole = left >= GV;
    TO_UNROLL
    for (int j = 0; j < VW; ++j) {
      const Elem *p = from + (j < live ? j : live - 1) * row + u * PK;
      if constexpr (DOT)
        x[j] = (V)(whole ? load_raw((const uint16_t *)p) : load_raw_n((const uint16_t *)p, left));
      else
        x[j] = whole ? load(p) : load_n(p, left);
    }
    transpose(x);
    i64 n = min64(VW, units - u);
    if (n == VW) {
      TO_UNROLL
      for (int k = 0; k < VW; ++k) store_v(to + (u + k) * ld, x[k]);
    } else {
      V lines[VW];
      TO_UNROLL
      for (int k = 0; k < VW; ++k) lines[k] = x[k];
      TO_NO_UNROLL
      for (i64 k = 0; k < n; ++k) store_v(to + (u + k) * ld, lines[k]);
    }
  }
}

} // namespace to
