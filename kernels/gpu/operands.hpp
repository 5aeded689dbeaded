// The two operands of the GEMM: which element of memory is element (row, column) of a tile.
//
// Every operand has rows and columns of its tile in LDS; memory is contiguous along columns. What an operand
// knows of a row and of a column is kept apart (Row, Column), so that what does not change from
// tile to tile along k is computed once: the rows where k goes along columns, else the columns.
#pragma once

#include "geometry.hpp"

namespace to {

// The part of a tile that this thread moves: COUNT vectors of VEC.
template <int ROWS, int COLS, int VEC> struct Share {
  static constexpr int PER_ROW = COLS / VEC;
  static constexpr int COUNT = ROWS * COLS / (THREADS * VEC);
  static_assert(COLS % VEC == 0 && COUNT * THREADS * VEC == ROWS * COLS, "the threads share a tile in whole vectors");
  // On gfx950 a copy into LDS writes where the hardware wants, lane after lane: there each lane fetches
  // what belongs where it will land.
  static constexpr bool BY_PLACE = TO_GFX950 && IS_ASYNC;
  static constexpr bool ONE_COLUMN =
      THREADS % PER_ROW == 0 && (!BY_PLACE || COUNT == 1 || THREADS / PER_ROW % 8 == 0);
  static constexpr int COLUMNS = ONE_COLUMN ? 1 : COUNT;

  static TO_DEVICE int unit(int v) { return thread_id() + v * THREADS; }
  static TO_DEVICE int row(int v) { return row(v, thread_id()); }
  static TO_DEVICE int row(int v, int thread) {
    if constexpr (THREADS % PER_ROW == 0) return thread / PER_ROW + v * (THREADS / PER_ROW);
    return (thread + v * THREADS) / PER_ROW;
  }
  static TO_DEVICE int column(int v) {
    int u = unit(ONE_COLUMN ? 0 : v), c = u % PER_ROW * VEC;
    return BY_PLACE ? lds_index<COLS>(u / PER_ROW, c) - u / PER_ROW * COLS : c;
  }
  static TO_DEVICE int place(int v) {
    if constexpr (BY_PLACE) return unit(v) * VEC;
    // Columns are exchanged in the same way every eight rows.
    if constexpr (THREADS % (PER_ROW * 8) == 0) return v * THREADS * VEC + lds_index<COLS>(row(0), column(0));
    return lds_index<COLS>(row(v), column(v));
  }
};

struct Source {
  const u16 *at;
  bool live;
};

#define TO_FAR (-(1 << 30)) /* a position outside of every image */

// ---- an image read through the filter -----------------------------------------------------------------

#if TO_SPLIT_IMAGE
struct alignas(16) PixelRow {
  int offset; // from the image's first element to what tap 0, channel 0 reads; may lie outside
  int d, h, w;
};
#else
struct alignas(8) PixelRow {
  const u16 *base; // what tap 0, channel 0 reads; may lie outside
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
  const u16 *first; // of this workgroup's group (and image)
  i64 line, plane, volume;

  TO_DEVICE Image(const Gemm &gemm, const void *tensor) : g(gemm) {
    line = g.w.extent * g.read_pitch;
    plane = g.h.extent * line;
    volume = g.d.extent * plane;
    int channels = BWD_DATA ? g.group_k : g.group_c;
    first = (const u16 *)tensor + (i64)g.first_group * channels + g.image * volume;
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
    const u16 *at;
    int channel;
    bool live;
  };
  const Gemm &g;
  const u16 *first;
  TO_DEVICE FilterRows(const Gemm &gemm, const to_gpu_args &p) : g(gemm) {
    first = (const u16 *)p.in1 + (i64)g.first_group * g.group_k * g.taps * g.group_c;
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
    const u16 *base;
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
  const u16 *first;
  TO_DEVICE FilterColumns(const Gemm &gemm, const to_gpu_args &p) : g(gemm) {
    first = (const u16 *)p.in1 + (i64)g.first_group * g.group_k * g.taps * g.group_c;
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
    const u16 *base;
    bool live;
  };
  struct Column {
    int channel;
    bool live;
  };
  const Gemm &g;
  const u16 *first;
  i64 pitch;
  TO_DEVICE PixelRows(const Gemm &gemm, const to_gpu_args &p) : g(gemm), pitch(p.K) {
    first = (const u16 *)p.in1 + (i64)g.first_group * g.group_k;
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

// ---- moving a tile ----------------------------------------------------------------------------------

template <class Operand, int VEC, bool TURNED> struct Mover {
  using Map = typename Operand::Map;
  static constexpr int COUNT = Map::COUNT;
  using Vector = Raw<VEC>;
  struct Registers {
    Vector v[COUNT];
  };

  Operand operand;
  bool aligned;
  typename Operand::Column columns[Operand::K_ALONG_COLUMNS ? 1 : Map::COLUMNS]; // that do not change along k

  // Rows that change along k: each lane works one out, all take theirs from it.
  static constexpr int ROWS_AT_ONCE = LANES / Map::PER_ROW;
  static constexpr bool SHARE_ROWS = !Operand::K_ALONG_COLUMNS && Operand::ROWS_ARE_DEAR && COUNT > 1 &&
                                     LANES % Map::PER_ROW == 0 && ROWS_AT_ONCE * COUNT <= LANES;

  // What the next tile needs, worked out while the matrix unit is busy: tiles are moved in the order of k.
  mutable typename Operand::Row next_row;

  TO_DEVICE void prepare(int k0) const {
    if constexpr (SHARE_ROWS) {
      int lane = thread_id() % LANES;
      int mine = (thread_id() - lane + lane / ROWS_AT_ONCE * THREADS) / Map::PER_ROW + lane % ROWS_AT_ONCE;
      next_row = operand.row(k0, mine);
    }
  }

  // Rows that do not change along k: a few are kept in registers, more are read from LDS again for every tile.
  static constexpr bool KEEP_ROWS = Operand::ROWS_IN_LDS && COUNT <= 4;
  typename Operand::Row rows[KEEP_ROWS ? COUNT : 1];

  TO_DEVICE Mover(const Gemm &g, const to_gpu_args &p) : operand(g, p) {
    aligned = !Operand::MAY_BE_UNALIGNED || operand.aligned();
    prepare(g.first_step * TILE_K);
    if constexpr (KEEP_ROWS) {
      TO_UNROLL
      for (int v = 0; v < COUNT; ++v) rows[v] = operand.row(0, Map::row(v));
    }
    if constexpr (!Operand::K_ALONG_COLUMNS) {
      TO_UNROLL
      for (int v = 0; v < Map::COLUMNS; ++v) columns[v] = operand.column(0, Map::column(v));
    }
  }

  // f(v, source) for every vector of this thread's share of the tile at depth k0.
  template <class F> TO_DEVICE void each(int k0, F f) const {
    if constexpr (Operand::K_ALONG_COLUMNS) {
      typename Operand::Column column{};
      int thread = thread_id();
      forget(thread);
      TO_UNROLL
      for (int v = 0; v < COUNT; ++v) {
        if (v < Map::COLUMNS) column = operand.column(k0, Map::column(v));
        if constexpr (KEEP_ROWS)
          f(v, operand.at(rows[v], column));
        else
          f(v, operand.at(operand.row(k0, Map::row(v, thread)), column));
      }
    } else if constexpr (SHARE_ROWS) {
      int lane = thread_id() % LANES;
      TO_UNROLL
      for (int v = 0; v < COUNT; ++v)
        f(v, operand.at(from_lane(next_row, v * ROWS_AT_ONCE + lane / Map::PER_ROW), columns[Map::ONE_COLUMN ? 0 : v]));
    } else {
      int thread = thread_id();
      forget(thread);
      TO_UNROLL
      for (int v = 0; v < COUNT; ++v)
        f(v, operand.at(operand.row(k0, Map::row(v, thread)), columns[Map::ONE_COLUMN ? 0 : v]));
    }
    prepare(k0 + TILE_K);
  }

  // Vectors that memory does not align, element by element.
  TO_DEVICE void gather(Registers &to, int k0) const {
    TO_UNROLL
    for (int v = 0; v < COUNT; ++v) {
      int thread = thread_id();
      forget(thread);
      typename Operand::Row row = operand.row(k0, Map::row(v, thread));
      typename Operand::Column column = operand.column(k0, Map::column(v));
      TO_ROLLED
      for (int e = 0; e < VEC; ++e) {
        Source s = operand.at(row, column);
        shift_in(to.v[v], s.live ? global_load<u16>(s.at) : (u16)0);
        column = operand.after(column, k0, Map::column(v) + e + 1);
      }
    }
  }

  TO_DEVICE void fetch(Registers &to, int k0) const {
    if (aligned)
      each(k0, [&](int v, Source s) __attribute__((always_inline)) {
        Vector zero{};
        to.v[v] = s.live ? global_load<Vector>(s.at) : zero;
      });
    else if constexpr (Operand::MAY_BE_UNALIGNED)
      gather(to, k0);
  }

  TO_DEVICE void stash(const Registers &from, Lds tile) const {
    TO_UNROLL
    for (int v = 0; v < COUNT; ++v) {
      if constexpr (TURNED) {
        TO_UNROLL
        for (int e = 0; e < VEC; ++e)
          lds_store(tile, lds_index<TILE_K>(Map::column(v) + e, Map::row(v)), element(from.v[v], e));
      } else {
        lds_store(tile, Map::place(v), from.v[v]);
      }
    }
  }

  // Memory to LDS without registers, as far as the width allows it.
  TO_DEVICE void copy(Lds tile, int k0) const {
    constexpr bool CAN = TO_GFX950 ? VEC == 8 : VEC >= 2;
    if (CAN && aligned) {
      if constexpr (CAN) {
        // All addresses first: a read of LDS would wait for the copies before it.
        Source sources[COUNT];
        if constexpr (Operand::ROWS_IN_LDS && !KEEP_ROWS)
          each(k0, [&](int v, Source s) __attribute__((always_inline)) { sources[v] = s; });
        auto copy_one = [&](int v, Source s) __attribute__((always_inline)) {
#if TO_GFX950
          async_copy<VEC>(tile + (uniform(thread_id() / LANES) * LANES + v * THREADS) * VEC, s.at, s.live);
#else
          async_copy<VEC>(tile + Map::place(v), s.at, s.live);
#endif
        };
        if constexpr (Operand::ROWS_IN_LDS && !KEEP_ROWS) {
          TO_UNROLL
          for (int v = 0; v < COUNT; ++v) copy_one(v, sources[v]);
        } else {
          each(k0, copy_one);
        }
      }
    } else {
      Registers r{};
      fetch(r, k0);
      stash(r, tile);
    }
  }
};

} // namespace to
