// A GEMM as it is asked for: C = A B, where A and B lie by rows or by columns, and C by rows.
//
// An operand that is contiguous along the depth lies in LDS as [m or n][k], the other kind as [k][m or n]. Beyond the last
// depth both are zeros. Beyond the last row of A or column of B stands the last one again: what becomes of it is not stored.
#pragma once

#include "tiles.hpp"

namespace to {

using Arguments = to_gpu_gemm_args;

// What all threads of a workgroup agree on.
struct Gemm {
  int m, n, k;                // rows, columns, depth (in pairs, where elements travel so)
  int tiles;                  // of the result
  int first_m, first_n;       // of this workgroup's tile
  int first_step, last_step;  // of TILE_K along k

  TO_DEVICE Gemm() {}
  TO_DEVICE explicit Gemm(const Arguments &p) {
    m = p.M;
    n = p.N;
    k = p.K / PACKED;
    tiles = ceil_div(m, TILE_M) * ceil_div(n, TILE_N);
    first_step = 0;
    last_step = ceil_div(k, TILE_K);
  }
  TO_DEVICE void take_tile(int number) {
    int tiles_n = ceil_div(n, TILE_N), tile_m = number / tiles_n;
    first_m = tile_m * TILE_M;
    first_n = (number - tile_m * tiles_n) * TILE_N;
  }
};

TO_DEVICE int at_most(int a, int b) { return a < b ? a : b; }

// Rows of the tile are rows of A (columns of B), k goes along columns.
template <bool IS_A> struct AlongDepth {
  static constexpr int VECTOR = IS_A ? VECTOR_A : VECTOR_B;
  using Map = Share<IS_A ? TILE_M : TILE_N, TILE_K, VECTOR>;
  static constexpr bool K_ALONG_COLUMNS = true, ROWS_IN_LDS = false, ROWS_ARE_DEAR = false, MAY_BE_UNALIGNED = PAD_K;
  struct Row {
    const Element *base;
  };
  struct Column {
    int k;
    bool live;
  };
  const Gemm &g;
  const Element *first;
  TO_DEVICE AlongDepth(const Gemm &gemm, const Arguments &p) : g(gemm), first((const Element *)(IS_A ? p.a : p.b)) {}
  TO_DEVICE bool aligned() const { return g.k % VECTOR == 0; }
  TO_DEVICE Row row(int, int r) const {
    int number = (IS_A ? g.first_m : g.first_n) + r;
    if constexpr (IS_A ? PAD_M : PAD_N) number = at_most(number, (IS_A ? g.m : g.n) - 1);
    return Row{first + (i64)number * g.k};
  }
  TO_DEVICE Column column(int k0, int c) const { return Column{k0 + c, !PAD_K || k0 + c < g.k}; }
  TO_DEVICE Column after(Column, int k0, int c) const { return column(k0, c); }
  TO_DEVICE Source at(const Row &r, const Column &c) const { return Source{r.base + c.k, c.live}; }
};

// Rows of the tile are depths, m (or n) goes along columns.
template <bool IS_A> struct AcrossDepth {
  static constexpr int VECTOR = IS_A ? VECTOR_A : VECTOR_B;
  using Map = Share<TILE_K, IS_A ? TILE_M : TILE_N, VECTOR>;
  static constexpr bool PAD = IS_A ? PAD_M : PAD_N;
  static constexpr bool K_ALONG_COLUMNS = false, ROWS_IN_LDS = false, ROWS_ARE_DEAR = false, MAY_BE_UNALIGNED = PAD;
  struct Row {
    const Element *base;
    bool live;
  };
  using Column = int;
  const Gemm &g;
  const Element *first;
  int last; // where the last vector that can be read begins
  TO_DEVICE AcrossDepth(const Gemm &gemm, const Arguments &p) : g(gemm), first((const Element *)(IS_A ? p.a : p.b)) {
    last = extent() - (aligned() ? VECTOR : 1);
  }
  TO_DEVICE int extent() const { return IS_A ? g.m : g.n; }
  TO_DEVICE bool aligned() const { return extent() % VECTOR == 0; }
  TO_DEVICE Row row(int k0, int r) const { return Row{first + (i64)(k0 + r) * extent(), !PAD_K || k0 + r < g.k}; }
  TO_DEVICE Column column(int, int c) const {
    int number = (IS_A ? g.first_m : g.first_n) + c;
    return PAD ? at_most(number, last) : number;
  }
  TO_DEVICE Column after(Column, int k0, int c) const { return column(k0, c); }
  TO_DEVICE Source at(const Row &r, Column c) const { return Source{r.base + c, r.live}; }
};

template <bool ALONG> struct OperandsOf {
  using A = AlongDepth<true>;
  using B = AlongDepth<false>;
};
template <> struct OperandsOf<false> {
  using A = AcrossDepth<true>;
  using B = AcrossDepth<false>;
};
using OperandA = OperandsOf<A_ALONG_K>::A;
using OperandB = OperandsOf<B_ALONG_K>::B;

} // namespace to
