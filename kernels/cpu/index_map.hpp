// The index map of implicit GEMM: which element of which tensor a (row, reduction index) pair means.
//
// A row is one position of a grid (of the output for forward and bwd_weight, of the input for bwd_data);
// a tap is one element of the filter. Row and tap each carry coordinates and a linear offset in the
// gathered image; both add up. bwd_data with a stride is cut into residue classes: the input positions
// r, r + stride, r + 2*stride, ... all meet the same taps, at output positions one apart, so each class
// is a convolution of stride 1 with its own list of taps, and no zero is ever multiplied for the stride.
#pragma once

#include "vector.hpp"

namespace to {

constexpr bool WEIGHT = TO_DIRECTION == TO_BWD_WEIGHT;

// Hands out workspace; with a null base it only counts.
struct Arena {
  char *base;
  i64 used;
  template <class T> TO_INLINE_MEMBER T *take(i64 count) {
    T *p = (T *)(base + used);
    used += ceil_div(count * (i64)sizeof(T), 64) * 64;
    return p;
  }
};

// The problem in one group's terms.
struct Conv {
  const Elem *in0, *in1;
  Elem *out;
  i64 N, G, C, K;   // C, K: totals
  i64 Cg, Kg;       // of a group
  i64 taps;         // Z * Y * X
  i64 filter[3], in_extent[3], out_extent[3], stride[3], pad[3], dilation[3];
  i64 weight_row;   // elements of W of one output channel: taps * Cg
};

TO_INLINE Conv conv_of(const to_conv_args &a) {
  Conv c;
  c.in0 = (const Elem *)a.in0;
  c.in1 = (const Elem *)a.in1;
  c.out = (Elem *)a.out;
  c.N = a.N, c.G = a.G, c.C = a.C, c.K = a.K;
  c.Cg = a.C / a.G, c.Kg = a.K / a.G;
  c.filter[0] = a.Z, c.filter[1] = a.Y, c.filter[2] = a.X;
  c.in_extent[0] = a.Di, c.in_extent[1] = a.Hi, c.in_extent[2] = a.Wi;
  c.out_extent[0] = a.Do, c.out_extent[1] = a.Ho, c.out_extent[2] = a.Wo;
  c.stride[0] = a.stride_d, c.stride[1] = a.stride_h, c.stride[2] = a.stride_w;
  c.pad[0] = a.pad_d, c.pad[1] = a.pad_h, c.pad[2] = a.pad_w;
  c.dilation[0] = a.dilation_d, c.dilation[1] = a.dilation_h, c.dilation[2] = a.dilation_w;
  c.taps = a.Z * a.Y * a.X;
  c.weight_row = c.taps * c.Cg;
  return c;
}

// What is gathered: X (forward, bwd_weight) or dY (bwd_data), one group's channels at a time.
struct Image {
  i64 extent[3];
  i64 step[3]; // elements from one position to the next along d, h, w
  i64 batch;   // elements of one image
  i64 run_channels; // channels of a group: elements of a run that belong to one w position
};

// The positions that are rows.
struct Grid {
  i64 extent[3];   // rows along d, h, w
  i64 advance[3];  // image positions from one row to the next
  i64 out_first;   // offset in the result of row 0, in elements
  i64 out_step[3];
  i64 out_batch;
  i64 rows; // N * extents
};

struct Row {
  i64 base; // offset in the image of the row's coordinates
  i64 d, h, w;
  i64 out; // offset in the result
};

struct Tap {
  i64 d, h, w;
  i64 delta;  // linear offset of (d, h, w) in the image
  i64 weight; // linear index in the filter
};

// A part of a panel's reduction range (bwd_weight: of a tile's columns) that is contiguous in the image.
struct Segment {
  i64 d, h, w;
  i64 delta; // of element 0 of the run
  i64 first; // first element of the run that is in this segment
  int length, at; // elements; position in the panel
};

TO_INLINE Image image_of(const Conv &c) {
  Image m;
  const i64 *extent = TO_DIRECTION == TO_BWD_DATA ? c.out_extent : c.in_extent;
  i64 channels = TO_DIRECTION == TO_BWD_DATA ? c.K : c.C;
  for (int x = 0; x < 3; ++x) m.extent[x] = extent[x];
  m.step[2] = channels;
  m.step[1] = channels * extent[2];
  m.step[0] = m.step[1] * extent[1];
  m.batch = m.step[0] * extent[0];
  m.run_channels = TO_DIRECTION == TO_BWD_DATA ? c.Kg : c.Cg;
  return m;
}

// Residue classes of bwd_data; the other directions have the one class (0, 0, 0).
TO_INLINE void class_extents(const Conv &c, i64 (&classes)[3]) {
  for (int x = 0; x < 3; ++x) classes[x] = TO_DIRECTION == TO_BWD_DATA ? min64(c.stride[x], c.in_extent[x]) : 1;
}

TO_INLINE Grid grid_of(const Conv &c, const i64 (&residue)[3]) {
  Grid g;
  const i64 channels = TO_DIRECTION == TO_BWD_DATA ? c.C : c.K;
  const i64 *full = TO_DIRECTION == TO_BWD_DATA ? c.in_extent : c.out_extent;
  i64 step[3] = {channels * full[1] * full[2], channels * full[2], channels};
  g.out_batch = step[0] * full[0];
  g.out_first = 0;
  g.rows = c.N;
  for (int x = 0; x < 3; ++x) {
    if (TO_DIRECTION == TO_BWD_DATA) {
      g.extent[x] = ceil_div(c.in_extent[x] - residue[x], c.stride[x]);
      g.advance[x] = 1;
      g.out_first += residue[x] * step[x];
      g.out_step[x] = c.stride[x] * step[x];
    } else {
      g.extent[x] = c.out_extent[x];
      g.advance[x] = c.stride[x];
      g.out_step[x] = step[x];
    }
    g.rows *= g.extent[x];
  }
  return g;
}

// The offset of filter index t along axis x; false where no row of the class meets the image with it and
// it can be left out: the packed pipelines of forward walk W as one line, bwd_weight writes every tap.
TO_INLINE bool tap_offset(const Conv &c, const i64 (&residue)[3], int x, i64 t, i64 &offset) {
  if (TO_DIRECTION == TO_BWD_DATA) {
    i64 distance = residue[x] + c.pad[x] - t * c.dilation[x];
    if (distance % c.stride[x]) return false;
    offset = distance / c.stride[x];
    i64 rows = ceil_div(c.in_extent[x] - residue[x], c.stride[x]);
    return offset < c.out_extent[x] && offset + rows > 0;
  }
  offset = t * c.dilation[x] - c.pad[x];
  i64 last = (c.out_extent[x] - 1) * c.stride[x];
  constexpr bool all = TO_DIRECTION == TO_BWD_WEIGHT || TO_PIPELINE != TO_DIRECT;
  return all || (offset < c.in_extent[x] && offset + last >= 0);
}

// A run is what is contiguous in image and weights: the channels of a tap, or (merged) of all taps of a
// filter row, which is possible where one group has all channels and the filter is not dilated along w.
TO_INLINE bool can_merge(const Conv &c) {
  return TO_DIRECTION != TO_BWD_DATA && c.G == 1 && c.dilation[2] == 1;
}

// Lists the taps of a class (merged: of x = 0 only, whose runs cover the row). Returns how many.
TO_NOINLINE i64 list_taps(const Conv &c, const Image &m, const i64 (&residue)[3], bool merged, Tap *taps) {
  i64 count = 0;
  i64 xs = merged ? 1 : c.filter[2];
  for (i64 z = 0; z < c.filter[0]; ++z) {
    Tap t;
    if (!tap_offset(c, residue, 0, z, t.d)) continue;
    for (i64 y = 0; y < c.filter[1]; ++y) {
      if (!tap_offset(c, residue, 1, y, t.h)) continue;
      for (i64 x = 0; x < xs; ++x) {
        if (merged)
          t.w = -c.pad[2];
        else if (!tap_offset(c, residue, 2, x, t.w))
          continue;
        t.delta = t.d * m.step[0] + t.h * m.step[1] + t.w * m.step[2];
        t.weight = (z * c.filter[1] + y) * c.filter[2] + x;
        taps[count++] = t;
      }
    }
  }
  return count;
}

TO_NOINLINE void fill_rows(const Grid &g, const Image &m, i64 first, i64 count, Row *rows) {
  i64 w = first % g.extent[2], rest = first / g.extent[2];
  i64 h = rest % g.extent[1];
  rest /= g.extent[1];
  i64 d = rest % g.extent[0], n = rest / g.extent[0];
  for (i64 i = 0; i < count; ++i) {
    Row &r = rows[i];
    r.d = d * g.advance[0], r.h = h * g.advance[1], r.w = w * g.advance[2];
    r.base = n * m.batch + r.d * m.step[0] + r.h * m.step[1] + r.w * m.step[2];
    r.out = g.out_first + n * g.out_batch + d * g.out_step[0] + h * g.out_step[1] + w * g.out_step[2];
    if (++w == g.extent[2]) {
      w = 0;
      if (++h == g.extent[1]) {
        h = 0;
        if (++d == g.extent[0]) d = 0, ++n;
      }
    }
  }
}

// Cuts elements [first, first + length) of the sequence of runs into segments.
TO_NOINLINE int cut_segments(const Tap *taps, i64 run, i64 first, i64 length, Segment *segments) {
  i64 tap = first / run, element = first % run;
  int count = 0;
  for (i64 at = 0; at < length; ++tap, element = 0) {
    const Tap &t = taps[tap];
    Segment &s = segments[count++];
    i64 n = min64(run - element, length - at);
    s.d = t.d, s.h = t.h, s.w = t.w, s.delta = t.delta;
    s.first = element, s.length = (int)n, s.at = (int)at;
    at += n;
  }
  return count;
}

TO_INLINE bool inside(i64 coordinate, i64 extent) { return (uint64_t)coordinate < (uint64_t)extent; }

// Whether depth and height of the row at a segment or tap are inside the image.
template <class T> TO_INLINE bool inside_dh(const Image &m, const Row &r, const T &t) {
  return inside(r.h + t.h, m.extent[1]) && (TO_NDIM == 2 || inside(r.d + t.d, m.extent[0]));
}
template <class T> TO_INLINE bool inside_dhw(const Image &m, const Row &r, const T &t) {
  return inside(r.w + t.w, m.extent[2]) && inside_dh(m, r, t);
}

} // namespace to
