// The two operands of a convolution's GEMM: which element of memory is element (row, column) of a tile.
//
// Every operand has rows and columns of its tile in LDS; memory is contiguous along columns.
#pragma once

#include "geometry.hpp"
#include "tiles.hpp"

namespace to {

#define TO_FAR (-(1 << 30)) /* a position outside of every image */

// ---- an image read through the filter -----------------------------------------------------------------

#if TO_SPLIT_IMAGE
struct alignas(16) PixelRow {
  int offset; // from the image's first element to what tap 0, channel 0 reads; may lie outside
  int d, h, w;
};
#else
struct alignas(8) PixelRow {
  const Element *base; // what tap 0, channel 0 reads; may lie outside
  int d, h, w;
};
#endif
TO_DEVICE PixelRow from_lane(const PixelRow &r, int lane) {
  PixelRow o{};
#if TO_SPLIT_IMAGE
  o.offset = from_lane(r.offset, lane);
#else
  o.base = from_lane(r.base, lane);
#endif
  if constexpr (IS_3D) o.d = from_lane(r.d, lane);
  o.h = from_lane(r.h, lane);
  if constexpr (!EXPLICIT_GEMM) o.w = from_lane(r.w, lane);
  return o;
}
struct TapColumn {
  int offset;
  int d, h, w;
  int channel; // in its tap
};

struct Image {
  const Gemm &g;
  const Element *first; // of this workgroup's group (and image)
  i64 line, plane, volume;

  TO_DEVICE Image(const Gemm &gemm, const void *tensor) : g(gemm) {
    line = g.w.extent * g.read_pitch;
    plane = g.h.extent * line;
    volume = g.d.extent * plane;
    int channels = BWD_DATA ? g.group_k : g.group_c;
    first = (const Element *)tensor + (i64)g.first_group * channels + g.image * volume;
  }

  TO_DEVICE PixelRow row(int number, bool live) const {
    PixelRow r{};
#if TO_EXPLICIT_GEMM
#if TO_SPLIT_IMAGE
    r.offset = (int)(number * g.read_pitch);
#else
    r.base = first + number * g.read_pitch;
#endif
    r.h = live ? 0 : TO_FAR;
    return r;
#endif
    Pixel p = pixel_of(g, live ? number : 0);
    r.d = IS_3D ? p.d * g.d.row_step + g.d.origin : 0;
    r.h = p.h * g.h.row_step + g.h.origin;
    r.w = p.w * g.w.row_step + g.w.origin;
#if TO_SPLIT_IMAGE
    r.offset = (int)(r.d * plane + r.h * line + r.w * g.read_pitch);
#else
    r.base = first + p.n * volume + r.d * plane + r.h * line + r.w * g.read_pitch;
#endif
    if (!live) r.h = TO_FAR;
    return r;
  }

  TO_DEVICE TapColumn column(int k, bool live) const {
    TapColumn c{};
    if constexpr (EXPLICIT_GEMM) {
      c.offset = k;
      c.h = live ? 0 : TO_FAR;
      return c;
    }
    Tap t = tap_of(g, live ? k : 0);
    c.d = IS_3D ? t.z * g.d.tap_step : 0;
    c.h = t.y * g.h.tap_step;
    c.w = t.x * g.w.tap_step;
    c.offset = (int)(c.d * plane + c.h * line + c.w * g.read_pitch) + t.c;
    c.channel = t.c;
    if (!live) c.h = TO_FAR;
    return c;
  }

  // The column after this one, which is column(k, live).
  TO_DEVICE TapColumn after(TapColumn c, int k, bool live) const {
    if (EXPLICIT_GEMM || ++c.channel >= g.read_channels || !live) return column(k, live);
    ++c.offset;
    return c;
  }

  TO_DEVICE Source at(const PixelRow &r, const TapColumn &c) const {
#if TO_EXPLICIT_GEMM && TO_SPLIT_IMAGE
    return Source{first + (r.offset + c.offset), (r.h | c.h) >= 0};
#elif TO_EXPLICIT_GEMM
    return Source{r.base + c.offset, (r.h | c.h) >= 0};
#endif
    bool live = (u32)(r.h + c.h) < (u32)g.h.extent && (u32)(r.w + c.w) < (u32)g.w.extent;
    if constexpr (IS_3D) live = live && (u32)(r.d + c.d) < (u32)g.d.extent;
#if TO_SPLIT_IMAGE
    return Source{first + (r.offset + c.offset), live};
#else
    return Source{r.base + c.offset, live};
#endif
  }
};

// Rows of A that do not change along k: found out once, by one thread each, and kept in LDS.
#if TO_DIRECTION != TO_BWD_WEIGHT
TO_LDS_VARIABLE PixelRow row_table[TILE_M];
#endif

// A of forward and bwd_data: rows are pixels, k goes along columns.
#if TO_DIRECTION != TO_BWD_WEIGHT
struct GatheredA : Image {
  using Map = Share<TILE_M, TILE_K, VECTOR_A>;
  static constexpr bool K_ALONG_COLUMNS = true, ROWS_IN_LDS = true, ROWS_ARE_DEAR = false, MAY_BE_UNALIGNED = PAD_K;
  using Row = PixelRow;
  using Column = TapColumn;
  TO_DEVICE GatheredA(const Gemm &gemm, const to_gpu_args &p) : Image(gemm, p.in0) {
    TO_ROLLED
    for (int r = thread_id(); r < TILE_M; r += THREADS) {
      int m = g.first_m + r;
      row_table[r] = Image::row(m, g.whole_m() || m < g.m);
    }
    barrier();
  }
  TO_DEVICE bool aligned() const { return g.read_channels % VECTOR_A == 0 && g.read_pitch % VECTOR_A == 0; }
  TO_DEVICE Row row(int, int r) const { return row_table[r]; }
  TO_DEVICE Column column(int k0, int c) const { return Image::column(k0 + c, !PAD_K || k0 + c < g.k); }
  TO_DEVICE Column after(Column last, int k0, int c) const {
    return Image::after(last, k0 + c, !PAD_K || k0 + c < g.k);
  }
};
#endif

// B of bwd_weight: rows are pixels along k, columns are taps and channels.
struct GatheredB : Image {
  using Map = Share<TILE_K, TILE_N, VECTOR_B>;
  static constexpr bool K_ALONG_COLUMNS = false, ROWS_IN_LDS = false, ROWS_ARE_DEAR = !EXPLICIT_GEMM, MAY_BE_UNALIGNED = PAD_N;
  using Row = PixelRow;
  using Column = TapColumn;
  TO_DEVICE GatheredB(const Gemm &gemm, const to_gpu_args &p) : Image(gemm, p.in0) {}
  TO_DEVICE bool aligned() const { return g.read_channels % VECTOR_B == 0 && g.read_pitch % VECTOR_B == 0; }
  TO_DEVICE Row row(int k0, int r) const { return Image::row(k0 + r, !PAD_K || k0 + r < g.k); }
  TO_DEVICE Column column(int, int c) const {
    int n = g.first_n + c;
    return Image::column(n, !PAD_N || n < g.n);
  }
  TO_DEVICE Column after(Column last, int, int c) const {
    int n = g.first_n + c;
    return Image::after(last, n, !PAD_N || n < g.n);
  }
};

// ---- the filter -----------------------------------------------------------------------------------------

// B of forward: rows are output channels, k = (tap, channel) goes along columns. Merged groups make a matrix
// of blocks along the diagonal: elsewhere an output channel has no weight for an input channel.
struct FilterRows {
  using Map = Share<TILE_N, TILE_K, VECTOR_B>;
  static constexpr bool K_ALONG_COLUMNS = true, ROWS_IN_LDS = false, ROWS_ARE_DEAR = false, MAY_BE_UNALIGNED = PAD_K;
  struct Row {
    i64 offset;
    int first_channel;
    bool live;
  };
  struct Column {
    const Element *at;
    int channel;
    bool live;
  };
  const Gemm &g;
  const Element *first;
  TO_DEVICE FilterRows(const Gemm &gemm, const to_gpu_args &p) : g(gemm) {
    first = (const Element *)p.in1 + (i64)g.first_group * g.group_k * g.taps * g.group_c;
  }
  TO_DEVICE bool aligned() const { return g.group_c % VECTOR_B == 0; }
  TO_DEVICE Row row(int, int r) const {
    int n = g.first_n + r;
    Row row{(i64)n * (g.taps * g.group_c), 0, !PAD_N || n < g.n};
    if constexpr (MERGE > 1) row.first_channel = g.by_group_k.quotient(n) * g.group_c;
    return row;
  }
  TO_DEVICE Column column(int k0, int c) const {
    int k = k0 + c;
    bool live = !PAD_K || k < g.k;
    if constexpr (MERGE == 1) return Column{first + k, 0, live};
    int tap = g.by_channels.quotient(k), channel = k - tap * g.read_channels;
    return Column{first + tap * g.group_c, channel, live};
  }
  TO_DEVICE Column after(Column, int k0, int c) const { return column(k0, c); }
  TO_DEVICE Source at(const Row &r, const Column &c) const {
    if constexpr (MERGE == 1) return Source{c.at + r.offset, r.live && c.live};
    int channel = c.channel - r.first_channel;
    return Source{c.at + (r.offset + channel), r.live && c.live && (u32)channel < (u32)g.group_c};
  }
};

// B of bwd_data: rows are (tap, output channel) along k, columns are input channels.
struct FilterColumns {
  using Map = Share<TILE_K, TILE_N, VECTOR_B>;
  static constexpr bool K_ALONG_COLUMNS = false, ROWS_IN_LDS = false, ROWS_ARE_DEAR = !EXPLICIT_GEMM, MAY_BE_UNALIGNED = PAD_N;
  struct Row {
    const Element *base;
    int first_channel;
    bool live;
  };
  friend TO_DEVICE Row from_lane(const Row &r, int lane) {
    Row o{from_lane(r.base, lane), 0, from_lane(r.live, lane)};
    if constexpr (MERGE > 1) o.first_channel = from_lane(r.first_channel, lane);
    return o;
  }
  struct Column {
    int channel;
    bool live;
  };
  const Gemm &g;
  const Element *first;
  TO_DEVICE FilterColumns(const Gemm &gemm, const to_gpu_args &p) : g(gemm) {
    first = (const Element *)p.in1 + (i64)g.first_group * g.group_k * g.taps * g.group_c;
  }
  TO_DEVICE bool aligned() const { return g.group_c % VECTOR_B == 0; }
  TO_DEVICE Row row(int k0, int r) const {
    int k = k0 + r;
    Row row{first, 0, !PAD_K || k < g.k};
    if constexpr (EXPLICIT_GEMM) {
      row.base = first + (i64)k * g.group_c;
    } else {
      Tap t = tap_of(g, row.live ? k : 0);
      row.base = first + ((i64)t.c * g.taps + filter_tap(g, t)) * g.group_c;
      if constexpr (MERGE > 1) row.first_channel = g.by_group_k.quotient(t.c) * g.group_c;
    }
    return row;
  }
  TO_DEVICE Column column(int, int c) const {
    int n = g.first_n + c;
    return Column{n, !PAD_N || n < g.n};
  }
  TO_DEVICE Column after(Column, int k0, int c) const { return column(k0, c); }
  TO_DEVICE Source at(const Row &r, const Column &c) const {
    int channel = c.channel - r.first_channel;
    bool live = r.live && c.live;
    if constexpr (MERGE > 1) live = live && (u32)channel < (u32)g.group_c;
    return Source{r.base + channel, live};
  }
};

// ---- the output's gradient, as it lies ----------------------------------------------------------------

// A of bwd_weight: rows are pixels along k, columns are output channels.
struct PixelRows {
  using Map = Share<TILE_K, TILE_M, VECTOR_A>;
  static constexpr bool K_ALONG_COLUMNS = false, ROWS_IN_LDS = false, ROWS_ARE_DEAR = false, MAY_BE_UNALIGNED = PAD_M;
  struct Row {
    const Element *base;
    bool live;
  };
  struct Column {
    int channel;
    bool live;
  };
  const Gemm &g;
  const Element *first;
  i64 pitch;
  TO_DEVICE PixelRows(const Gemm &gemm, const to_gpu_args &p) : g(gemm), pitch(p.K) {
    first = (const Element *)p.in1 + (i64)g.first_group * g.group_k;
  }
  TO_DEVICE bool aligned() const { return g.m % VECTOR_A == 0 && pitch % VECTOR_A == 0; }
  TO_DEVICE Row row(int k0, int r) const { return Row{first + (k0 + r) * pitch, !PAD_K || k0 + r < g.k}; }
  TO_DEVICE Column column(int, int c) const {
    int m = g.first_m + c;
    return Column{m, !PAD_M || m < g.m};
  }
  TO_DEVICE Column after(Column, int k0, int c) const { return column(k0, c); }
  TO_DEVICE Source at(const Row &r, const Column &c) const { return Source{r.base + c.channel, r.live && c.live}; }
};

#if TO_DIRECTION == TO_FORWARD
using OperandA = GatheredA;
using OperandB = FilterRows;
#elif TO_DIRECTION == TO_BWD_DATA
using OperandA = GatheredA;
using OperandB = FilterColumns;
#else
using OperandA = PixelRows;
using OperandB = GatheredB;
#endif

} // namespace to
