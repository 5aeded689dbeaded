// The packed pipelines: cache blocking around the micro-kernel.
//
// Loops, outside in: residue class, block of rows, group, block of columns, panel of TILE_K of the
// reduction, tiles of TILE_M x TILE_N, micro-tiles. Sums of a block stay in fp32 in a staging buffer
// from panel to panel and are rounded once, at the end.
//
// PACK_B, PACK_AB:  a block is TILE_N columns wide and as many rows high as staging takes. B of a panel is
//                   packed once a block; A is read in place, or packed tile by tile.
// PACK_AB_DOUBLE:   a block is several tiles both ways. A of a panel is packed once for all columns of the
//                   block; B has two buffers, and slices of the next tile's are packed while the
//                   micro-kernel works on this one's.
#pragma once

#include "micro_kernel.hpp"

namespace to {

constexpr bool DOUBLE = TO_PIPELINE == TO_PACK_AB_DOUBLE;
constexpr int BUFFERS = DOUBLE ? 2 : 1;
constexpr i64 STAGED = DOUBLE ? 131072 : 65536; // fp32 sums of a block: about what a second-level cache spares
constexpr i64 WIDEST = DOUBLE && TN < 512 ? 512 / TN * TN : TN; // columns of a block
constexpr i64 KEPT = 65536; // units of A that are kept for the next columns of a block
constexpr i64 A_TILE = WEIGHT ? UNITS * LDM : TM * LDA;

// One panel of the reduction.
struct Panel {
  i64 first;
  i64 length; // elements
  i64 units;
  int segment_count;
  Segment *segments; // forward, bwd_data: of the reduction range
  Row *rows;         // bwd_weight: positions of the reduction range
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
  float *a;
  Panel panel[2];
  float *b[2];
  i64 m, n, reduction;                 // the implicit GEMM of one group and class
  i64 rows_high, columns_wide;         // of a block, at most
  i64 group, block_row, block_rows, block_column, block_columns; // the block at work
  i64 column, columns, column_micros;  // the tile of columns at work; its live micro-tiles
  int column_segment_count;

  TO_INLINE_MEMBER void plan(const to_conv_args &args, Arena &arena) {
    c = conv_of(args);
    image = image_of(c);
    merged = TO_PIPELINE != TO_PACK_B && can_merge(c);
    run = merged ? c.filter[2] * c.Cg : image.run_channels;
    const i64 none[3] = {0, 0, 0};
    m = WEIGHT ? c.Kg : grid_of(c, none).rows; // class 0 is the largest
    n = WEIGHT ? c.weight_row : TO_DIRECTION == TO_FORWARD ? c.Kg : c.Cg;
    columns_wide = min64(WIDEST, ceil_div(n, TN) * TN);
    i64 tiles = STAGED / columns_wide / TM;
    const bool kept = columns_wide > TN;
    if (kept) tiles = min64(tiles, KEPT / A_TILE);
    rows_high = min64(max64(tiles, 1), ceil_div(m, TM)) * TM;
    taps = arena.take<Tap>(c.taps);
    rows = arena.take<Row>(WEIGHT ? 0 : rows_high);
    column_segments = arena.take<Segment>(WEIGHT ? TN : 0);
    pointers = arena.take<const Elem *>(TO_PIPELINE == TO_PACK_B ? TK * MM : 0);
    zeros = arena.take<Elem>(TK + 2 * VW);
    gathered = arena.take<Gathered>(2 * (TN + GV));
    staging = arena.take<float>(rows_high * columns_wide);
    a = arena.take<float>((TO_PIPELINE == TO_PACK_B ? MM * LDA : kept ? rows_high / TM * A_TILE : A_TILE) + VW);
    for (int i = 0; i < BUFFERS; ++i) {
      b[i] = arena.take<float>(UNITS * TN + VW);
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

  TO_INLINE_MEMBER void open_columns(i64 first) {
    column = first;
    columns = min64(TN, block_column + block_columns - first);
    column_micros = ceil_div(columns, MN);
    if constexpr (WEIGHT) column_segment_count = cut_segments(taps, run, column, columns, column_segments);
  }

  // B is packed in slices: of VW columns (forward) or of one unit of the reduction.
  TO_INLINE_MEMBER i64 b_slices(const Panel &p) const {
    return TO_DIRECTION == TO_FORWARD ? ceil_div(columns, VW) : p.units;
  }

  TO_INLINE_MEMBER void pack_b(const Panel &p, float *buffer, i64 from, i64 to) {
    const i64 width = column_micros * MN;
    TO_NO_UNROLL
    for (i64 s = from; s < to; ++s) {
      if constexpr (TO_DIRECTION == TO_FORWARD) {
        const Elem *w = c.in1 + (group * c.Kg + column + s * VW) * c.weight_row + p.first;
        put_transposed(buffer + s * VW, TN, w, c.weight_row, min64(VW, columns - s * VW), p.length);
      } else if constexpr (TO_DIRECTION == TO_BWD_DATA) {
        const Elem *second = nullptr;
        const Elem *first = weight_at(p.first + s * PK);
        if (DOT && s * PK + 1 < p.length) second = weight_at(p.first + s * PK + 1);
        put_units(buffer + s * TN, first, second, columns, width);
      } else if constexpr (DOT) {
        const uint16_t *low = (const uint16_t *)gathered, *high = low + TN + GV;
        const bool pair = 2 * s + 1 < p.length;
        gather_row(gathered, image_base(), image, p.rows[2 * s], column_segments, column_segment_count, columns);
        if (pair)
          gather_row(gathered + TN + GV, image_base(), image, p.rows[2 * s + 1], column_segments,
                     column_segment_count, columns);
        put_units(buffer + s * TN, (const Elem *)low, pair ? (const Elem *)high : nullptr, columns, width);
      } else {
        gather_row((Gathered *)(buffer + s * TN), image_base(), image, p.rows[s], column_segments, column_segment_count,
                   columns);
      }
    }
  }

  // bwd_data: row of W that reduction index k (tap, output channel) means, at the tile's first column.
  TO_INLINE_MEMBER const Elem *weight_at(i64 k) const {
    i64 tap = k / c.Kg, channel = k % c.Kg;
    return c.in1 + (group * c.Kg + channel) * c.weight_row + taps[tap].weight * c.Cg + column;
  }

  // A of one tile. `row`: of the block, the tile's first.
  TO_INLINE_MEMBER void pack_a(const Panel &p, float *buffer, i64 row) {
    const i64 slices = WEIGHT ? p.units : min64(TM, block_rows - row);
    TO_NO_UNROLL
    for (i64 s = 0; s < slices; ++s) {
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

  // Sums of a micro-tile: `row` of the block, column micro-tile `j` of the block.
  TO_INLINE_MEMBER float *staged(i64 row, i64 j) const {
    return staging + (row / MM * (columns_wide / MN) + j) * (i64)(MM * MN);
  }

  // One tile of packed A and B. `row`: of the block; `j0`: the tile's first column micro-tile in the block.
  TO_INLINE_MEMBER void multiply(const float *tile_a, const float *tile_b, i64 row, i64 j0, const Panel &p) {
    const i64 end = min64(row + TM, block_rows);
    for (i64 j = 0; j < column_micros; ++j)
      for (i64 r = row; r < end; r += MM)
        micro_packed(tile_a + (r - row) * (WEIGHT ? 1 : LDA), tile_b + j * MN, staged(r, j0 + j), p.units,
                     p.first == 0);
  }

  TO_INLINE_MEMBER void reduce_packed(const Grid &grid) {
    Panel &p = panel[0];
    open_columns(block_column);
    for (i64 k = 0; k < reduction; k += TK) {
      open_panel(p, grid, k);
      pack_b(p, b[0], 0, b_slices(p));
      for (i64 row = 0; row < block_rows; row += TM) {
        pack_a(p, a, row);
        multiply(a, b[0], row, 0, p);
      }
    }
  }

  TO_INLINE_MEMBER void reduce_double(const Grid &grid) {
    const i64 row_tiles = ceil_div(block_rows, TM), column_tiles = ceil_div(block_columns, TN);
    const bool kept = columns_wide > TN; // A of all tiles, for the next columns
    int now = 0;    // the panel at work
    int buffer = 0; // the buffer of B at work
    open_panel(panel[0], grid, 0);
    open_columns(block_column);
    pack_b(panel[0], b[0], 0, b_slices(panel[0]));
    for (i64 k = 0; k < reduction; k += TK, now ^= 1) {
      const Panel &p = panel[now];
      const bool more = k + TK < reduction;
      if (more) open_panel(panel[now ^ 1], grid, k + TK);
      for (i64 tile = 0; tile < column_tiles; ++tile, buffer ^= 1) {
        const i64 here = block_column + tile * TN;
        const i64 micros = ceil_div(min64(TN, block_column + block_columns - here), MN);
        // What comes next: the next columns of this panel, or the first of the next one.
        const bool same = tile + 1 < column_tiles;
        const Panel &source = same ? p : panel[now ^ 1];
        open_columns(same ? here + TN : block_column);
        const i64 slices = same || more ? b_slices(source) : 0, share = ceil_div(slices, row_tiles);
        for (i64 t = 0; t < row_tiles; ++t) {
          float *tile_a = a + (kept ? t * A_TILE : 0);
          if (tile == 0) pack_a(p, tile_a, t * TM);
          const i64 next_micros = column_micros;
          column_micros = micros;
          multiply(tile_a, b[buffer], t * TM, tile * (TN / MN), p);
          column_micros = next_micros;
          pack_b(source, b[buffer ^ 1], min64(slices, t * share), min64(slices, (t + 1) * share));
        }
      }
    }
  }

  TO_INLINE_MEMBER void reduce_in_place(const Grid &grid) {
    Panel &p = panel[0];
    const Elem *base = image_base();
    open_columns(block_column);
    for (i64 k = 0; k < reduction; k += TK) {
      open_panel(p, grid, k);
      pack_b(p, b[0], 0, b_slices(p));
      for (i64 r = 0; r < block_rows; r += MM) {
#if TO_DIRECTION == TO_BWD_WEIGHT
        const Elem *first = c.in1 + p.first * c.K + group * c.Kg + block_row + r;
        const Elem *end = c.in1 + grid.rows * c.K;
        for (i64 j = 0; j < column_micros; ++j)
          micro_rows(first, c.K, p.length, min64(MM, block_rows - r), end, b[0] + j * MN, staged(r, j), k == 0);
        (void)base;
#else
        if (DOT && run % 2) { // pairs would straddle segments: the rows of one micro-tile are gathered
          for (i64 i = 0; i < min64(MM, block_rows - r); ++i)
            gather_row((Gathered *)(a + i * LDA), base, image, rows[r + i], p.segments, p.segment_count, p.length);
          for (i64 j = 0; j < column_micros; ++j)
            micro_packed(a, b[0] + j * MN, staged(r, j), p.units, k == 0);
          continue;
        }
        for (int s = 0; s < p.segment_count; ++s) {
          const Segment &g = p.segments[s];
          for (int i = 0; i < MM; ++i) {
            const bool live = r + i < block_rows && inside_dhw(image, rows[r + i], g);
            pointers[s * MM + i] = live ? base + rows[r + i].base + g.delta + g.first : zeros;
          }
        }
        for (i64 j = 0; j < column_micros; ++j)
          micro_rows(pointers, p.segments, p.segment_count, b[0] + j * MN, staged(r, j), k == 0);
#endif
      }
    }
  }

  TO_INLINE_MEMBER Elem *result_row(i64 r) const {
    if constexpr (WEIGHT) return c.out + (group * c.Kg + block_row + r) * c.weight_row + block_column;
    return c.out + rows[r].out + group * n + block_column;
  }

  // TO_TRANSPOSED: a column of the block at a time, whose rows then lie together.
  TO_INLINE_MEMBER void write_transposed() {
    for (i64 column = 0; column < block_columns; ++column) {
      Elem *to = c.out + (block_column + column) * c.in_extent[2] + block_row;
      TO_NO_UNROLL
      for (i64 r = 0; r < block_rows; r += VW) {
        const i64 live = min64(VW, block_rows - r);
        float line[VW] = {};
        for (i64 t = 0; t < live; ++t)
          line[t] = staged(r + t, column / MN)[(r + t) % MM * MN + column % MN];
        store_n(to + r, load_v(line), live);
      }
    }
  }

  TO_INLINE_MEMBER void write_result() {
    if constexpr (TO_TRANSPOSED) return write_transposed();
    for (i64 r = 0; r < block_rows; ++r) {
      Elem *to = result_row(r);
      for (i64 j = 0; j * MN < block_columns; ++j) {
        const float *line = staged(r, j) + r % MM * MN;
        const i64 left = block_columns - j * MN;
        TO_NO_UNROLL
        for (i64 t = 0; t < MN && t < left; t += VW)
          store_n(to + j * MN + t, reduction ? load_v(line + t) : V{}, min64(VW, left - t));
      }
    }
  }

  TO_INLINE_MEMBER void run_class(const i64 (&residue)[3]) {
    const Grid grid = grid_of(c, residue);
    const i64 tap_count = list_taps(c, image, residue, merged, taps);
    if constexpr (!WEIGHT) m = grid.rows;
    reduction = WEIGHT ? grid.rows : tap_count * run;
    for (block_row = 0; block_row < m; block_row += rows_high) {
      block_rows = min64(rows_high, m - block_row);
      if constexpr (!WEIGHT) fill_rows(grid, image, block_row, block_rows, rows);
      for (group = 0; group < c.G; ++group)
        for (block_column = 0; block_column < n; block_column += columns_wide) {
          block_columns = min64(columns_wide, n - block_column);
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
