/* The functions of hipBLASLt that tile_oracle.device.library.hipblaslt calls, over the emulated GPU (its memory is the
 * host's). Each hipblasLtMatmul is noted in the file RECORD_TO.
 *
 * Its ranking: solution 40, slow; 41, fast, which needs 256 bytes of workspace; 42, which leaves out the last element of
 * the depth: wrong.
 */
#define OVER_HIP
enum { FINE = 0, INVALID_VALUE = 3, EXECUTION_FAILED = 5, NOT_SUPPORTED = 7, COMPUTE = 2, BATCH = 0, OP_N = 111, OP_T = 112 };
#define LT(name) hipblasLt##name
#include "blaslt.h"

typedef struct { int solution, rest[3]; size_t most; } algo;
typedef struct { algo a; size_t workspace; int state; float waves; int reserved[4]; } result;
API int hipblasLtGetVersion(void *handle, int *version) { *version = 100102; return FINE; }
API int hipblasLtMatmulDescSetAttribute(desc *d, int attribute, const int *value, size_t bytes) {
  if (bytes == 4 && attribute == 2) return d->epilogue = *value, FINE;
  if (bytes == 8 && attribute == 3) return memcpy(&d->bias, value, bytes), FINE;
  if (bytes != 4 || attribute < 0 || attribute > 1 || (*value != OP_N && *value != OP_T)) return INVALID_VALUE;
  *(attribute ? &d->transb : &d->transa) = *value == OP_T;
  return FINE;
}
API int hipblasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const size_t *value, size_t bytes) {
  if (attribute != 1 || bytes != 8) return INVALID_VALUE;
  p->workspace = *value;
  return FINE;
}

API int hipblasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *to, preference *p, int most,
                                        result *found, int *count) {
  shape s;
  if (!p->workspace || !shape_of(d, a, b, c, &s)) return INVALID_VALUE;
  for (*count = 0; *count < 3 && *count < most; ++*count)
    found[*count] = (result){{40 + *count, {0}, p->workspace}, *count == 1 ? 256 : 0, FINE, 1.0f, {0}};
  return FINE;
}

API int hipblasLtMatmul(void *h, desc *d, const float *alpha, const void *first, layout *a, const void *second, layout *b,
                        const float *beta, const void *c, layout *in, void *out, layout *to, const algo *with,
                        void *workspace, size_t bytes, void *stream) {
  shape s;
  note("matmul", with->solution, (int)bytes);
  if (!shape_of(d, a, b, to, &s)) return INVALID_VALUE;
  if (with->solution == 41 && (bytes < 256 || !workspace)) return INVALID_VALUE;
  double ns = with->solution == 41 ? 10000 : 20000;
  return start((work){*d, *a, *b, *to, first, second, 0, out, with->solution == 42, ns}, alpha, beta, c, stream);
}
