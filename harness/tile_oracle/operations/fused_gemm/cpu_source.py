"""Translation units of fused products for the target cpu: `columns` columns of C at a time, sums in fp32."""

from __future__ import annotations

from tile_oracle.operations.fused_gemm.problem import EPILOGUES, FusedGemmKernel
from tile_oracle.operations.rowwise.cpu_source import EXPONENTIAL, translation_unit

_PRODUCT = r"""
struct Args {
  const Element *a, *b, *bias, *d;
  Element *out;
  void *workspace;
  int64_t batch, M, N, K;
};

/* x / (1 + exp(-z)) */
static inline float gated(float x, float z) {
  float e = exp_of(z < 0 ? z : -z);
  return x * (z < 0 ? e : 1.0f) / (1.0f + e);
}

static inline float silu(float x) { return gated(x, x); }

/* x (1 + tanh(s)) / 2 is x / (1 + exp(-2 s)) */
static inline float gelu_tanh(float x) {
  return gated(x, 1.5957691216f * x * (1.0f + 0.044715f * x * x));
}

/* erf by formula 7.1.26 of Abramowitz and Stegun, whose error is at most 1.5e-7 */
static inline float gelu(float x) {
  float size = (x < 0 ? -x : x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * size);
  float p = 1.421413741f + t * (-1.453152027f + t * 1.061405429f);
  p = t * (0.254829592f + t * (-0.284496736f + t * p));
  float tail = p * exp_of(-size * size);
  return 0.5f * x * (x < 0 ? tail : 2.0f - tail);
}

VISIBLE int32_t to_launch(const Args *p) {
  int64_t M = p->M, N = p->N, K = p->K;
  int64_t of_row = A_BY_ROW ? K : 1, of_a = A_BY_ROW ? 1 : M;
  int64_t of_b = B_BY_ROW ? N : 1, of_column = B_BY_ROW ? 1 : K;
  for (int64_t i = 0; i < p->batch; ++i)
    for (int64_t left = 0; left < N; left += COLUMNS)
      for (int64_t m = 0; m < M; ++m) {
        const Element *a = p->a + i * M * K + m * of_row, *b = p->b + i * K * N + left * of_column;
        int64_t width = N - left < COLUMNS ? N - left : COLUMNS;
        float sums[COLUMNS] = {0};
        for (int64_t k = 0; k < K; ++k) {
          float x = load(a[k * of_a]);
          for (int64_t n = 0; n < width; ++n) sums[n] += x * load(b[k * of_b + n * of_column]);
        }
        for (int64_t n = 0; n < width; ++n) {
          int64_t at = (i * M + m) * N + left + n;
          float value = sums[n];
          if (BIAS) value += load(p->bias[i * N + left + n]);
          value = ACTIVATION(value);
          if (MUL) value *= load(p->d[at]);
          if (RESIDUAL) value += load(p->d[at]);
          p->out[at] = store(value);
        }
      }
  return 0;
}
"""


def cpu_source(kernel: FusedGemmKernel) -> str:
    """Returns the translation unit of a kernel."""
    epilogue = EPILOGUES[kernel.epilogue]
    macros = {
        "COLUMNS": kernel.columns,
        "A_BY_ROW": int(kernel.layout[0] == "r"),
        "B_BY_ROW": int(kernel.layout[1] == "r"),
        "BIAS": int(epilogue.bias),
        "ACTIVATION": epilogue.activation,
        "MUL": int(epilogue.last == "mul"),
        "RESIDUAL": int(epilogue.last == "residual"),
    }
    return translation_unit(kernel.dtype, macros, EXPONENTIAL, _PRODUCT)
