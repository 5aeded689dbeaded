// The direct pipeline's way for one input and one output channel a group: lanes are groups, which are
// neighbours in memory, so no lane is idle where the implicit GEMM of a group would be one column wide.
#pragma once

#include "index_map.hpp"

namespace to {

constexpr int LANE_VECTORS = 4;

template <bool Whole> TO_INLINE V load_lanes(const Elem *p, i64 live) { return Whole ? load(p) : load_n(p, live); }

// w[group][tap] of the listed taps becomes weights[tap][group], rows of `row` floats.
TO_NOINLINE void depthwise_weights(const Conv &c, const Tap *taps, i64 count, float *weights, i64 row) {
  for (i64 g = 0; g < c.G; ++g)
    for (i64 t = 0; t < count; ++t) {
      Elem lanes[VW] = {c.in1[g * c.taps + taps[t].weight]};
      weights[t * row + g] = load(lanes)[0];
    }
}

// One row of the result, groups [g, g + live), from offsets[tap * TO_TILE_M] in the image (-1: outside).
template <int Vectors, bool Whole>
TO_NOINLINE void depthwise_row(const Elem *image, const i64 *offsets, i64 count, const float *weights, i64 row,
                               Elem *to, i64 live) {
  V sum[Vectors];
  TO_UNROLL
  for (int v = 0; v < Vectors; ++v) sum[v] = V{};
  TO_NO_UNROLL
  for (i64 t = 0; t < count; ++t) {
    i64 offset = offsets[t * TO_TILE_M];
    if (offset < 0) continue;
    TO_UNROLL
    for (int v = 0; v < Vectors; ++v)
      sum[v] += load_lanes<Whole>(image + offset + v * VW, live) * load_v(weights + t * row + v * VW);
  }
  TO_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    if constexpr (Whole)
      store(to + v * VW, sum[v]);
    else
      store_n(to + v * VW, sum[v], live);
  }
}

// dW of one tap, groups [g, g + live): the sum over all positions that the tap maps into the image.
template <int Vectors, bool Whole>
TO_NOINLINE void depthwise_tap(const Conv &c, const Image &m, const Tap &t, const i64 (&low)[3], const i64 (&high)[3],
                               i64 g, i64 live) {
  V sum[Vectors];
  TO_UNROLL
  for (int v = 0; v < Vectors; ++v) sum[v] = V{};
  for (i64 n = 0; n < c.N; ++n)
    for (i64 d = low[0]; d < high[0]; ++d)
      for (i64 h = low[1]; h < high[1]; ++h) {
        const Elem *x = c.in0 + n * m.batch + d * c.stride[0] * m.step[0] + h * c.stride[1] * m.step[1] +
                        low[2] * c.stride[2] * m.step[2] + t.delta + g;
        const i64 row = ((n * c.out_extent[0] + d) * c.out_extent[1] + h) * c.out_extent[2];
        const Elem *y = c.in1 + (row + low[2]) * c.K + g;
        TO_NO_UNROLL
        for (i64 w = low[2]; w < high[2]; ++w, x += c.stride[2] * m.step[2], y += c.K) {
          TO_UNROLL
          for (int v = 0; v < Vectors; ++v)
            sum[v] += load_lanes<Whole>(x + v * VW, live) * load_lanes<Whole>(y + v * VW, live);
        }
      }
  Elem lanes[Vectors * VW];
  TO_UNROLL
  for (int v = 0; v < Vectors; ++v) store(lanes + v * VW, sum[v]);
  for (i64 l = 0; l < (Whole ? Vectors * VW : live); ++l) c.out[(g + l) * c.taps + t.weight] = lanes[l];
}

} // namespace to
