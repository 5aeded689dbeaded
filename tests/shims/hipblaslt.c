/* The functions of hipBLASLt that tile_oracle.device.library.hipblaslt calls, over the emulated GPU (its memory is the
 * host's). Products are computed by the library's own definition: column-major matrices, op(A) op(B). Each hipblasLtMatmul
 * is noted in the file RECORD_TO.
 *
 * Its ranking: solution 40, slow; 41, fast, which needs 256 bytes of workspace; 42, which leaves out the last element of
 * the depth: wrong.
 */
#define OVER_HIP
#include "library.h"

enum { FINE = 0, INVALID_VALUE = 3, EXECUTION_FAILED = 5, NOT_SUPPORTED = 7, OP_N = 111, OP_T = 112 };

typedef struct { int solution, rest[3]; size_t most; } algo;
typedef struct { algo a; size_t workspace; int state; float waves; int reserved[4]; } result;
typedef struct { int transa, transb, epilogue; const void *bias; } desc;
typedef struct { int type; u64 rows, cols; long ld; int batch; long step; } layout;
typedef struct { size_t workspace; } preference;

API int hipblasLtCreate(void **handle) { *handle = zeroed(8); return FINE; }
API int hipblasLtGetVersion(void *handle, int *version) { *version = 100102; return FINE; }
API int hipblasLtMatmulDescCreate(desc **made, int compute, int scale) {
  *made = zeroed(sizeof(desc));
  return compute == 2 && scale == R_32F ? FINE : NOT_SUPPORTED;
}
API int hipblasLtMatmulDescSetAttribute(desc *d, int attribute, const int *value, size_t bytes) {
  if (bytes == 4 && attribute == 2) return d->epilogue = *value, FINE;
  if (bytes == 8 && attribute == 3) return memcpy(&d->bias, value, bytes), FINE;
  if (bytes != 4 || attribute < 0 || attribute > 1 || (*value != OP_N && *value != OP_T)) return INVALID_VALUE;
  *(attribute ? &d->transb : &d->transa) = *value == OP_T;
  return FINE;
}
API int hipblasLtMatmulDescDestroy(desc *d) { free(d); return FINE; }
API int hipblasLtMatrixLayoutCreate(layout **made, int type, u64 rows, u64 cols, long ld) {
  *made = zeroed(sizeof(layout));
  **made = (layout){type, rows, cols, ld, 1, 0};
  return ld < (long)rows ? INVALID_VALUE : FINE;
}
API int hipblasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes) {
  if (attribute == 0 && bytes == 4) l->batch = *(const int *)value;
  else if (attribute == 1 && bytes == 8) l->step = *(const long *)value;
  else return INVALID_VALUE;
  return FINE;
}
API int hipblasLtMatrixLayoutDestroy(layout *l) { free(l); return FINE; }
API int hipblasLtMatmulPreferenceCreate(preference **made) { *made = zeroed(sizeof(preference)); return FINE; }
API int hipblasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const size_t *value, size_t bytes) {
  if (attribute != 1 || bytes != 8) return INVALID_VALUE;
  p->workspace = *value;
  return FINE;
}
API int hipblasLtMatmulPreferenceDestroy(preference *p) { free(p); return FINE; }

typedef struct { u64 m, n, k; } shape;
static int shape_of(const desc *d, const layout *a, const layout *b, const layout *c, shape *s) {
  *s = (shape){d->transa ? a->cols : a->rows, d->transb ? b->rows : b->cols, d->transa ? a->rows : a->cols};
  return (d->transb ? b->cols : b->rows) == s->k && c->rows == s->m && c->cols == s->n;
}
API int hipblasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *to, preference *p, int most,
                                        result *found, int *count) {
  shape s;
  if (!p->workspace || !shape_of(d, a, b, c, &s)) return INVALID_VALUE;
  for (*count = 0; *count < 3 && *count < most; ++*count)
    found[*count] = (result){{40 + *count, {0}, p->workspace}, *count == 1 ? 256 : 0, FINE, 1.0f, {0}};
  return FINE;
}

typedef struct { desc d; layout a, b, c; int solution; const void *first, *second, *added; void *out; } work;
static void multiply(void *data) {
  work *w = data;
  shape s;
  shape_of(&w->d, &w->a, &w->b, &w->c, &s);
  u64 depth = s.k - (w->solution == 42);
  for (u64 of = 0; of < (u64)w->c.batch; ++of)
   for (u64 j = 0; j < s.n; ++j)
    for (u64 i = 0; i < s.m; ++i) {
      u64 at = of * w->c.step + i + j * w->c.ld;
      float sum = w->added ? load(w->added, at, w->c.type) : 0;
      for (u64 k = 0; k < depth; ++k)
        sum += load(w->first, of * w->a.step + (w->d.transa ? k + i * w->a.ld : i + k * w->a.ld), w->a.type) *
               load(w->second, of * w->b.step + (w->d.transb ? j + k * w->b.ld : k + j * w->b.ld), w->b.type);
      if (w->d.epilogue & 4) sum += load(w->d.bias, i, w->c.type);
      if (w->d.epilogue & 32) sum *= (1 + tanh(0.7978845608028654 * (sum + 0.044715 * (double)sum * sum * sum))) / 2;
      store(w->out, at, w->c.type, sum);
    }
  takes_ns(w->solution == 41 ? 10000 : 20000);
}
API int hipblasLtMatmul(void *h, desc *d, const float *alpha, const void *first, layout *a, const void *second, layout *b,
                        const float *beta, const void *c, layout *in, void *out, layout *to, const algo *with,
                        void *workspace, size_t bytes, void *stream) {
  shape s;
  note("matmul", with->solution, (int)bytes);
  if (*alpha != 1.0f || (*beta == 0.0f ? c != out : *beta != 1.0f || c == out)) return INVALID_VALUE;
  if (!shape_of(d, a, b, to, &s)) return INVALID_VALUE;
  if (with->solution == 41 && (bytes < 256 || !workspace)) return INVALID_VALUE;
  work *w = malloc(sizeof(work)); /* a captured launch may run at any later time */
  *w = (work){*d, *a, *b, *to, with->solution, first, second, *beta ? c : 0, out};
  return run_on(stream, multiply, w) ? EXECUTION_FAILED : FINE;
}
