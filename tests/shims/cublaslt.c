/* The functions of cuBLASLt that tile_oracle.device.library.cublaslt calls, over the emulated GPU (its memory is the
 * host's). Calls are noted in the file RECORD_TO.
 *
 * Its algorithms, by id and tile:
 *   1, 18  right. 1, 20  leaves out the last element of the depth: wrong. With swizzle 1 the first ends the process.
 *   7, 15  right and slow; custom option 1 takes more workspace than anybody gives.
 *   66, 20 right and fast. The library's ranking gives it with bits that its configuration does not say. With stages 9
 *          a launch fails.
 * The library's ranking: 7, then 66, then 1 with tile 18. OFFERS_DIE=M: asked for a ranking of this M, it ends the process.
 */
enum { FINE = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15, COMPUTE = 68, BATCH = 5 };
#define LT(name) cublasLt##name
#include "blaslt.h"

/* In cublasLtMatmulAlgo_t: the attributes of a configuration by number, then bits without one. */
enum { ID, TILE, SPLIT_K, REDUCTION, SWIZZLE, CUSTOM, STAGES, INNER, CLUSTER, HIDDEN };
typedef struct { int is[16]; } algo;
typedef struct { algo a; size_t workspace; int state; float waves; int reserved[4]; } result;
API size_t cublasLtGetVersion(void) { return 130100; }
API const char *cublasLtGetStatusName(int status) {
  return status == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
API int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const int *value, size_t bytes) {
  if (bytes == 8 && (attribute == 17 || attribute == 18)) return memcpy(d->scales + attribute - 17, value, bytes), FINE;
  if (bytes == 4 && (attribute == 31 || attribute == 32)) return d->modes[attribute - 31] = *value, FINE;
  if (bytes == 4 && attribute == 7) return d->epilogue = *value, FINE;
  if (bytes == 8 && attribute == 8) return memcpy(&d->bias, value, bytes), FINE;
  if (bytes == 8 && attribute == 10) return memcpy(&d->bias_step, value, bytes), FINE;
  if (bytes != 4 || (attribute != 3 && attribute != 4)) return INVALID_VALUE;
  *(attribute == 3 ? &d->transa : &d->transb) = *value;
  return FINE;
}
API int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t bytes) {
  if (attribute == 1 && bytes == 8) p->workspace = *(const size_t *)value;
  else if (attribute == 3 && bytes == 4) p->reductions = *(const u32 *)value;
  else if (attribute < 5 || attribute > 8 || bytes != 4) return INVALID_VALUE;
  return FINE;
}

static int ids[] = {1, 7, 66};
static int tiles[3][2] = {{18, 20}, {15, 15}, {20, 20}}, stages[3][2] = {{8, 8}, {0, 0}, {0, 9}};
static int tile_count[] = {2, 1, 1}, stage_count[] = {1, 1, 2};
static int place_of(int id) {
  for (int i = 0; i < 3; ++i) if (ids[i] == id) return i;
  return -1;
}
static int among(const int *several, int count, int value) {
  for (int i = 0; i < count; ++i) if (several[i] == value) return 1;
  return 0;
}

API int cublasLtMatmulAlgoGetIds(void *h, int compute, int scale, int a, int b, int c, int d, int most, int *found, int *count) {
  if (most < 3) return INVALID_VALUE;
  memcpy(found, ids, sizeof ids);
  *count = 3;
  return FINE;
}
API int cublasLtMatmulAlgoInit(void *h, int compute, int scale, int a, int b, int c, int d, int id, algo *made) {
  if (place_of(id) < 0 || (a != b && a < R_8F_E4M3) || c != d) return INVALID_VALUE;
  *made = (algo){{0}};
  made->is[ID] = id;
  made->is[SPLIT_K] = 1;
  return FINE;
}
API int cublasLtMatmulAlgoCapGetAttribute(const algo *a, int cap, void *to, size_t bytes, size_t *written) {
  int at = place_of(a->is[ID]);
  const int *from = 0;
  size_t count = 1;
  int one = 0;
  if (cap == 0) one = a->is[ID] == 1;
  else if (cap == 1) one = 7;
  else if (cap == 2) one = a->is[ID] == 1;
  else if (cap == 6) from = tiles[at], count = tile_count[at];
  else if (cap == 7) one = a->is[ID] == 7;
  else if (cap == 13) from = stages[at], count = stage_count[at];
  else if (cap >= 16 && cap <= 19) one = 16;
  else return INVALID_VALUE;
  *written = 4 * count;
  if (!bytes) return FINE;
  if (bytes < 4 * count) return INVALID_VALUE;
  memcpy(to, from ? from : &one, 4 * count);
  return FINE;
}
API int cublasLtMatmulAlgoConfigSetAttribute(algo *a, int attribute, const void *value, size_t bytes) {
  if (attribute <= ID || attribute > CLUSTER || bytes != (attribute >= INNER ? 2 : 4)) return INVALID_VALUE;
  a->is[attribute] = bytes == 2 ? *(const u16 *)value : *(const int *)value;
  return FINE;
}
API int cublasLtMatmulAlgoConfigGetAttribute(const algo *a, int attribute, void *value, size_t bytes, size_t *written) {
  if (attribute < ID || attribute > CLUSTER || bytes != (attribute >= INNER ? 2 : 4)) return INVALID_VALUE;
  memcpy(value, a->is + attribute, *written = bytes);
  return FINE;
}

API int cublasLtMatmulAlgoCheck(void *h, desc *d, layout *a, layout *b, layout *c, layout *to, const algo *with, result *r) {
  shape s;
  int at = place_of(with->is[ID]);
  if (at < 0 || !shape_of(d, a, b, c, &s)) return INVALID_VALUE;
  if (!among(tiles[at], tile_count[at], with->is[TILE]) || !among(stages[at], stage_count[at], with->is[STAGES]))
    return NOT_SUPPORTED;
  if (with->is[INNER] || with->is[CLUSTER]) return NOT_SUPPORTED;
  int splits = with->is[SPLIT_K];
  if (splits > 1 && (with->is[ID] != 1 || splits > 4 || !with->is[REDUCTION])) return NOT_SUPPORTED;
  *r = (result){*with, splits > 1 ? 4 * s.m * s.n * splits : 0, FINE, 1.0f, {0}};
  if (with->is[CUSTOM]) r->workspace = 1ul << 30;
  note("check", with->is[ID], with->is[TILE]);
  return FINE;
}
API int cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *to, preference *p, int most,
                                       result *found, int *count) {
  static const int named[3][4] = {{7, 15, 0, 0}, {66, 20, 0, 5}, {1, 18, 8, 0}};
  shape s;
  if (!p->workspace || p->reductions != 2 || !shape_of(d, a, b, c, &s)) return INVALID_VALUE;
  if (getenv("OFFERS_DIE") && (u64)atoi(getenv("OFFERS_DIE")) == s.n) abort();
  *count = 0;
  for (int i = 0; i < 3 && i < most; ++i) {
    algo made;
    cublasLtMatmulAlgoInit(h, COMPUTE, R_32F, a->type, b->type, c->type, to->type, named[i][0], &made);
    made.is[TILE] = named[i][1], made.is[STAGES] = named[i][2], made.is[HIDDEN] = named[i][3];
    cublasLtMatmulAlgoCheck(h, d, a, b, c, to, &made, found + (*count)++);
  }
  note("heuristic", (int)s.m, (int)s.n);
  return FINE;
}

API int cublasLtMatmul(void *h, desc *d, const float *alpha, const void *first, layout *a, const void *second, layout *b,
                       const float *beta, const void *c, layout *in, void *out, layout *to, const algo *with,
                       void *workspace, size_t bytes, void *stream) {
  note("matmul", with->is[ID], with->is[TILE]);
  result needed;
  int code = cublasLtMatmulAlgoCheck(h, d, a, b, in, to, with, &needed);
  if (code) return code;
  if (needed.workspace > bytes || (needed.workspace && !workspace)) return INVALID_VALUE;
  if (with->is[STAGES] == 9) return EXECUTION_FAILED;
  if (with->is[SWIZZLE] && with->is[TILE] == 18 && with->is[SPLIT_K] == 1) abort();
  int wrong = with->is[ID] == 1 && with->is[TILE] == 20;
  double ns = with->is[HIDDEN] ? 10000 : with->is[ID] == 66 ? 12000 : with->is[ID] == 7 ? 20000 : 15000;
  return start((work){*d, *a, *b, *to, first, second, 0, out, wrong, ns}, alpha, beta, c, stream);
}
