// From accumulators to memory: rounded once (fp32: not at all), or as fp32 into the workspace of a two-stage kernel.
#pragma once

#include "pipeline.hpp"

namespace to {

template <bool WIDE> struct StoredOf { using type = u16; };
template <> struct StoredOf<true> { using type = float; };
using Rounded = typename StoredOf<ELEMENT_BYTES == 4>::type; // of the result as the caller sees it
using Stored = typename StoredOf<RESULT_BYTES == 4>::type;
constexpr int STORED_UNITS = sizeof(Stored) / ELEMENT_BYTES; // in the LDS that tiles lay in
// Elements of one store of the cshuffle epilogue.
constexpr int STORE = VECTOR_C * STORED_UNITS > UNIT ? UNIT / STORED_UNITS : VECTOR_C;

// Where element (m, n) of the GEMM's result lies.
#if TO_IS_GEMM
struct Output {
  const Gemm &g;
  Stored *first;
  bool aligned_store, aligned_run;

  TO_DEVICE Output(const Gemm &gemm, const Arguments &p) : g(gemm), first((Stored *)p.c) {
    aligned_store = !PAD_N || g.n % STORE == 0;
    aligned_run = !PAD_N || g.n % RUN == 0;
  }

  struct Row {
    Stored *base;
    bool live;
  };
  TO_DEVICE Row row(int r) const {
    int m = g.first_m + r;
    return Row{first + (i64)m * g.n, !PAD_M || m < g.m};
  }
  // The address of column n, or null where nothing is stored.
  TO_DEVICE Stored *at(const Row &row, int n) const {
    return !row.live || (PAD_N && n >= g.n) ? nullptr : row.base + n;
  }
};
#else
struct Output {
  const Gemm &g;
  Stored *first;
  i64 pitch;
  bool aligned_store, aligned_run;

  TO_DEVICE Output(const Gemm &gemm, const Arguments &p) : g(gemm) {
    if constexpr (BWD_WEIGHT) {
      pitch = (i64)g.taps * g.group_c;
      i64 group = (i64)g.group_k * pitch;
      first = (Stored *)(TWO_STAGE ? p.workspace : p.out) + g.first_group * group;
      if constexpr (TWO_STAGE) first += (i64)block_z() * p.G * group;
    } else {
      pitch = FORWARD ? p.K : p.C;
      first = (Stored *)p.out + (i64)g.first_group * (FORWARD ? g.group_k : g.group_c);
      if constexpr (SPLIT_IMAGE) first += (i64)g.image * g.m * pitch;
    }
    // Rows, groups and the last column all begin and end at whole vectors.
    int grain = BWD_WEIGHT ? (MERGE > 1 ? g.group_c : (int)(pitch % 8)) : g.n;
    int all = grain | (int)(pitch % 8);
    aligned_store = !PAD_N || all % STORE == 0;
    aligned_run = !PAD_N || all % RUN == 0;
  }

  struct Row {
    Stored *base;
    int group; // bwd_weight with merged groups: of this row
    bool live;
  };

  TO_DEVICE Row row(int r) const {
    int m = g.first_m + r;
    Row row{first, 0, g.whole_m() || m < g.m};
    if constexpr (BWD_DATA && !EXPLICIT_GEMM) {
      Pixel p = pixel_of(g, row.live ? m : 0);
      i64 at = p.n;
      if constexpr (IS_3D) at = at * g.d.out_extent + g.d.out_first + p.d * g.d.out_step;
      at = at * g.h.out_extent + g.h.out_first + p.h * g.h.out_step;
      at = at * g.w.out_extent + g.w.out_first + p.w * g.w.out_step;
      row.base += at * pitch;
    } else {
      row.base += m * pitch;
    }
    if constexpr (BWD_WEIGHT && MERGE > 1) row.group = g.by_group_k.quotient(row.live ? m : 0);
    return row;
  }

  // The address of column n (of the GEMM), or null where nothing is stored.
  TO_DEVICE Stored *at(const Row &row, int n) const {
    if (!row.live || (PAD_N && n >= g.n)) return nullptr;
    if constexpr (BWD_WEIGHT && MERGE > 1) {
      // Products of different groups were computed too; they are nobody's.
      int tap = g.by_channels.quotient(n), channel = n - tap * g.read_channels - row.group * g.group_c;
      if ((u32)channel >= (u32)g.group_c) return nullptr;
      return row.base + (i64)tap * g.group_c + channel;
    }
    return row.base + n;
  }
};
#endif

TO_DEVICE void put(u16 *to, float x) { global_store<u16>(to, narrow(x)); }
TO_DEVICE void put(float *to, float x) { global_store<float>(to, x); }
#if TO_GFX950
TO_DEVICE U2 packed(const float (&x)[RUN], u16) { return U2{narrow2(x[0], x[1]), narrow2(x[2], x[3])}; }
TO_DEVICE F4 packed(const float (&x)[RUN], float) { return F4{x[0], x[1], x[2], x[3]}; }
#else
TO_DEVICE u32 packed(const float (&x)[RUN], u16) { return narrow2(x[0], x[1]); }
TO_DEVICE F2 packed(const float (&x)[RUN], float) { return F2{x[0], x[1]}; }
#endif

// default: every lane stores what it holds, RUN neighbours at a time.
TO_DEVICE void store_directly(const Result &r, const Output &out, int first_n) {
  TO_UNROLL
  for (int i = 0; i < BLOCKS_M; ++i) {
    TO_UNROLL
    for (int j = 0; j < BLOCKS_N; ++j)
      each_run(r.acc[i][j], [&](int m, int n, const float (&x)[RUN]) __attribute__((always_inline)) {
        Output::Row row = out.row(r.row(i) + m);
        int column = first_n + r.column(j) + n;
        if (out.aligned_run) {
          Stored *to = out.at(row, column);
          if (to) global_store(to, packed(x, Stored{}));
        } else {
          TO_UNROLL
          for (int e = 0; e < RUN; ++e) {
            Stored *to = out.at(row, column + e);
            if (to) put(to, x[e]);
          }
        }
      });
  }
}

// cshuffle: through LDS, so that a store takes STORE neighbours and neighbouring lanes store neighbouring vectors.
TO_DEVICE void store_shuffled(const Result &r, const Output &out, int first_n, Lds lds) {
  constexpr int COLS = TILE_N * STORED_UNITS;
  barrier();
  TO_UNROLL
  for (int i = 0; i < BLOCKS_M; ++i) {
    TO_UNROLL
    for (int j = 0; j < BLOCKS_N; ++j)
      each_run(r.acc[i][j], [&](int m, int n, const float (&x)[RUN]) __attribute__((always_inline)) {
        lds_store(lds, lds_index<COLS>(r.row(i) + m, (r.column(j) + n) * STORED_UNITS), packed(x, Stored{}));
      });
  }
  barrier();
  constexpr int PER_ROW = TILE_N / STORE, TOTAL = TILE_M * PER_ROW;
  using Vector = Raw<STORE * STORED_UNITS>;
  TO_ROLLED
  for (int u = thread_id(); u < TOTAL; u += THREADS) {
    int m = u / PER_ROW, n = u % PER_ROW * STORE;
    Output::Row row = out.row(m);
    if (out.aligned_store) {
      Stored *to = out.at(row, first_n + n);
      if (to) global_store(to, lds_load<Vector>(lds, lds_index<COLS>(m, n * STORED_UNITS)));
    } else {
      TO_ROLLED
      for (int e = 0; e < STORE; ++e) {
        Stored *to = out.at(row, first_n + n + e);
        if (to) global_store(to, lds_load<Stored>(lds, lds_index<COLS>(m, (n + e) * STORED_UNITS)));
      }
    }
  }
}

} // namespace to
