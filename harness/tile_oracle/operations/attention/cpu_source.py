"""Translation units of attention kernels for the target cpu: one query at a time, `keys` keys at a time."""

from __future__ import annotations

from tile_oracle.operations.attention.problem import AttentionKernel
from tile_oracle.operations.rowwise.cpu_source import EXPONENTIAL, translation_unit

_ATTENTION = r"""
struct Args {
  const Element *q, *k, *v;
  Element *out;
  void *workspace;
  int64_t batch, heads, kv_heads, seq_q, seq_kv;
  float scale;
};

enum { PARTS = 16 };  /* partial sums of a dot product */

static void of_query(const Element *stored_q, const Element *k, const Element *v, Element *out,
                     int64_t visible, float scale) {
  float q[D], sums[D], scores[KEYS], most = -__builtin_inff(), total = 0;
  for (int d = 0; d < D; ++d) { q[d] = load(stored_q[d]); sums[d] = 0; }
  for (int64_t first = 0; first < visible; first += KEYS) {
    int count = visible - first < KEYS ? (int)(visible - first) : KEYS;
    float higher = most;
    for (int j = 0; j < count; ++j) {
      const Element *key = k + (first + j) * D;
      float part[PARTS] = {0}, score = 0;
      for (int d = 0; d < D; d += PARTS)
        for (int i = 0; i < PARTS; ++i) part[i] += q[d + i] * load(key[d + i]);
      for (int i = 0; i < PARTS; ++i) score += part[i];
      scores[j] = score * scale;
      higher = scores[j] > higher ? scores[j] : higher;
    }
    float shrink = exp_of(most - higher);
    most = higher;
    total *= shrink;
    for (int d = 0; d < D; ++d) sums[d] *= shrink;
    for (int j = 0; j < count; ++j) {
      const Element *value = v + (first + j) * D;
      float weight = exp_of(scores[j] - most);
      total += weight;
      for (int d = 0; d < D; ++d) sums[d] += weight * load(value[d]);
    }
  }
  for (int d = 0; d < D; ++d) out[d] = store(sums[d] / total);
}

VISIBLE int32_t to_launch(const Args *a) {
  int64_t group = a->heads / a->kv_heads;
  for (int64_t head = 0; head < a->batch * a->heads; ++head) {
    int64_t slice = head / a->heads * a->kv_heads + head % a->heads / group;
    const Element *k = a->k + slice * a->seq_kv * D, *v = a->v + slice * a->seq_kv * D;
    for (int64_t i = 0; i < a->seq_q; ++i) {
      int64_t row = (head * a->seq_q + i) * D;
      of_query(a->q + row, k, v, a->out + row, CAUSAL ? i + a->seq_kv - a->seq_q + 1 : a->seq_kv, a->scale);
    }
  }
  return 0;
}
"""


def cpu_source(kernel: AttentionKernel) -> str:
    """Returns the translation unit of a kernel."""
    macros = {"D": kernel.head_dim, "CAUSAL": kernel.causal, "KEYS": kernel.keys}
    return translation_unit(kernel.dtype, macros, EXPONENTIAL, _ATTENTION)
