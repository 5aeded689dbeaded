// The pipelines: in which order a workgroup moves tiles from memory to LDS and multiplies them.
#pragma once

#ifdef TO_LAYOUT
#include "matrices.hpp"
#else
#include "operands.hpp"
#endif

namespace to {

using MoverA = Mover<OperandA, VECTOR_A, A_TURNED>;
using MoverB = Mover<OperandB, VECTOR_B, B_TURNED>;

// ---- multiplying a tile that lies in LDS ------------------------------------------------------------

constexpr int BLOCKS_M = TILE_M / WAVE_M / BM, BLOCKS_N = TILE_N / WAVE_N / BN, BLOCKS_K = TILE_K / BK;
constexpr int WARP_BLOCKS_M = WARP_M / BM, WARP_BLOCKS_N = WARP_N / BN, WARP_BLOCKS_K = WARP_K / BK;

// A wave's part of the result: warp tiles of neighbouring waves are neighbours.
struct Result {
  Acc acc[BLOCKS_M][BLOCKS_N];
  int wave_m, wave_n;

#if defined(TO_VECTOR_CLASSES) // acc{} of these nvcc would copy from memory
  TO_DEVICE Result() {
    TO_UNROLL
    for (int i = 0; i < BLOCKS_M; ++i) {
      TO_UNROLL
      for (int j = 0; j < BLOCKS_N; ++j) acc[i][j] = Acc{};
    }
#else
  TO_DEVICE Result() : acc{} {
#endif
    int wave = uniform(thread_id() / LANES);
    wave_m = wave / WAVE_N;
    wave_n = wave % WAVE_N;
  }
  TO_DEVICE int row(int i) const {
    return (i / WARP_BLOCKS_M * WAVE_M + wave_m) * WARP_M + i % WARP_BLOCKS_M * BM;
  }
  TO_DEVICE int column(int j) const {
    return (j / WARP_BLOCKS_N * WAVE_N + wave_n) * WARP_N + j % WARP_BLOCKS_N * BN;
  }
};

struct FragmentsA {
  Fragment f[BLOCKS_M];
  TO_DEVICE void read(const Result &r, Lds a, int k) {
    TO_UNROLL
    for (int i = 0; i < BLOCKS_M; ++i) f[i] = load_a<A_K_CONTIGUOUS, A_COLS>(a, r.row(i), k);
  }
};
struct FragmentsB {
  Fragment f[BLOCKS_N];
  TO_DEVICE void read(const Result &r, Lds b, int k) {
    TO_UNROLL
    for (int j = 0; j < BLOCKS_N; ++j) f[j] = load_b<B_K_CONTIGUOUS, B_COLS>(b, r.column(j), k);
  }
};

TO_DEVICE void multiply_all(Result &r, const FragmentsA &a, const FragmentsB &b) {
  TO_UNROLL
  for (int i = 0; i < BLOCKS_M; ++i) {
    TO_UNROLL
    for (int j = 0; j < BLOCKS_N; ++j) {
      // Back and forth along n: the operand used last is used again.
      int jj = i % 2 ? BLOCKS_N - 1 - j : j;
      multiply(r.acc[i][jj], a.f[i], b.f[jj]);
    }
  }
}

// What one warp tile's depth takes.
struct Chunk {
  FragmentsA a[WARP_BLOCKS_K];
  FragmentsB b[WARP_BLOCKS_K];
  TO_DEVICE void read(const Result &r, Lds ta, Lds tb, int kb) {
    TO_UNROLL
    for (int c = 0; c < WARP_BLOCKS_K; ++c) {
      a[c].read(r, ta, (kb + c) * BK);
      b[c].read(r, tb, (kb + c) * BK);
    }
  }
};

// Compute pipelines: while the matrix unit works on one warp tile's depth, the fragments of the next are read.
// between(kb) runs once a block of k, among the matrix instructions.
template <class F> TO_DEVICE void multiply_prefetching(Result &r, Lds a, Lds b, F between) {
  Chunk chunk[2];
  chunk[0].read(r, a, b, 0);
  TO_UNROLL
  for (int kb = 0; kb < BLOCKS_K; kb += WARP_BLOCKS_K) {
    int now = kb / WARP_BLOCKS_K % 2;
    bool more = kb + WARP_BLOCKS_K < BLOCKS_K;
    if (more) chunk[1 - now].read(r, a, b, kb + WARP_BLOCKS_K);
    TO_UNROLL
    for (int c = 0; c < WARP_BLOCKS_K; ++c) between(kb + c);
    TO_UNROLL
    for (int c = 0; c < WARP_BLOCKS_K; ++c) multiply_all(r, chunk[now].a[c], chunk[now].b[c]);
    if (more) interleave_hint<1, BLOCKS_M * BLOCKS_N / (BLOCKS_M + BLOCKS_N) + 1, BLOCKS_M + BLOCKS_N>();
  }
}

// Intrawave: a wave mixes reads and matrix instructions as finely as it can, column by column.
template <class F> TO_DEVICE void multiply_intrawave(Result &r, Lds a, Lds b, F between) {
  TO_UNROLL
  for (int kb = 0; kb < BLOCKS_K; ++kb) {
    FragmentsA fa;
    fa.read(r, a, kb * BK);
    between(kb);
    TO_UNROLL
    for (int j = 0; j < BLOCKS_N; ++j) {
      Fragment fb = load_b<B_K_CONTIGUOUS, B_COLS>(b, r.column(j), kb * BK);
      TO_UNROLL
      for (int i = 0; i < BLOCKS_M; ++i) multiply(r.acc[i][j], fa.f[i], fb);
      interleave_hint<1, BLOCKS_M, 1>();
    }
  }
}

// Interwave: a wave reads all that a cluster of matrix instructions needs, waits for the others, and then issues
// the cluster in one go. A cluster is as deep as a warp tile; half a tile where there are registers for it.
template <class F> TO_DEVICE void multiply_interwave(Result &r, Lds a, Lds b, F between) {
  constexpr int DEPTH = BLOCKS_K / 2 > WARP_BLOCKS_K && BLOCKS_K % 2 == 0 && BLOCKS_M * BLOCKS_N <= 8 && THREADS < 1024
                            ? BLOCKS_K / 2
                            : WARP_BLOCKS_K;
  TO_UNROLL
  for (int kc = 0; kc < BLOCKS_K; kc += DEPTH) {
    FragmentsA fa[DEPTH];
    FragmentsB fb[DEPTH];
    TO_UNROLL
    for (int c = 0; c < DEPTH; ++c) {
      fa[c].read(r, a, (kc + c) * BK);
      fb[c].read(r, b, (kc + c) * BK);
    }
    TO_UNROLL
    for (int c = 0; c < DEPTH; ++c) between(kc + c);
    waves_in_step();
    matrix_priority(true);
    TO_UNROLL
    for (int c = 0; c < DEPTH; ++c) multiply_all(r, fa[c], fb[c]);
    matrix_priority(false);
  }
}

template <class F> TO_DEVICE void multiply_tile(Result &r, Lds stage, F between) {
  Lds a = stage, b = stage + A_ELEMENTS;
  if constexpr (IS_COMPUTE)
    multiply_prefetching(r, a, b, between);
  else if constexpr (INTERWAVE)
    multiply_interwave(r, a, b, between);
  else
    multiply_intrawave(r, a, b, between);
}

struct Nothing {
  TO_DEVICE void operator()(int) const {}
};

// ---- moving tiles -------------------------------------------------------------------------------------

struct Mover2 {
  MoverA a;
  MoverB b;
  struct Registers {
    MoverA::Registers a;
    MoverB::Registers b;
  };
  int first, count; // steps along k

  TO_DEVICE Mover2(const Gemm &g, const Arguments &p)
      : a(g, p), b(g, p), first(g.first_step), count(g.last_step - g.first_step) {}
  TO_DEVICE void fetch_a(Registers &r, int step) const {
    if (step < count) a.fetch(r.a, (first + step) * TILE_K);
  }
  TO_DEVICE void fetch_b(Registers &r, int step) const {
    if (step < count) b.fetch(r.b, (first + step) * TILE_K);
  }
  TO_DEVICE void fetch(Registers &r, int step) const {
    fetch_a(r, step);
    fetch_b(r, step);
  }
  TO_DEVICE void stash(const Registers &r, Lds stage) const {
    a.stash(r.a, stage);
    b.stash(r.b, stage + A_ELEMENTS);
  }
  TO_DEVICE void copy(Lds stage, int step) const {
    if (step < count) {
      a.copy(stage, (first + step) * TILE_K);
      b.copy(stage + A_ELEMENTS, (first + step) * TILE_K);
    }
  }
};

constexpr int SECOND_BLOCK = BLOCKS_K > 1 ? 1 : 0;
TO_DEVICE Lds stage_of(Lds lds, int step) { return lds + (STAGES == 1 ? 0 : step % STAGES * STAGE_ELEMENTS); }

// basic_v1: load, wait, compute. One buffer: nothing overlaps within a workgroup. Two buffers: one
// barrier a tile instead of two, so a fast wave loads the next tile while slow ones compute.
TO_DEVICE void run_basic(Result &r, const Mover2 &m, Lds lds) {
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    Mover2::Registers next{};
    m.fetch(next, i);
    m.stash(next, stage_of(lds, i));
    barrier();
    multiply_tile(r, stage_of(lds, i), Nothing{});
    if constexpr (!TWO_BUFFERS) barrier();
  }
}

// basic_async_v1: as basic_v1, with copies that pass no registers. Two buffers: the copy of the next tile
// is under way while this one is computed.
TO_DEVICE void run_basic_async(Result &r, const Mover2 &m, Lds lds) {
  if constexpr (TWO_BUFFERS) m.copy(lds, 0);
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    if constexpr (!TWO_BUFFERS) m.copy(lds, i);
    async_commit();
    async_wait<0>();
    barrier();
    if constexpr (TWO_BUFFERS) m.copy(stage_of(lds, i + 1), i + 1);
    multiply_tile(r, stage_of(lds, i), Nothing{});
    if constexpr (!TWO_BUFFERS) barrier();
  }
}

// mem: for problems that wait for memory. Several tiles are under way in registers, all loads of a tile are issued at
// once, right behind the barrier.
constexpr int TILE_VECTORS = (TILE_M + TILE_N) * TILE_K / (THREADS * UNIT);
constexpr int IN_FLIGHT = THREADS >= 512 ? 2 : TILE_VECTORS <= 4 ? 4 : TILE_VECTORS < 8 ? 3 : 2;

TO_DEVICE void run_mem(Result &r, const Mover2 &m, Lds lds) {
  Mover2::Registers tiles[IN_FLIGHT]{};
  TO_UNROLL
  for (int t = 0; t < IN_FLIGHT; ++t) m.fetch(tiles[t], t);
  TO_ROLLED
  for (int i = 0; i < m.count; i += IN_FLIGHT) {
    TO_UNROLL
    for (int t = 0; t < IN_FLIGHT; ++t) {
      if (i + t < m.count) {
        // An even number of tiles a round lets the two buffers alternate by t alone.
        Lds stage = IN_FLIGHT % 2 ? stage_of(lds, i + t) : stage_of(lds, t);
        m.stash(tiles[t], stage);
        barrier();
        m.fetch(tiles[t], i + t + IN_FLIGHT);
        keep_order();
        multiply_tile(r, stage, Nothing{});
        if constexpr (!TWO_BUFFERS) barrier();
      }
    }
  }
}

// compv3: one tile ahead in registers; its loads are spread among the matrix instructions of the current one.
TO_DEVICE void run_compv3(Result &r, const Mover2 &m, Lds lds) {
  Mover2::Registers next{};
  m.fetch(next, 0);
  m.stash(next, lds);
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    barrier();
    multiply_tile(r, stage_of(lds, i), [&](int kb) __attribute__((always_inline)) {
      if (kb == 0) m.fetch_a(next, i + 1);
      if (kb == SECOND_BLOCK) m.fetch_b(next, i + 1);
    });
    if constexpr (!TWO_BUFFERS) barrier();
    m.stash(next, stage_of(lds, i + 1));
  }
}

// compv4: two tiles ahead, one in the other buffer, one in registers. What goes to LDS and what comes from
// memory is spread among the matrix instructions.
TO_DEVICE void run_compv4(Result &r, const Mover2 &m, Lds lds) {
  Mover2::Registers next{};
  m.fetch(next, 0);
  m.stash(next, lds);
  m.fetch(next, 1);
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    barrier();
    Lds other = stage_of(lds, i + 1);
    multiply_tile(r, stage_of(lds, i), [&](int kb) __attribute__((always_inline)) {
      if (kb == 0) m.a.stash(next.a, other);
      if (kb == 0) m.fetch_a(next, i + 2);
      if (kb == SECOND_BLOCK) m.b.stash(next.b, other + A_ELEMENTS);
      if (kb == SECOND_BLOCK) m.fetch_b(next, i + 2);
    });
  }
}

// compv5: the waves form two groups that do things in opposite order, so that one moves data while the other
// multiplies. One buffer: they load early or late in a tile; two: they also fill the other buffer early or late.
TO_DEVICE void run_compv5(Result &r, const Mover2 &m, Lds lds) {
  bool late = uniform(thread_id() / LANES) % 2;
  Mover2::Registers next{};
  m.fetch(next, 0);
  m.stash(next, lds);
  if constexpr (TWO_BUFFERS) m.fetch(next, 1);
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    barrier();
    auto move = [&]() __attribute__((always_inline)) {
      if constexpr (TWO_BUFFERS) m.stash(next, stage_of(lds, i + 1));
      keep_order();
      m.fetch(next, i + 1 + TWO_BUFFERS);
      keep_order();
    };
    if (!late) move();
    multiply_tile(r, stage_of(lds, i), [&](int kb) __attribute__((always_inline)) {
      if (!TWO_BUFFERS && kb == BLOCKS_K / 2 && late) move();
    });
    if (TWO_BUFFERS && late) move();
    if constexpr (!TWO_BUFFERS) {
      barrier();
      m.stash(next, lds);
    }
  }
}

// compv6: a wave reads the fragments of a whole tile before its first matrix instruction. LDS is free again that
// early, so the next tile moves in while this one is multiplied, also with one buffer. Workgroups of 1024 threads
// have registers for the second half of a tile only.
constexpr int HELD = THREADS >= 1024 && BLOCKS_K % 2 == 0 ? BLOCKS_K / 2 : BLOCKS_K, NOT_HELD = BLOCKS_K - HELD;

TO_DEVICE void run_compv6(Result &r, const Mover2 &m, Lds lds) {
  Mover2::Registers next{};
  m.fetch(next, 0);
  m.stash(next, lds);
  m.fetch(next, 1);
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    barrier();
    FragmentsA a[HELD];
    FragmentsB b[HELD];
    Lds stage = stage_of(lds, i);
    TO_UNROLL
    for (int kb = 0; kb < NOT_HELD; ++kb) {
      a[0].read(r, stage, kb * BK);
      b[0].read(r, stage + A_ELEMENTS, kb * BK);
      multiply_all(r, a[0], b[0]);
    }
    TO_UNROLL
    for (int kb = 0; kb < HELD; ++kb) {
      a[kb].read(r, stage, (NOT_HELD + kb) * BK);
      b[kb].read(r, stage + A_ELEMENTS, (NOT_HELD + kb) * BK);
    }
    keep_order();
    if constexpr (!TWO_BUFFERS) barrier();
    m.stash(next, stage_of(lds, i + 1));
    keep_order();
    m.fetch(next, i + 2);
    keep_order();
    TO_UNROLL
    for (int kb = 0; kb < HELD; ++kb) multiply_all(r, a[kb], b[kb]);
  }
}

// comp_async: as many tiles under way as there are buffers, less the one that is computed; no registers.
TO_DEVICE void run_comp_async(Result &r, const Mover2 &m, Lds lds) {
  TO_UNROLL
  for (int s = 0; s < STAGES - 1; ++s) {
    m.copy(lds + s * STAGE_ELEMENTS, s);
    async_commit();
  }
  int read = 0, write = STAGES - 1;
  TO_ROLLED
  for (int i = 0; i < m.count; ++i) {
    async_wait<(STAGES > 2 ? STAGES - 2 : 0)>();
    barrier();
    Lds to = lds + write * STAGE_ELEMENTS;
    multiply_tile(r, lds + read * STAGE_ELEMENTS, [&](int kb) __attribute__((always_inline)) {
      if (kb == 0) {
        m.copy(to, i + STAGES - 1);
        async_commit();
      }
    });
    read = read + 1 == STAGES ? 0 : read + 1;
    write = write + 1 == STAGES ? 0 : write + 1;
  }
}

TO_DEVICE void run_pipeline(Result &r, const Mover2 &m, Lds lds) {
  if constexpr (PIPELINE == TO_BASIC_V1) run_basic(r, m, lds);
  if constexpr (PIPELINE == TO_BASIC_ASYNC_V1) run_basic_async(r, m, lds);
  if constexpr (PIPELINE == TO_MEM) run_mem(r, m, lds);
  if constexpr (PIPELINE == TO_COMPV3) run_compv3(r, m, lds);
  if constexpr (PIPELINE == TO_COMPV4) run_compv4(r, m, lds);
  if constexpr (PIPELINE == TO_COMPV5) run_compv5(r, m, lds);
  if constexpr (PIPELINE == TO_COMPV6) run_compv6(r, m, lds);
  if constexpr (PIPELINE == TO_COMP_ASYNC) run_comp_async(r, m, lds);
#if TO_GFX950
  // None is under way here, but the code has a way past the loop that does not show it. The epilogue writes to LDS.
  if constexpr (PIPELINE == TO_BASIC_ASYNC_V1 || PIPELINE == TO_COMP_ASYNC) async_wait<0>();
#endif
}

} // namespace to
