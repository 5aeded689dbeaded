// The direct pipeline: nothing is packed and no sum leaves the registers before it is done (bwd_weight:
// before its panel is done).
//
// forward:    rows of X and of W are both contiguous along the channels: dot products with the lanes
//             along the reduction, DOT_ROWS x DOT_COLUMNS of them at a time, summed across lanes once.
// bwd_data:   outer products; dY in place through row pointers, W in place, its rows as vectors.
// bwd_weight: outer products; dY and X in place, tap by tap, over the positions that the tap maps into
//             the image.
// One channel in and out a group: see depthwise.hpp.
#pragma once

#include "depthwise.hpp"
#include "micro_kernel.hpp"

namespace to {

constexpr int DOT_ROWS = REGISTERS == 32 ? (MM % 6 == 0 ? 6 : MM % 4 == 0 ? 4 : 1)
                                         : (MM % 3 == 0 ? 3 : MM % 2 == 0 ? 2 : 1);
constexpr int DOT_COLUMNS = DOT_ROWS == 1 ? 8 : 4;
static_assert(MM % DOT_ROWS == 0, "micro-tile rows: 1, or a multiple of 2 or 3 (4 or 6 with 32 registers)");

TO_INLINE void write_block(Elem *to, const float *from, i64 columns) {
  TO_NO_UNROLL
  for (i64 t = 0; t < columns; t += VW) store_n(to + t, load_v(from + t), min64(VW, columns - t));
}

struct Direct {
  Conv c;
  Image image;
  bool depthwise;
  i64 tap_count;
  Tap *taps;
  Row *rows;           // of the tile
  const Elem **pointers; // [tap][TM]: the rows' elements of group 0, or null outside the image
  i64 *offsets;        // the same for depthwise: [tap][TM], -1 outside
  Elem *zeros;
  float *weights;      // depthwise: [tap][group]
  i64 weights_row;
  float *staging;      // bwd_weight

  TO_INLINE_MEMBER void plan(const to_conv_args &args, Arena &arena) {
    c = conv_of(args);
    image = image_of(c);
    depthwise = c.Cg == 1 && c.Kg == 1;
    taps = arena.take<Tap>(c.taps);
    rows = arena.take<Row>(WEIGHT ? 0 : TM);
    pointers = arena.take<const Elem *>(WEIGHT || depthwise ? 0 : c.taps * TM);
    offsets = arena.take<i64>(depthwise && !WEIGHT ? c.taps * TM : 0);
    zeros = arena.take<Elem>(TK + 4 * VW);
    weights_row = ceil_div(c.G, LANE_VECTORS * VW) * LANE_VECTORS * VW;
    weights = arena.take<float>(depthwise && !WEIGHT ? c.taps * weights_row : 0);
    staging = arena.take<float>(WEIGHT ? TM * TN : 0);
  }

  TO_INLINE_MEMBER void find_pointers(i64 count) {
    for (i64 t = 0; t < tap_count; ++t)
      for (i64 i = 0; i < TM; ++i)
        pointers[t * TM + i] = i < count && inside_dhw(image, rows[i], taps[t]) ? c.in0 + rows[i].base + taps[t].delta
                                                                              : nullptr;
  }

#if TO_DIRECTION == TO_FORWARD

  struct Dots {
    V sum[DOT_ROWS][DOT_COLUMNS];

    TO_INLINE_MEMBER void add(const Elem *const (&a)[DOT_ROWS], const Elem *const (&b)[DOT_COLUMNS], i64 at, i64 live) {
      V bv[DOT_COLUMNS];
      const bool whole = live >= GV;
      TO_UNROLL
      for (int j = 0; j < DOT_COLUMNS; ++j) bv[j] = whole ? units(b[j] + at) : units_n(b[j] + at, live);
      TO_UNROLL
      for (int i = 0; i < DOT_ROWS; ++i) {
        V av = whole ? units(a[i] + at) : units_n(a[i] + at, live);
        TO_UNROLL
        for (int j = 0; j < DOT_COLUMNS; ++j) sum[i][j] = mac(sum[i][j], av, bv[j]);
      }
    }
    TO_INLINE_MEMBER static V units(const Elem *p) {
      if constexpr (DOT) return (V)load_raw((const uint16_t *)p);
      return load(p);
    }
    TO_INLINE_MEMBER static V units_n(const Elem *p, i64 live) {
      if constexpr (DOT) return (V)load_raw_n((const uint16_t *)p, live);
      return load_n(p, live);
    }

    TO_INLINE_MEMBER void run(const Elem *const (&a)[DOT_ROWS], const Elem *const (&b)[DOT_COLUMNS], i64 length) {
      i64 at = 0;
      TO_NO_UNROLL
      for (; at + GV <= length; at += GV) add(a, b, at, GV);
      if (at < length) add(a, b, at, length - at);
    }
  };

  // Rows [row, row + DOT_ROWS) of the tile, columns [column, column + DOT_COLUMNS) of the group.
  TO_NOINLINE_MEMBER void dot_block(i64 group, i64 row, i64 column, i64 live_rows) const {
    Dots dots;
    TO_UNROLL
    for (int i = 0; i < DOT_ROWS; ++i) {
      TO_UNROLL
      for (int j = 0; j < DOT_COLUMNS; ++j) dots.sum[i][j] = V{};
    }
    const i64 live_columns = min64(DOT_COLUMNS, c.Kg - column);
    const Elem *w[DOT_COLUMNS];
    for (int j = 0; j < DOT_COLUMNS; ++j)
      w[j] = c.in1 + (group * c.Kg + column + min64(j, live_columns - 1)) * c.weight_row;
    const i64 image_group = group * c.Cg;
    // A narrow run is joined with its neighbours along the filter row where no row leaves the image.
    const bool merged = can_merge(c) && c.Cg < 2 * GV;
    const i64 xs = c.filter[2];
    const Elem *a[DOT_ROWS];
    const Elem *b[DOT_COLUMNS];
    for (i64 first = 0; first < c.Cg; first += TK) {
      const i64 length = min64(TK, c.Cg - first);
      for (i64 t = 0; t < tap_count; ++t) {
        const Elem *const *p = pointers + t * TM + row;
        i64 run = length;
        bool any = false;
        if (merged && length == c.Cg && taps[t].weight % xs == 0) {
          bool all = t + xs <= tap_count && taps[t + xs - 1].weight == taps[t].weight + xs - 1;
          for (int i = 0; all && i < DOT_ROWS; ++i) all = p[i] && p[(xs - 1) * TM + i];
          if (all) run = c.Cg * xs;
        }
        for (int i = 0; i < DOT_ROWS; ++i) {
          a[i] = p[i] ? p[i] + image_group + first : zeros;
          any = any || p[i];
        }
        if (!any) continue;
        for (int j = 0; j < DOT_COLUMNS; ++j) b[j] = w[j] + taps[t].weight * c.Cg + first;
        dots.run(a, b, run);
        if (run > length) t += xs - 1;
      }
    }
    float sums[DOT_ROWS][DOT_COLUMNS];
    TO_UNROLL
    for (int i = 0; i < DOT_ROWS; ++i) {
      TO_UNROLL
      for (int j = 0; j < DOT_COLUMNS; ++j) sums[i][j] = sum_lanes(dots.sum[i][j]);
    }
    for (i64 i = 0; i < min64(DOT_ROWS, live_rows - row); ++i)
      for (i64 j = 0; j < live_columns; ++j)
        store_scalar(c.out + rows[row + i].out + group * c.Kg + column + j, sums[i][j]);
  }

  TO_INLINE_MEMBER void tile(i64 group, i64 column, i64 live_rows) const {
    const i64 end = min64(column + TN, c.Kg);
    for (i64 n = column; n < end; n += MN)
      for (i64 m = 0; m < live_rows; m += MM)
        for (i64 j = n; j < min64(n + MN, end); j += DOT_COLUMNS)
          for (i64 i = m; i < min64(m + MM, live_rows); i += DOT_ROWS) dot_block(group, i, j, live_rows);
  }

#elif TO_DIRECTION == TO_BWD_DATA

  TO_NOINLINE_MEMBER void outer_block(i64 group, i64 row, i64 column, i64 live_rows) const {
    float block[MM * MN];
    const Elem *end = c.in1 + c.K * c.weight_row;
    const i64 live = min64(MN, c.Cg - column);
    TO_NO_UNROLL
    for (int j0 = 0; j0 < NV; j0 += JC) {
      Accumulators acc;
      acc.start(block, true);
      for (i64 first = 0; first < c.Kg; first += TK) {
        const i64 length = min64(TK, c.Kg - first);
        for (i64 t = 0; t < tap_count; ++t) {
          const Elem *a[MM];
          bool any = false;
          for (int i = 0; i < MM; ++i) {
            const Elem *p = pointers[t * TM + row + i];
            a[i] = p ? p + group * c.Kg + first : zeros;
            any = any || p;
          }
          if (!any) continue;
          const Elem *w = c.in1 + (group * c.Kg + first) * c.weight_row + taps[t].weight * c.Cg + column + j0 * VW;
          // Lanes beyond the group's columns read what follows in W and are never stored.
          const bool inside_w = end - (w + (length - 1) * c.weight_row) >= JC * VW;
          if (inside_w)
            add<true>(acc, a, w, length, live - j0 * VW);
          else
            add<false>(acc, a, w, length, live - j0 * VW);
        }
      }
      acc.finish(block + j0 * VW);
    }
    if constexpr (TO_TRANSPOSED)
      return write_transposed(block, rows[row].out / c.C, min64(MM, live_rows - row), column, live);
    for (i64 i = 0; i < min64(MM, live_rows - row); ++i)
      write_block(c.out + rows[row + i].out + group * c.Cg + column, block + i * MN, live);
  }

  // A column of the block at a time, whose positions then lie together.
  TO_INLINE_MEMBER void write_transposed(const float *block, i64 position, i64 positions, i64 column,
                                         i64 columns) const {
    for (i64 j = 0; j < columns; ++j) {
      float line[MM + VW] = {};
      for (i64 i = 0; i < positions; ++i) line[i] = block[i * MN + j];
      write_block(c.out + (column + j) * c.in_extent[2] + position, line, positions);
    }
  }

  template <bool Inside>
  TO_INLINE_MEMBER void add(Accumulators &acc, const Elem *const (&a)[MM], const Elem *w, i64 length, i64 live) const {
    const i64 ld = c.weight_row;
    if constexpr (sizeof(Elem) == 4) {
      acc.run<false>([&](int i, i64 k) __attribute__((always_inline)) { return splat((float)a[i][k]); },
                     [=](int j, i64 k) __attribute__((always_inline)) { return columns<Inside>(w + k * ld, j, live); },
                     length);
    } else {
      float lines[MM][VW];
      TO_NO_UNROLL
      for (i64 k0 = 0; k0 < length; k0 += VW) {
        i64 n = min64(VW, length - k0);
        TO_NO_UNROLL
        for (int i = 0; i < MM; ++i) store_v(lines[i], n == VW ? load(a[i] + k0) : load_n(a[i] + k0, n));
        const Elem *wk = w + k0 * ld;
        acc.run<false>([&](int i, i64 k) __attribute__((always_inline)) { return splat(lines[i][k]); },
                       [=](int j, i64 k) __attribute__((always_inline)) {
                         return columns<Inside>(wk + k * ld, j, live);
                       },
                       n);
      }
    }
  }

  TO_INLINE_MEMBER void tile(i64 group, i64 column, i64 live_rows) const {
    const i64 end = min64(column + TN, c.Cg);
    for (i64 n = column; n < end; n += MN)
      for (i64 m = 0; m < live_rows; m += MM) outer_block(group, m, n, live_rows);
  }

#endif

  template <bool Inside> TO_INLINE_MEMBER static V columns(const Elem *p, int j, i64 live) {
    if constexpr (Inside) return load(p + j * VW);
    i64 n = max64(0, min64(VW, live - j * VW));
    return n ? load_n(p + j * VW, n) : V{};
  }

#if TO_DIRECTION != TO_BWD_WEIGHT

  void run_class(const i64 (&residue)[3]) {
    const Grid grid = grid_of(c, residue);
    tap_count = list_taps(c, image, residue, false, taps);
    if (depthwise) depthwise_weights(c, taps, tap_count, weights, weights_row);
    const i64 n = TO_DIRECTION == TO_FORWARD ? c.Kg : c.Cg;
    for (i64 m = 0; m < grid.rows; m += TM) {
      const i64 count = min64(TM, grid.rows - m);
      fill_rows(grid, image, m, count, rows);
      if (depthwise) {
        depthwise_tile(count);
        continue;
      }
      find_pointers(count);
      for (i64 group = 0; group < c.G; ++group)
        for (i64 column = 0; column < n; column += TN) tile(group, column, count);
    }
  }

  TO_INLINE_MEMBER void depthwise_tile(i64 count) {
    for (i64 t = 0; t < tap_count; ++t)
      for (i64 i = 0; i < count; ++i)
        offsets[t * TM + i] = inside_dhw(image, rows[i], taps[t]) ? rows[i].base + taps[t].delta : -1;
    constexpr int wide = LANE_VECTORS * VW;
    for (i64 i = 0; i < count; ++i) {
      Elem *to = c.out + rows[i].out;
      i64 g = 0;
      for (; g + wide <= c.G; g += wide)
        depthwise_row<LANE_VECTORS, true>(c.in0 + g, offsets + i, tap_count, weights + g, weights_row, to + g, wide);
      for (; g < c.G; g += VW)
        depthwise_row<1, false>(c.in0 + g, offsets + i, tap_count, weights + g, weights_row, to + g,
                                min64(VW, c.G - g));
    }
  }

  TO_INLINE_MEMBER void run_all() {
    memset(zeros, 0, (TK + 4 * VW) * sizeof(Elem));
    i64 classes[3];
    class_extents(c, classes);
    i64 residue[3];
    for (residue[0] = 0; residue[0] < classes[0]; ++residue[0])
      for (residue[1] = 0; residue[1] < classes[1]; ++residue[1])
        for (residue[2] = 0; residue[2] < classes[2]; ++residue[2]) run_class(residue);
  }

#else

  // Output positions [low, high) along each axis that the tap maps into the image.
  TO_INLINE_MEMBER void valid_range(const Tap &t, i64 (&low)[3], i64 (&high)[3]) const {
    const i64 offset[3] = {t.d, t.h, t.w};
    for (int x = 0; x < 3; ++x) {
      low[x] = offset[x] < 0 ? ceil_div(-offset[x], c.stride[x]) : 0;
      const i64 room = c.in_extent[x] - 1 - offset[x];
      high[x] = room >= 0 ? min64(c.out_extent[x], room / c.stride[x] + 1) : 0;
    }
  }

  // Adds `length` positions, all inside the image, to one micro-tile. `live`: channels of each that exist.
  TO_NOINLINE_MEMBER void outer_block(const Elem *y, const Elem *x, i64 length, i64 live_m, i64 live_n,
                                      float *block) const {
    const Elem *y_end = c.in1 + c.N * c.out_extent[0] * c.out_extent[1] * c.out_extent[2] * c.K;
    const Elem *x_end = c.in0 + c.N * image.batch;
    const i64 x_row = c.stride[2] * c.C;
    TO_NO_UNROLL
    for (int j0 = 0; j0 < NV; j0 += JC) {
      Accumulators acc;
      acc.start(block + j0 * VW, false);
      if (x_end - (x + (length - 1) * x_row + j0 * VW) >= JC * VW)
        add<true>(acc, y, y_end, x + j0 * VW, x_row, length, live_m, live_n - j0 * VW);
      else
        add<false>(acc, y, y_end, x + j0 * VW, x_row, length, live_m, live_n - j0 * VW);
      acc.finish(block + j0 * VW);
    }
  }

  template <bool Inside>
  TO_INLINE_MEMBER void add(Accumulators &acc, const Elem *y, const Elem *y_end, const Elem *x, i64 x_row, i64 length,
                            i64 live_m, i64 live_n) const {
    constexpr int BLOCK = 16;
    const i64 y_row = c.K;
    float lines[BLOCK][MMP];
    TO_NO_UNROLL
    for (i64 k0 = 0; k0 < length; k0 += BLOCK) {
      const i64 n = min64(BLOCK, length - k0);
      TO_NO_UNROLL
      for (i64 k = 0; k < n; ++k) {
        const Elem *p = y + (k0 + k) * y_row;
        const i64 live = y_end - p >= MMP ? MMP : live_m;
        TO_UNROLL
        for (int t = 0; t < MMP; t += VW)
          store_v(lines[k] + t, live - t >= VW ? load(p + t) : live > t ? load_n(p + t, live - t) : V{});
      }
      const Elem *xk = x + k0 * x_row;
      acc.run<false>([&](int i, i64 k) __attribute__((always_inline)) { return splat(lines[k][i]); },
                     [=](int j, i64 k) __attribute__((always_inline)) {
                       return columns<Inside>(xk + k * x_row, j, live_n);
                     },
                     n);
    }
  }

  // One tile of one tap: output channels [row, row + TM), input channels [column, column + TN).
  TO_INLINE_MEMBER void tile(i64 group, const Tap &t, i64 row, i64 column) const {
    const i64 end_m = min64(row + TM, c.Kg), end_n = min64(column + TN, c.Cg);
    i64 low[3], high[3];
    valid_range(t, low, high);
    memset(staging, 0, TM * TN * sizeof(float));
    const i64 width = high[2] - low[2];
    if (width > 0)
      for (i64 n = 0; n < c.N; ++n)
        for (i64 d = low[0]; d < high[0]; ++d)
          for (i64 h = low[1]; h < high[1]; ++h)
            for (i64 w = low[2]; w < high[2]; w += TK) {
              const Elem *x = c.in0 + n * image.batch + d * c.stride[0] * image.step[0] +
                              h * c.stride[1] * image.step[1] + w * c.stride[2] * image.step[2] + t.delta +
                              group * c.Cg;
              const Elem *y = c.in1 + (((n * c.out_extent[0] + d) * c.out_extent[1] + h) * c.out_extent[2] + w) * c.K +
                              group * c.Kg;
              for (i64 j = column; j < end_n; j += MN)
                for (i64 i = row; i < end_m; i += MM)
                  outer_block(y + i, x + j, min64(TK, high[2] - w), min64(MM, end_m - i), min64(MN, end_n - j),
                              block_at(i - row, j - column));
            }
    for (i64 i = row; i < end_m; ++i)
      for (i64 j = column; j < end_n; j += MN)
        write_block(c.out + (group * c.Kg + i) * c.weight_row + t.weight * c.Cg + j,
                    block_at(i - row, j - column) + (i - row) % MM * MN, min64(MN, end_n - j));
  }
  TO_INLINE_MEMBER float *block_at(i64 m, i64 n) const { return staging + (m / MM * (TN / MN) + n / MN) * (MM * MN); }

  TO_INLINE_MEMBER void run_all() {
    const i64 none[3] = {0, 0, 0};
    tap_count = list_taps(c, image, none, false, taps);
    for (i64 t = 0; t < tap_count; ++t) {
      if (depthwise) {
        i64 low[3], high[3], g = 0;
        valid_range(taps[t], low, high);
        constexpr int wide = LANE_VECTORS * VW;
        for (; g + wide <= c.G; g += wide) depthwise_tap<LANE_VECTORS, true>(c, image, taps[t], low, high, g, wide);
        for (; g < c.G; g += VW) depthwise_tap<1, false>(c, image, taps[t], low, high, g, min64(VW, c.G - g));
        continue;
      }
      for (i64 group = 0; group < c.G; ++group)
        for (i64 row = 0; row < c.Kg; row += TM)
          for (i64 column = 0; column < c.Cg; column += TN) tile(group, taps[t], row, column);
    }
  }

#endif
};

} // namespace to
