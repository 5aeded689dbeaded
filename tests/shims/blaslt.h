/* What cuBLASLt and hipBLASLt share: descriptors, and products by the libraries' own definition: column-major matrices,
 * op(A) op(B), a batch of them, a bias, GELU (the form with tanh) and C.
 *
 * LT(name): a function's name. COMPUTE: the number of products in fp32. BATCH: the attribute of a matrix that says how many
 * lie one after the other; the next number is that of their distance.
 */
#include "library.h"

typedef struct { int compute, scale, transa, transb; const float *scales[2]; int modes[2]; int epilogue; const void *bias; long bias_step; } desc;
typedef struct { int type; u64 rows, cols; long ld; int batch; long step; } layout;
typedef struct { size_t workspace; u32 reductions; } preference;

API int LT(Create)(void **handle) { note("create", 0, 0); *handle = zeroed(8); return FINE; }
API int LT(MatmulDescCreate)(desc **made, int compute, int scale) {
  *made = zeroed(sizeof(desc));
  return compute == COMPUTE && scale == R_32F ? FINE : NOT_SUPPORTED;
}
API int LT(MatmulDescDestroy)(desc *d) { free(d); return FINE; }
API int LT(MatrixLayoutCreate)(layout **made, int type, u64 rows, u64 cols, long ld) {
  *made = zeroed(sizeof(layout));
  **made = (layout){type, rows, cols, ld, 1, 0};
  return ld < (long)rows ? INVALID_VALUE : FINE;
}
API int LT(MatrixLayoutSetAttribute)(layout *l, int attribute, const void *value, size_t bytes) {
  if (attribute == BATCH && bytes == 4) l->batch = *(const int *)value;
  else if (attribute == BATCH + 1 && bytes == 8) l->step = *(const long *)value;
  else return INVALID_VALUE;
  return FINE;
}
API int LT(MatrixLayoutDestroy)(layout *l) { free(l); return FINE; }
API int LT(MatmulPreferenceCreate)(preference **made) { *made = zeroed(sizeof(preference)); return FINE; }
API int LT(MatmulPreferenceDestroy)(preference *p) { free(p); return FINE; }

typedef struct { u64 m, n, k; } shape;
/* Rows, columns and depth of the product, if its operands fit together. */
static int shape_of(const desc *d, const layout *a, const layout *b, const layout *c, shape *s) {
  *s = (shape){d->transa ? a->cols : a->rows, d->transb ? b->rows : b->cols, d->transa ? a->rows : a->cols};
  u64 depth = d->transb ? b->cols : b->rows;
  return depth == s->k && c->rows == s->m && c->cols == s->n && a->batch == b->batch && b->batch == c->batch;
}

/* ---- the product, when the stream comes to it ---- */

typedef struct { desc d; layout a, b, c; const void *first, *second, *added; void *out; int left_out; double ns; } work;
/* The scale of an operand's value: of the matrix, of its row, of 128 in its row, or of 128 x 128. */
static float scale_of(const desc *d, int which, u64 row, u64 rows, u64 k, u64 depth) {
  const float *scales = d->scales[which];
  switch (scales ? d->modes[which] : -1) {
    case 0: return scales[0];
    case 3: return scales[row];
    case 4: return scales[k / 128 * rows + row];
    case 5: return scales[row / 128 * ((depth + 511) / 512 * 4) + k / 128];
  }
  return 1;
}
static void multiply(void *data) {
  work *w = data;
  shape s;
  shape_of(&w->d, &w->a, &w->b, &w->c, &s);
  u64 depth = s.k - w->left_out;
  for (u64 of = 0; of < (u64)w->c.batch; ++of)
   for (u64 j = 0; j < s.n; ++j)
    for (u64 i = 0; i < s.m; ++i) {
      u64 at = of * w->c.step + i + j * w->c.ld;
      float sum = w->added ? load(w->added, at, w->c.type) : 0;
      for (u64 k = 0; k < depth; ++k)
        sum += load(w->first, of * w->a.step + (w->d.transa ? k + i * w->a.ld : i + k * w->a.ld), w->a.type) *
               load(w->second, of * w->b.step + (w->d.transb ? j + k * w->b.ld : k + j * w->b.ld), w->b.type) *
               scale_of(&w->d, 0, i, s.m, k, s.k) * scale_of(&w->d, 1, j, s.n, k, s.k);
      if (w->d.epilogue & 4) sum += load(w->d.bias, of * w->d.bias_step + i, w->c.type);
      if (w->d.epilogue & 32) sum *= (1 + tanh(0.7978845608028654 * (sum + 0.044715 * (double)sum * sum * sum))) / 2;
      store(w->out, at, w->c.type, sum);
    }
  takes_ns(w->ns);
}
static int start(work what, const float *alpha, const float *beta, const void *c, void *stream) {
  if (*alpha != 1.0f || (*beta == 0.0f ? c != what.out : *beta != 1.0f || c == what.out)) return INVALID_VALUE;
  work *w = malloc(sizeof(work)); /* a captured launch may run at any later time */
  *w = what;
  w->added = *beta ? c : 0;
  return run_on(stream, multiply, w) ? EXECUTION_FAILED : FINE;
}
