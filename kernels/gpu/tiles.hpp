// Tiles on their way from memory to LDS. Which element of memory is element (row, column) of a tile is the
// operand's to say (operands.hpp, matrices.hpp): it has
//
//     Map                      how threads share its tile
//     Row, Column              what it knows of a row and of a column of its tile; row(k0, r), column(k0, c)
//     at(row, column)          where the element lies, and whether it does
//     after(column, k0, c)     the column after this one
//     aligned()                whether whole vectors can be moved
//     K_ALONG_COLUMNS, MAY_BE_UNALIGNED
//     ROWS_IN_LDS              rows do not change along k, and are read from a table
//     ROWS_ARE_DEAR            rows are worked out by one lane for all that need them
//
// so that what does not change from tile to tile along k is computed once: the rows where k goes along columns, else
// the columns.
#pragma once

#include "config.hpp"

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
  const Element *at;
  bool live;
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

  template <class Gemm, class Arguments> TO_DEVICE Mover(const Gemm &g, const Arguments &p) : operand(g, p) {
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
        shift_in(to.v[v], s.live ? global_load<Element>(s.at) : (Element)0);
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
    constexpr bool CAN = TO_GFX950 ? VEC == UNIT : VEC >= 2;
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
