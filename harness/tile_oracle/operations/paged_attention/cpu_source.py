"""Translation units of attention over paged caches for the target cpu: one query of a head at a time."""

from __future__ import annotations

from tile_oracle.operations.paged_attention.problem import HEAD_SIZES, PagedAttentionKernel
from tile_oracle.operations.rowwise.cpu_source import EXPONENTIAL, translation_unit
from tile_oracle.operations.scaled_gemm.cpu_source import number_table

_ATTENTION = r"""
struct Args {
  const Element *q;
  const Cached *cache;
  const int32_t *lists;
  const float *sinks;
  Element *out;
  void *workspace;
  int64_t batch, heads, kv_heads, page_size, window, keys_at, table_at, table_width;
  float scale;
};

enum { PARTS = 16, V_AT = D == DV ? D : 0, ROW = D + V_AT };  /* sums of a dot product; cached values */

/* One query and head: its keys from `first` to `end`. */
static void of_query(const Args *a, const Element *stored_q, const Cached *cache, const int32_t *table,
                     Element *out, int64_t first, int64_t end, float sink) {
  float q[D], sums[DV], scores[KEYS], most = sink, total = sink > -__builtin_inff();
  int64_t row = a->kv_heads * D, to_values = a->page_size * a->kv_heads * V_AT;
  for (int d = 0; d < D; ++d) q[d] = load(stored_q[d]);
  for (int d = 0; d < DV; ++d) sums[d] = 0;
  for (; first < end; first += KEYS) {
    int count = end - first < KEYS ? (int)(end - first) : KEYS;
    const Cached *of_key[KEYS];
    float higher = most;
    for (int j = 0; j < count; ++j) {
      int64_t key = first + j, page = table[key / a->page_size] * a->page_size * a->kv_heads * ROW;
      const Cached *k = of_key[j] = cache + page + key % a->page_size * row;
      float part[PARTS] = {0}, score = 0;
      for (int d = 0; d < D; d += PARTS)
        for (int i = 0; i < PARTS; ++i) part[i] += q[d + i] * OF_CACHE(k[d + i]);
      for (int i = 0; i < PARTS; ++i) score += part[i];
      scores[j] = score * a->scale;
      higher = scores[j] > higher ? scores[j] : higher;
    }
    float shrink = exp_of(most - higher);
    most = higher;
    total *= shrink;
    for (int d = 0; d < DV; ++d) sums[d] *= shrink;
    for (int j = 0; j < count; ++j) {
      const Cached *value = of_key[j] + to_values;
      float weight = exp_of(scores[j] - most);
      total += weight;
      for (int d = 0; d < DV; ++d) sums[d] += weight * OF_CACHE(value[d]);
    }
  }
  for (int d = 0; d < DV; ++d) out[d] = store(sums[d] / total);
}

VISIBLE int32_t to_launch(const Args *a) {
  int64_t group = a->heads / a->kv_heads;
  for (int64_t s = 0; s < a->batch; ++s) {
    int64_t begin = a->lists[s], queries = a->lists[s + 1] - begin, keys = a->lists[a->keys_at + s];
    const int32_t *table = a->lists + a->table_at + s * a->table_width;
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t head = 0; head < a->heads; ++head) {
        int64_t row = (begin + i) * a->heads + head, end = keys - queries + i + 1;
        int64_t first = a->window && end > a->window ? end - a->window : 0;
        of_query(a, a->q + row * D, a->cache + head / group * D, table, a->out + row * DV, first, end,
                 a->sinks[head]);
      }
  }
  return 0;
}
"""

_BF16 = "typedef uint16_t Cached;\n#define OF_CACHE load\n"
_FP8 = "#define OF_CACHE(value) NUMBERS[value]\ntypedef uint8_t Cached;\n"


def cpu_source(kernel: PagedAttentionKernel) -> str:
    """Returns the translation unit of a kernel."""
    macros = {"D": kernel.head_dim, "DV": HEAD_SIZES[kernel.head_dim], "KEYS": kernel.keys}
    cached = (_BF16,) if kernel.kv_dtype == "bf16" else (number_table("NUMBERS", kernel.kv_dtype), _FP8)
    return translation_unit(kernel.dtype, macros, EXPONENTIAL, *cached, _ATTENTION)
