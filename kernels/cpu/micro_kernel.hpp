// The micro-kernel: a MICRO_M x MICRO_N block of the result in registers over a panel of the reduction.
#pragma once

#include "pack.hpp"

namespace to {

constexpr int TM = TO_TILE_M, TN = TO_TILE_N, TK = TO_TILE_K;
constexpr int MM = TO_MICRO_M, MN = TO_MICRO_N;
static_assert(TM % MM == 0 && TN % MN == 0, "the tile is a multiple of the micro-tile");
static_assert(MN % 16 == 0, "the micro-tile is whole vectors wide on every machine");

constexpr int NV = MN / VW;                // vectors across the micro-tile
constexpr int UNITS = (TK + PK - 1) / PK;  // 4-byte units of a whole panel

// Leading dimensions, in units: of an A panel [row][k] (forward, bwd_data) with slack for the vector
// stores of gather_row, and of an A panel [k][row] (bwd_weight). A B panel is [k][TN].
constexpr int LDA = (UNITS + 15) / 16 * 16 + 16;
constexpr int LDM = (TM + VW - 1) / VW * VW;
constexpr int MMP = (MM + VW - 1) / VW * VW;

// The widest part of the micro-tile whose accumulators fit the register file beside the operands.
constexpr int fitting_columns() {
  constexpr int budget = REGISTERS == 32 ? 26 : 13;
  for (int j = NV; j > 1; --j)
    if (NV % j == 0 && MM * j <= budget) return j;
  return 1;
}
constexpr int JC = fitting_columns();
// Few accumulators would wait for each other: then several sets share the reduction.
constexpr int SETS = MM * JC >= 8 ? 1 : (8 + MM * JC - 1) / (MM * JC);

struct Accumulators {
  V sum[SETS][MM][JC];

  TO_INLINE_MEMBER void start(const float *c, bool first) {
    TO_UNROLL
    for (int s = 0; s < SETS; ++s) {
      TO_UNROLL
      for (int i = 0; i < MM; ++i) {
        TO_UNROLL
        for (int j = 0; j < JC; ++j) sum[s][i][j] = V{};
      }
    }
    if (!first) {
      TO_UNROLL
      for (int i = 0; i < MM; ++i) {
        TO_UNROLL
        for (int j = 0; j < JC; ++j) sum[0][i][j] = load_v(c + i * MN + j * VW);
      }
    }
  }

  // a(i, k): row i of the micro-tile in every lane; b(j, k): vector j.
  template <bool Pairs, class A, class B> TO_INLINE_MEMBER void step(int s, A a, B b, i64 k) {
    V bv[JC];
    TO_UNROLL
    for (int j = 0; j < JC; ++j) bv[j] = b(j, k);
    TO_UNROLL
    for (int i = 0; i < MM; ++i) {
      V av = a(i, k);
      TO_UNROLL
      for (int j = 0; j < JC; ++j) sum[s][i][j] = Pairs ? mac(sum[s][i][j], av, bv[j]) : fma(sum[s][i][j], av, bv[j]);
    }
  }

  template <bool Pairs, class A, class B> TO_INLINE_MEMBER void run(A a, B b, i64 count) {
    i64 k = 0;
    if constexpr (SETS > 1) {
      TO_NO_UNROLL
      for (; k + SETS <= count; k += SETS) {
        TO_UNROLL
        for (int s = 0; s < SETS; ++s) step<Pairs>(s, a, b, k + s);
      }
    }
    TO_NO_UNROLL
    for (; k < count; ++k) step<Pairs>(0, a, b, k);
  }

  TO_INLINE_MEMBER void fold() {
    TO_UNROLL
    for (int s = 1; s < SETS; ++s) {
      TO_UNROLL
      for (int i = 0; i < MM; ++i) {
        TO_UNROLL
        for (int j = 0; j < JC; ++j) sum[0][i][j] += sum[s][i][j];
      }
    }
  }

  TO_INLINE_MEMBER void finish(float *c) {
    fold();
    TO_UNROLL
    for (int i = 0; i < MM; ++i) {
      TO_UNROLL
      for (int j = 0; j < JC; ++j) store_v(c + i * MN + j * VW, sum[0][i][j]);
    }
  }
};

// A and B packed.
TO_NOINLINE void micro_packed(const float *a, const float *b, float *c, i64 units, bool first) {
  TO_NO_UNROLL
  for (int j0 = 0; j0 < NV; j0 += JC) {
    Accumulators acc;
    acc.start(c + j0 * VW, first);
    acc.run<DOT>(
        [=](int i, i64 k) __attribute__((always_inline)) {
          return splat(TO_DIRECTION == TO_BWD_WEIGHT ? a[k * LDM + i] : a[i * LDA + k]);
        },
        [=](int j, i64 k) __attribute__((always_inline)) { return load_v(b + k * TN + (j0 + j) * VW); }, units);
    acc.finish(c + j0 * VW);
  }
}

typedef float UnitMem __attribute__((aligned(2), may_alias));

#if TO_DIRECTION != TO_BWD_WEIGHT

// A in place through MM row pointers a segment; B packed. bf16 pairs need segments of even length.
TO_NOINLINE void micro_rows(const Elem *const *pointers, const Segment *segments, int count, const float *b, float *c,
                            bool first) {
  TO_NO_UNROLL
  for (int j0 = 0; j0 < NV; j0 += JC) {
    Accumulators acc;
    acc.start(c + j0 * VW, first);
    TO_NO_UNROLL
    for (int s = 0; s < count; ++s) {
      const Elem *const *p = pointers + s * MM;
      i64 length = segments[s].length;
      const float *bs = b + (i64)(segments[s].at / PK) * TN + j0 * VW;
      auto columns = [=](int j, i64 k) __attribute__((always_inline)) { return load_v(bs + k * TN + j * VW); };
      if constexpr (sizeof(Elem) == 4 || DOT) {
        acc.run<DOT>([=](int i, i64 k) __attribute__((always_inline)) { return splat(((const UnitMem *)p[i])[k]); },
                     columns, length / PK);
      } else {
        float lines[MM][VW];
        TO_NO_UNROLL
        for (i64 k0 = 0; k0 < length; k0 += VW) {
          i64 n = min64(VW, length - k0);
          TO_NO_UNROLL
          for (int i = 0; i < MM; ++i) store_v(lines[i], n == VW ? load(p[i] + k0) : load_n(p[i] + k0, n));
          const float *bk = bs + k0 * TN;
          acc.run<false>([&](int i, i64 k) __attribute__((always_inline)) { return splat(lines[i][k]); },
                         [=](int j, i64 k) __attribute__((always_inline)) { return load_v(bk + k * TN + j * VW); }, n);
        }
      }
    }
    acc.finish(c + j0 * VW);
  }
}

#else

// A in place, MM neighbours in each of `length` rows of dY that are `row` elements apart; B packed.
// `live` of the MM exist; `end` is the end of dY.
TO_NOINLINE void micro_rows(const Elem *a, i64 row, i64 length, i64 live, const Elem *end, const float *b, float *c,
                            bool first) {
  TO_NO_UNROLL
  for (int j0 = 0; j0 < NV; j0 += JC) {
    Accumulators acc;
    acc.start(c + j0 * VW, first);
    i64 k0 = 0;
    if constexpr (sizeof(Elem) == 4) {
      i64 safe = live >= MM ? length : 0;
      const float *bs = b + j0 * VW;
      acc.run<false>([=](int i, i64 k) __attribute__((always_inline)) {
                       return splat(((const UnitMem *)(a + k * row))[i]);
                     },
                     [=](int j, i64 k) __attribute__((always_inline)) { return load_v(bs + k * TN + j * VW); }, safe);
      k0 = safe;
    }
    constexpr int BLOCK = 16; // units of the reduction that are converted at a time
    float lines[BLOCK][MMP];
    TO_NO_UNROLL
    for (; k0 < length; k0 += BLOCK * PK) {
      i64 n = min64(BLOCK, ceil_div(length - k0, PK));
      TO_NO_UNROLL
      for (i64 k = 0; k < n; ++k) {
        const Elem *first_row = a + (k0 + k * PK) * row;
        const Elem *second_row = k0 + k * PK + 1 < length ? first_row + row : nullptr;
        // Neighbours beyond the live ones are other rows' or groups' and are never stored.
        const Elem *last = DOT && second_row ? second_row : first_row;
        put_units(lines[k], first_row, second_row, end - last >= MMP ? MMP : live, MMP);
      }
      const float *bk = b + k0 / PK * TN + j0 * VW;
      acc.run<DOT>([&](int i, i64 k) __attribute__((always_inline)) { return splat(lines[k][i]); },
                   [=](int j, i64 k) __attribute__((always_inline)) { return load_v(bk + k * TN + j * VW); }, n);
    }
    acc.finish(c + j0 * VW);
  }
}

#endif

} // namespace to
