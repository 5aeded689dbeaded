// From a convolution to the GEMM that a workgroup computes a tile of.
//
// forward and bwd_data read an image through a moving filter: position = row * row_step + origin +
// tap * tap_step along each axis. bwd_data does it for one residue class: the pixels of dX that are equal
// modulo the stride see the same taps, and within a class the data gradient is a convolution of stride 1 that
// walks backwards. So no product is with a zero that the stride put in, and nothing needs atomics.
#pragma once

#include "config.hpp"

namespace to {

using Arguments = to_gpu_args;

struct Axis {
  int rows;       // positions of the result along this axis (of this residue class)
  int row_step, origin;
  int taps, tap_step;
  int extent;     // of the image that is read
  int out_extent, out_first, out_step; // where row i lies in the result: out_first + i * out_step
  int tap_first, tap_stride, filter;   // tap t is the filter's tap_first + t * tap_stride
};

TO_DEVICE Axis forward_axis(int input, int output, int filter, int stride, int pad, int dilation) {
  return Axis{output, stride, -pad, filter, dilation, input, output, 0, 1, 0, 1, filter};
}

TO_DEVICE int greatest_common_divisor(int a, int b) {
  TO_ROLLED
  while (b) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// The class of pixels i = residue + stride * row. Tap y reaches output (i + pad - y * dilation) / stride,
// where that is whole.
TO_DEVICE Axis backward_axis(int input, int output, int filter, int stride, int pad, int dilation, int residue) {
  Axis a{};
  a.rows = residue < input ? (input - residue - 1) / stride + 1 : 0;
  a.row_step = 1;
  a.extent = output;
  a.out_extent = input;
  a.out_first = residue;
  a.out_step = stride;
  a.filter = filter;
  if (stride == 1) {
    a.origin = pad;
    a.taps = filter;
    a.tap_step = -dilation;
    a.tap_first = 0;
    a.tap_stride = 1;
    return a;
  }
  int common = greatest_common_divisor(stride, dilation);
  a.tap_stride = stride / common;
  a.tap_step = -(dilation / common);
  i64 reach = (i64)residue + pad;
  int first = 0;
  TO_ROLLED
  while (first < a.tap_stride && first < filter && (reach - (i64)first * dilation) % stride) ++first;
  a.tap_first = first;
  bool none = first >= a.tap_stride || first >= filter;
  a.taps = none ? 0 : (filter - 1 - first) / a.tap_stride + 1;
  a.origin = none ? 0 : (int)((reach - (i64)first * dilation) / stride);
  return a;
}

// What all threads of a workgroup agree on. Channels are those of the merged groups; "read" is the image
// that rows (bwd_weight: columns) are gathered from.
struct Gemm {
  Axis d, h, w;
  int m, n, k;                  // this workgroup's GEMM: rows, columns, depth
  int first_m, first_n;         // of this workgroup's tile
  int first_step, last_step;    // of TILE_K along k
  int read_channels;            // in a tap
  i64 read_pitch;               // elements from pixel to pixel: all channels
  int group_c, group_k;         // channels of one unmerged group
  int first_group;
  int taps;                     // of the whole filter
  int image;                    // split_image: the image that the tile lies in
  Divisor by_channels, by_tap_w, by_tap_h, by_row_w, by_row_h, by_row_d;
  Divisor by_group_c, by_group_k; // only with merged groups
  bool outside;                 // this workgroup has no tile

  // Whether padding is off along m. Classes of bwd_data have fewer rows than the problem: then it is not.
  TO_DEVICE bool whole_m() const { return !PAD_M && (!BWD_DATA || d.out_step * h.out_step * w.out_step == 1); }

  TO_DEVICE Gemm() {}
  TO_DEVICE explicit Gemm(const to_gpu_args &p);
};

TO_DEVICE Gemm::Gemm(const to_gpu_args &p) {
  group_c = p.C / p.G;
  group_k = p.K / p.G;
  first_group = block_y() * MERGE;
  taps = p.Z * p.Y * p.X;
  image = 0;
  int c = group_c * MERGE, k_out = group_k * MERGE;
  int z = block_z();
  if constexpr (BWD_DATA) {
    int residue_w = z % p.stride_w, rest = z / p.stride_w;
    w = backward_axis(p.Wi, p.Wo, p.X, p.stride_w, p.pad_w, p.dilation_w, residue_w);
    h = backward_axis(p.Hi, p.Ho, p.Y, p.stride_h, p.pad_h, p.dilation_h, rest % p.stride_h);
    d = IS_3D ? backward_axis(p.Di, p.Do, p.Z, p.stride_d, p.pad_d, p.dilation_d, rest / p.stride_h)
              : forward_axis(1, 1, 1, 1, 0, 1);
    read_channels = k_out;
    read_pitch = p.K;
  } else {
    w = forward_axis(p.Wi, p.Wo, p.X, p.stride_w, p.pad_w, p.dilation_w);
    h = forward_axis(p.Hi, p.Ho, p.Y, p.stride_h, p.pad_h, p.dilation_h);
    d = IS_3D ? forward_axis(p.Di, p.Do, p.Z, p.stride_d, p.pad_d, p.dilation_d) : forward_axis(1, 1, 1, 1, 0, 1);
    read_channels = c;
    read_pitch = p.C;
  }
  int pixels = d.rows * h.rows * w.rows;
  int seen_taps = d.taps * h.taps * w.taps;
  first_step = 0;
  if constexpr (BWD_WEIGHT) {
    m = k_out;
    n = c * taps;
    k = p.N * pixels;
    int steps = ceil_div(k, TILE_K);
    if constexpr (TWO_STAGE) {
      first_step = (int)((i64)steps * z / p.split_k);
      last_step = (int)((i64)steps * (z + 1) / p.split_k);
    } else {
      last_step = steps;
    }
  } else {
    m = SPLIT_IMAGE ? pixels : p.N * pixels;
    n = FORWARD ? k_out : c;
    k = seen_taps * read_channels;
    last_step = ceil_div(k, TILE_K);
  }
  int tiles_n = ceil_div(n, TILE_N);
  int tile = block_x(), tile_m = tile / tiles_n;
  first_n = (tile - tile_m * tiles_n) * TILE_N;
  if constexpr (SPLIT_IMAGE) {
    int tiles_m = ceil_div(m, TILE_M);
    image = tile_m / tiles_m;
    tile_m -= image * tiles_m;
  }
  outside = (i64)tile_m * TILE_M >= m;
  first_m = tile_m * TILE_M;
  if constexpr (!EXPLICIT_GEMM) {
    by_channels = Divisor(read_channels);
    by_tap_w = Divisor(w.taps);
    by_row_w = Divisor(w.rows);
    by_row_h = Divisor(h.rows);
    if constexpr (IS_3D) {
      by_tap_h = Divisor(h.taps);
      by_row_d = Divisor(d.rows);
    }
  }
  if constexpr (MERGE > 1) {
    by_group_c = Divisor(group_c);
    by_group_k = Divisor(group_k);
  }
}

// A pixel of the result, and the position that tap 0 of it reads.
struct Pixel {
  int n, d, h, w;
};

// Row (of the GEMM, or for bwd_weight of its depth) -> pixel, counted in rows of the axes.
TO_DEVICE Pixel pixel_of(const Gemm &g, int row) {
  Pixel p;
  int rest = g.by_row_w.quotient(row);
  p.w = row - rest * (int)g.by_row_w.d;
  if constexpr (IS_3D) {
    int plane = g.by_row_h.quotient(rest);
    p.h = rest - plane * (int)g.by_row_h.d;
    p.n = SPLIT_IMAGE ? 0 : g.by_row_d.quotient(plane);
    p.d = plane - p.n * (int)g.by_row_d.d;
  } else {
    p.n = SPLIT_IMAGE ? 0 : g.by_row_h.quotient(rest);
    p.h = rest - p.n * (int)g.by_row_h.d;
    p.d = 0;
  }
  return p;
}

// A tap and a channel: position along the axes in which channels are innermost.
struct Tap {
  int z, y, x, c;
};

TO_DEVICE Tap tap_of(const Gemm &g, int k) {
  Tap t;
  int rest = g.by_channels.quotient(k);
  t.c = k - rest * (int)g.by_channels.d;
  int line = g.by_tap_w.quotient(rest);
  t.x = rest - line * (int)g.by_tap_w.d;
  if constexpr (IS_3D) {
    t.z = g.by_tap_h.quotient(line);
    t.y = line - t.z * (int)g.by_tap_h.d;
  } else {
    t.z = 0;
    t.y = line;
  }
  return t;
}

// The tap's number in the filter as it lies in memory.
TO_DEVICE int filter_tap(const Gemm &g, Tap t) {
  int y = g.h.tap_first + t.y * g.h.tap_stride, x = g.w.tap_first + t.x * g.w.tap_stride;
  int z = IS_3D ? g.d.tap_first + t.z * g.d.tap_stride : 0;
  return (z * g.h.filter + y) * g.w.filter + x;
}

} // namespace to
