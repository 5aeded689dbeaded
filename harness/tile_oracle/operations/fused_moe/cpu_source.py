"""Translation units of products of experts for the target cpu: blocks of pairs by columns, sums in fp32."""

from __future__ import annotations

from tile_oracle.operations.fused_moe.problem import BLOCKS, FusedMoeKernel
from tile_oracle.operations.rowwise.cpu_source import translation_unit

_PRODUCT = r"""
struct Args {
  const Element *a, *b;
  const int32_t *routing;
  const float *weights;
  Element *out;
  void *workspace;
  int64_t pairs, pairs_of_row, N, K, lists[5][3];
};

enum { LANES = 16, PADDED_ROWS = 0, EXPERTS = 1, SORTED_PAIRS = 2 };

template <typename Number>
static inline Number number(const Number *values, int64_t at) {  /* which may lie at any byte */
  Number value;
  __builtin_memcpy(&value, (const char *)(values + at), sizeof value);
  return value;
}

static inline float sum_of(const Element *a, const Element *b, int64_t K) {
  float part[LANES] = {0};
  int64_t k = 0;
  for (; k + LANES <= K; k += LANES)
    for (int i = 0; i < LANES; ++i) part[i] += load(number(a, k + i)) * load(number(b, k + i));
  for (; k < K; ++k) part[0] += load(number(a, k)) * load(number(b, k));
  for (int i = 1; i < LANES; ++i) part[0] += part[i];
  return part[0];
}

/* COLUMNS columns of a pair's row, from `left` on. */
static inline void part_of_row(const Args *p, int64_t pair, int64_t expert, int64_t left) {
  const Element *a = p->a + pair / p->pairs_of_row * p->K, *b = p->b + expert * p->N * p->K;
  float weight = p->weights ? number(p->weights, pair) : 1;
  for (int64_t n = left; n < p->N && n < left + COLUMNS; ++n) {
    Element stored = store(sum_of(a, b + n * p->K, p->K) * weight);
    __builtin_memcpy((char *)(p->out + pair * p->N + n), &stored, sizeof stored);
  }
}

VISIBLE int32_t to_launch(const Args *p) {
#if ROWS == 1
  for (int64_t pair = 0; pair < p->pairs; ++pair)
    for (int64_t left = 0; left < p->N; left += COLUMNS)
      part_of_row(p, pair, number(p->routing, pair), left);
#else
  const int64_t *list = p->lists[LIST];
  int64_t blocks = number(p->routing, list[PADDED_ROWS]) / ROWS;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t left = 0; left < p->N; left += COLUMNS)
      for (int64_t row = block * ROWS; row < (block + 1) * ROWS; ++row) {
        int64_t pair = number(p->routing, list[SORTED_PAIRS] + row);
        if (pair < p->pairs) part_of_row(p, pair, number(p->routing, list[EXPERTS] + block), left);
      }
#endif
  return 0;
}
"""


def cpu_source(kernel: FusedMoeKernel) -> str:
    """Returns the translation unit of a kernel."""
    place = BLOCKS.index(kernel.rows) if kernel.rows in BLOCKS else 0
    macros = {"ROWS": kernel.rows, "COLUMNS": kernel.columns, "LIST": place}
    return translation_unit(kernel.dtype, macros, _PRODUCT)
