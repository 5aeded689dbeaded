// The packed pipelines: cache blocking around the micro-kernel.
//
// Loops, outside in: residue class, block of rows (as many tiles of TILE_M as a staging buffer of about
// 256 KiB takes), group, TILE_N columns, panel of TILE_K of the reduction, tile of TILE_M rows,
// micro-tiles. B of a panel is packed once for the whole block of rows. Sums stay in fp32 in the staging
// buffer from panel to panel and are rounded once, at the end.
#pragma once

#include "micro_kernel.hpp"

namespace to {

constexpr int BLOCK_TILES = 65536 / (TM * TN) > 1 ? 65536 / (TM * TN) : 1;
constexpr int BUFFERS = TO_PIPELINE == TO_PACK_AB_DOUBLE ? 2 : 1;

// One panel of the reduction.
struct Panel {
  i64 first;
  i64 length; // elements
  i64 units;
  int segment_count;
  Segment *segments; // forward, bwd_data: of the reduction range
  Row *rows;         // bwd_weight: positions of the reduction range
  float *b;
};

struct Gemm {
  Conv c;
  Image image;
  bool merged;
  i64 run; // elements of a run
  Tap *taps;
  Row *rows;                 // forward, bwd_data: of the block
  Segment *column_segments;  // bwd_weight: of the tile's columns
  const Elem **pointers;     // [segment][MM]
  Elem *zeros;               // what a row outside the image reads
  Gathered *gathered;        // two rows on their way to pairs
  float *staging;            // [row micro-tile][column micro-tile][MM][MN]
  float *a[2];
  Panel panel[2];
  // of the tile at work
  i64 group, column, columns, reduction, block_row, block_rows;
  int column_micros; // micro-tiles across the live columns

  TO_INLINE_MEMBER void plan(const to_conv_args &args, Arena &arena) {
    c = conv_of(args);
    image = image_of(c);
    merged = TO_PIPELINE != TO_PACK_B && can_merge(c);
    run = merged ? c.filter[2] * c.Cg : image.run_channels;
    i64 none[3] = {0, 0, 0};
    i64 rows_total = WEIGHT ? c.Kg : grid_of(c, none).rows;
    i64 tiles = min64(BLOCK_TILES, ceil_div(rows_total, TM));
    taps = arena.take<Tap>(c.taps);
    rows = arena.take<Row>(WEIGHT ? 0 : tiles * TM);
    column_segments = arena.take<Segment>(WEIGHT ? TN : 0);
    pointers = arena.take<const Elem *>(TO_PIPELINE == TO_PACK_B ? TK * MM : 0);
    zeros = arena.take<Elem>(TK + 2 * VW);
    gathered = arena.take<Gathered>(2 * (TN + GV));
    staging = arena.take<float>(tiles * TM * TN);
    for (int i = 0; i < BUFFERS; ++i) {
      a[i] = arena.take<float>(WEIGHT ? UNITS * LDM + VW : (TO_PIPELINE == TO_PACK_B ? MM : TM) * LDA + VW);
      panel[i].b = arena.take<float>(UNITS * TN + VW);
      panel[i].segments = arena.take<Segment>(WEIGHT ? 0 : TK);
      panel[i].rows = arena.take<Row>(WEIGHT ? TK : 0);
    }
  }

  TO_INLINE_MEMBER const Elem *image_base() const { return c.in0 + group * image.run_channels; }

  TO_INLINE_MEMBER void open_panel(Panel &p, const Grid &grid, i64 first) {
    p.first = first;
    p.length = min64(TK, reduction - first);
    p.units = ceil_div(p.length, PK);
    if constexpr (WEIGHT)
      fill_rows(grid, image, first, p.length, p.rows);
    else
      p.segment_count = cut_segments(taps, run, first, p.length, p.segments);
  }

  // B is packed in slices: of VW columns (forward) or of one unit of the reduction.
  TO_INLINE_MEMBER i64 b_slices(const Panel &p) const {
    return TO_DIRECTION == TO_FORWARD ? ceil_div(columns, VW) : p.units;
  }

  TO_INLINE_MEMBER void pack_b(const Panel &p, i64 from, i64 to) {
    const i64 width = (i64)column_micros * MN;
    TO_NO_UNROLL
    for (i64 s = from; s < to; ++s) {
      if constexpr (TO_DIRECTION == TO_FORWARD) {
        const Elem *w = c.in1 + (group * c.Kg + column + s * VW) * c.weight_row + p.first;
        put_transposed(p.b + s * VW, TN, w, c.weight_row, min64(VW, columns - s * VW), p.length);
      } else if constexpr (TO_DIRECTION == TO_BWD_DATA) {
        const Elem *second = nullptr;
        const Elem *first = weight_at(p.first + s * PK);
        if (DOT && s * PK + 1 < p.length) second = weight_at(p.first + s * PK + 1);
        put_units(p.b + s * TN, first, second, columns, width);
      } else if constexpr (DOT) {
        const uint16_t *low = (const uint16_t *)gathered, *high = low + TN + GV;
        const bool pair = 2 * s + 1 < p.length;
        gather_row(gathered, image_base(), image, p.rows[2 * s], column_segments, column_segment_count, columns);
        if (pair)
          gather_row(gathered + TN + GV, image_base(), image, p.rows[2 * s + 1], column_segments,
                     column_segment_count, columns);
        put_units(p.b + s * TN, (const Elem *)low, pair ? (const Elem *)high : nullptr, columns, width);
      } else {
        gather_row((Gathered *)(p.b + s * TN), image_base(), image, p.rows[s], column_segments, column_segment_count,
                   columns);
      }
    }
  }
  int column_segment_count;

  // bwd_data: row of W that reduction index k (tap, output channel) means, at the tile's first column.
  TO_INLINE_MEMBER const Elem *weight_at(i64 k) const {
    i64 tap = k / c.Kg, channel = k % c.Kg;
    return c.in1 + (group * c.Kg + channel) * c.weight_row + taps[tap].weight * c.Cg + column;
  }

  // A is packed in slices: of one row (forward, bwd_data) or of one unit of the reduction.
  TO_INLINE_MEMBER i64 a_slices(const Panel &p, i64 row) const {
    return WEIGHT ? p.units : min64(TM, block_rows - row);
  }

  // `row`: of the block, the tile's first.
  TO_INLINE_MEMBER void pack_a(const Panel &p, float *buffer, i64 row, i64 from, i64 to) {
    TO_NO_UNROLL
    for (i64 s = from; s < to; ++s) {
      if constexpr (WEIGHT) {
        const Elem *first = c.in1 + (p.first + s * PK) * c.K + group * c.Kg + block_row + row;
        const Elem *second = s * PK + 1 < p.length ? first + c.K : nullptr;
        i64 live = min64(TM, block_rows - row);
        put_units(buffer + s * LDM, first, second, live, LDM);
      } else {
        gather_row((Gathered *)(buffer + s * LDA), image_base(), image, rows[row + s], p.segments, p.segment_count,
                   p.length);
      }
    }
  }

  TO_INLINE_MEMBER float *staged(i64 row, int j) const {
    return staging + (row / MM * (TN / MN) + j) * (i64)(MM * MN);
  }

  TO_INLINE_MEMBER void reduce_packed(const Grid &grid) {
    Panel &p = panel[0];
    for (i64 k = 0; k < reduction; k += TK) {
      open_panel(p, grid, k);
      pack_b(p, 0, b_slices(p));
      for (i64 row = 0; row < block_rows; row += TM) {
        pack_a(p, a[0], row, 0, a_slices(p, row));
        for (int j = 0; j < column_micros; ++j)
          for (i64 r = row; r < min64(row + TM, block_rows); r += MM)
            micro_packed(a[0] + (r - row) * (WEIGHT ? 1 : LDA), p.b + j * MN, staged(r, j), p.units, k == 0);
      }
    }
  }

  // Two buffers: while the micro-kernel works on one, slices of the next tile's A and of the next
  // panel's B are packed into the other between its calls, so that their loads hide behind arithmetic.
  TO_INLINE_MEMBER void reduce_double(const Grid &grid) {
    const i64 tiles = ceil_div(block_rows, TM);
    int buffer = 0;
    open_panel(panel[0], grid, 0);
    pack_b(panel[0], 0, b_slices(panel[0]));
    pack_a(panel[0], a[0], 0, 0, a_slices(panel[0], 0));
    int now = 0;
    for (i64 k = 0; k < reduction; k += TK, now ^= 1) {
      const Panel &p = panel[now];
      Panel &next = panel[now ^ 1];
      const bool more = k + TK < reduction;
      if (more) open_panel(next, grid, k + TK);
      const i64 b_all = more ? b_slices(next) : 0;
      const i64 b_share = ceil_div(b_all, tiles);
      for (i64 tile = 0; tile < tiles; ++tile, buffer ^= 1) {
        const i64 row = tile * TM, end = min64(row + TM, block_rows);
        const i64 calls = ceil_div(end - row, MM) * column_micros;
        i64 b_at = min64(b_all, tile * b_share);
        const i64 b_end = min64(b_all, b_at + b_share), b_step = ceil_div(b_end - b_at, calls);
        const bool same_panel = tile + 1 < tiles;
        const Panel &a_panel = same_panel ? p : next;
        const i64 a_row = same_panel ? row + TM : 0;
        const i64 a_end = same_panel || more ? a_slices(a_panel, a_row) : 0, a_step = ceil_div(a_end, calls);
        i64 a_at = 0;
        for (int j = 0; j < column_micros; ++j)
          for (i64 r = row; r < end; r += MM) {
            micro_packed(a[buffer] + (r - row) * (WEIGHT ? 1 : LDA), p.b + j * MN, staged(r, j), p.units, k == 0);
            if (a_at < a_end) {
              pack_a(a_panel, a[buffer ^ 1], a_row, a_at, min64(a_end, a_at + a_step));
              a_at += a_step;
            }
            if (b_at < b_end) {
              pack_b(next, b_at, min64(b_end, b_at + b_step));
              b_at += b_step;
            }
          }
      }
    }
  }

  TO_INLINE_MEMBER void reduce_in_place(const Grid &grid) {
    Panel &p = panel[0];
    const Elem *base = image_base();
    for (i64 k = 0; k < reduction; k += TK) {
      open_panel(p, grid, k);
      pack_b(p, 0, b_slices(p));
      for (i64 r = 0; r < block_rows; r += MM) {
#if TO_DIRECTION == TO_BWD_WEIGHT
        const Elem *first = c.in1 + p.first * c.K + group * c.Kg + block_row + r;
        const Elem *end = c.in1 + grid.rows * c.K;
        for (int j = 0; j < column_micros; ++j)
          micro_rows(first, c.K, p.length, min64(MM, block_rows - r), end, p.b + j * MN, staged(r, j), k == 0);
        (void)base;
#else
        if (DOT && run % 2) { // pairs would straddle segments: the rows of one micro-tile are gathered
          for (i64 i = 0; i < min64(MM, block_rows - r); ++i)
            gather_row((Gathered *)(a[0] + i * LDA), base, image, rows[r + i], p.segments, p.segment_count, p.length);
          for (int j = 0; j < column_micros; ++j)
            micro_packed(a[0], p.b + j * MN, staged(r, j), p.units, k == 0);
          continue;
        }
        for (int s = 0; s < p.segment_count; ++s) {
          const Segment &g = p.segments[s];
          for (int i = 0; i < MM; ++i) {
            const bool live = r + i < block_rows && inside_dhw(image, rows[r + i], g);
            pointers[s * MM + i] = live ? base + rows[r + i].base + g.delta + g.first : zeros;
          }
        }
        for (int j = 0; j < column_micros; ++j)
          micro_rows(pointers, p.segments, p.segment_count, p.b + j * MN, staged(r, j), k == 0);
#endif
      }
    }
  }

  TO_INLINE_MEMBER Elem *result_row(i64 r) const {
    if constexpr (WEIGHT) return c.out + (group * c.Kg + block_row + r) * c.weight_row + column;
    return c.out + rows[r].out + group * (TO_DIRECTION == TO_FORWARD ? c.Kg : c.Cg) + column;
  }

  TO_INLINE_MEMBER void write_result() {
    for (i64 r = 0; r < block_rows; ++r) {
      Elem *to = result_row(r);
      for (int j = 0; j < column_micros; ++j) {
        const float *line = staged(r, j) + r % MM * MN;
        i64 left = columns - (i64)j * MN;
        TO_NO_UNROLL
        for (i64 t = 0; t < MN && t < left; t += VW)
          store_n(to + j * MN + t, reduction ? load_v(line + t) : V{}, min64(VW, left - t));
      }
    }
  }

  TO_INLINE_MEMBER void run_class(const i64 (&residue)[3]) {
    const Grid grid = grid_of(c, residue);
    const i64 tap_count = list_taps(c, image, residue, merged, taps);
    const i64 m = WEIGHT ? c.Kg : grid.rows;
    const i64 n = WEIGHT ? c.weight_row : TO_DIRECTION == TO_FORWARD ? c.Kg : c.Cg;
    reduction = WEIGHT ? grid.rows : tap_count * run;
    for (block_row = 0; block_row < m; block_row += BLOCK_TILES * TM) {
      block_rows = min64(BLOCK_TILES * TM, m - block_row);
      if constexpr (!WEIGHT) fill_rows(grid, image, block_row, block_rows, rows);
      for (group = 0; group < c.G; ++group)
        for (column = 0; column < n; column += TN) {
          columns = min64(TN, n - column);
          column_micros = (int)ceil_div(columns, MN);
          if constexpr (WEIGHT) column_segment_count = cut_segments(taps, run, column, columns, column_segments);
          if (reduction) {
            if constexpr (TO_PIPELINE == TO_PACK_B)
              reduce_in_place(grid);
            else if constexpr (TO_PIPELINE == TO_PACK_AB)
              reduce_packed(grid);
            else
              reduce_double(grid);
          }
          write_result();
        }
    }
  }

  TO_INLINE_MEMBER void run_all() {
    if constexpr (TO_PIPELINE == TO_PACK_B) memset(zeros, 0, (TK + 2 * VW) * sizeof(Elem));
    i64 classes[3];
    class_extents(c, classes);
    i64 residue[3];
    for (residue[0] = 0; residue[0] < classes[0]; ++residue[0])
      for (residue[1] = 0; residue[1] < classes[1]; ++residue[1])
        for (residue[2] = 0; residue[2] < classes[2]; ++residue[2]) run_class(residue);
  }
};

} // namespace to
