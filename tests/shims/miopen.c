/* The functions of MIOpen that tile_oracle.device.library.miopen calls, over the emulated GPU (its memory is the host's).
 * Convolutions are computed by their definition, from the dimensions and strides of the descriptors. Each run of a solution
 * is noted in the file RECORD_TO.
 *
 * Its solutions: 20, slow; 21, fast, which needs 256 bytes of workspace; 22, which leaves out the first channel: wrong.
 * Backward weight has 20 alone. A solution that was not compiled before does not run.
 */
#define OVER_HIP
#include "library.h"

enum { FINE = 0, BAD_PARAMETER = 3, INTERNAL_ERROR = 5, FORWARD = 0, DATA, WEIGHT, MOST = 6 };

typedef struct { int type, rank, dims[MOST], strides[MOST]; } tensor;
typedef struct { int rank, pad[3], stride[3], dilation[3], groups; } convolution;
typedef struct { float time; size_t workspace; u64 number; int algorithm; } solution;
typedef struct { void *stream; u32 compiled; } handle;
typedef struct { int kind; u64 number; tensor x, w, y; convolution c; void *in, *filter, *out; } work;

API int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) { *major = 3, *minor = 5, *patch = 0; return FINE; }
API const char *miopenGetErrorString(int status) { return "miopenStatusUnsupportedOp"; }
API int miopenCreate(handle **made) { *made = zeroed(sizeof(handle)); return FINE; }
API int miopenSetStream(handle *h, void *stream) { h->stream = stream; return FINE; }
API int miopenCreateTensorDescriptor(tensor **made) { *made = zeroed(sizeof(tensor)); return FINE; }
API int miopenSetTensorDescriptor(tensor *t, int type, int rank, const int *dims, const int *strides) {
  if (rank < 4 || rank > 5) return BAD_PARAMETER;
  t->type = type == 0 ? R_16F : type == 1 ? R_32F : R_16BF, t->rank = rank;
  memcpy(t->dims, dims, 4 * rank);
  memcpy(t->strides, strides, 4 * rank);
  return FINE;
}
API int miopenDestroyTensorDescriptor(tensor *t) { free(t); return FINE; }
API int miopenCreateConvolutionDescriptor(convolution **made) { *made = zeroed(sizeof(convolution)); return FINE; }
API int miopenInitConvolutionNdDescriptor(convolution *c, int rank, const int *pad, const int *stride, const int *dilation, int mode) {
  if (mode || rank < 2 || rank > 3) return BAD_PARAMETER;
  c->rank = rank, c->groups = 1;
  memcpy(c->pad, pad, 4 * rank), memcpy(c->stride, stride, 4 * rank), memcpy(c->dilation, dilation, 4 * rank);
  return FINE;
}
API int miopenSetConvolutionGroupCount(convolution *c, int groups) { c->groups = groups; return FINE; }
API int miopenDestroyConvolutionDescriptor(convolution *c) { free(c); return FINE; }

static long total(const tensor *t) {
  long all = 1;
  for (int i = 0; i < t->rank; ++i) all *= t->dims[i];
  return all;
}
static long place(const tensor *t, long number, int *at) {
  long offset = 0;
  for (int i = t->rank; i-- > 0; number /= t->dims[i]) at[i] = number % t->dims[i], offset += (long)at[i] * t->strides[i];
  return offset;
}
static int fits(const tensor *x, const tensor *w, const convolution *c, const tensor *y) {
  int good = x->dims[1] == w->dims[1] * c->groups && y->dims[1] == w->dims[0] && x->rank == c->rank + 2;
  for (int i = 0; i < c->rank; ++i)
    good &= y->dims[2 + i] == (x->dims[2 + i] + 2 * c->pad[i] - c->dilation[i] * (w->dims[2 + i] - 1) - 1) / c->stride[i] + 1;
  return good;
}
static void convolve(void *data) {
  work *k = data;
  const convolution *c = &k->c;
  const tensor *to = k->kind == FORWARD ? &k->y : k->kind == DATA ? &k->x : &k->w;
  void *memory = k->kind == FORWARD ? k->out : k->kind == DATA ? k->in : k->filter;
  float *sums = zeroed(4 * total(to));
  for (long o = 0; o < total(&k->y); ++o) {
    int out[MOST], tap[MOST];
    long y = place(&k->y, o, out);
    for (long t = 0; t < total(&k->w); ++t) {
      long f = place(&k->w, t, tap);
      if (tap[0] != out[1] || (k->number == 22 && !tap[1])) continue;
      int per_group = k->w.dims[0] / c->groups, inside = 1;
      long x = (long)out[0] * k->x.strides[0] + (long)(out[1] / per_group * k->w.dims[1] + tap[1]) * k->x.strides[1];
      for (int i = 0; i < c->rank; ++i) {
        int at = out[2 + i] * c->stride[i] + tap[2 + i] * c->dilation[i] - c->pad[i];
        inside &= at >= 0 && at < k->x.dims[2 + i];
        x += (long)at * k->x.strides[2 + i];
      }
      if (!inside) continue;
      if (k->kind == FORWARD) sums[y] += load(k->in, x, k->x.type) * load(k->filter, f, k->w.type);
      else if (k->kind == DATA) sums[x] += load(k->out, y, k->y.type) * load(k->filter, f, k->w.type);
      else sums[f] += load(k->in, x, k->x.type) * load(k->out, y, k->y.type);
    }
  }
  for (long i = 0; i < total(to); ++i) store(memory, i, to->type, sums[i]);
  free(sums);
  takes_ns(k->number == 21 ? 10000 : 20000);
}
static int needs(int kind, u64 number, size_t *bytes) {
  *bytes = number == 21 ? 256 : 0;
  return number < 20 || number > (kind == WEIGHT ? 20 : 22) ? BAD_PARAMETER : FINE;
}
static int run(handle *h, work k, void *workspace, size_t bytes) {
  size_t wanted;
  note("immediate", (int)k.number, k.kind);
  if (needs(k.kind, k.number, &wanted) || bytes < wanted || (wanted && !workspace)) return BAD_PARAMETER;
  if (!(h->compiled >> k.number & 1)) return INTERNAL_ERROR;
  work *kept = malloc(sizeof(work)); /* a captured launch may run at any later time */
  *kept = k;
  return run_on(h->stream, convolve, kept) ? INTERNAL_ERROR : FINE;
}

#define DIRECTION(NAME, KIND, X, W, Y)                                                                                           \
  API int miopenConvolution##NAME##GetSolutionCount(handle *h, tensor *a, tensor *b, convolution *c, tensor *r, size_t *count) { \
    *count = fits(X, W, c, Y) ? (KIND == WEIGHT ? 1 : 3) : 0;                                                                    \
    return FINE;                                                                                                                 \
  }                                                                                                                              \
  API int miopenConvolution##NAME##GetSolution(handle *h, tensor *a, tensor *b, convolution *c, tensor *r, size_t most,          \
                                               size_t *count, solution *found) {                                                 \
    for (*count = 0; *count < most; ++*count) found[*count] = (solution){1.0f, *count == 1 ? 256 : 0, 20 + *count, 0};           \
    return FINE;                                                                                                                 \
  }                                                                                                                              \
  API int miopenConvolution##NAME##GetSolutionWorkspaceSize(handle *h, tensor *a, tensor *b, convolution *c, tensor *r,          \
                                                            u64 number, size_t *bytes) {                                         \
    return needs(KIND, number, bytes);                                                                                           \
  }                                                                                                                              \
  API int miopenConvolution##NAME##CompileSolution(handle *h, tensor *a, tensor *b, convolution *c, tensor *r, u64 number) {     \
    h->compiled |= 1u << number;                                                                                                 \
    return FINE;                                                                                                                 \
  }

DIRECTION(Forward, FORWARD, b, a, r)
DIRECTION(BackwardData, DATA, r, b, a)
DIRECTION(BackwardWeights, WEIGHT, b, r, a)
API int miopenConvolutionForwardImmediate(handle *h, tensor *w, void *filter, tensor *x, void *in, convolution *c, tensor *y,
                                          void *out, void *workspace, size_t bytes, u64 number) {
  return run(h, (work){FORWARD, number, *x, *w, *y, *c, in, filter, out}, workspace, bytes);
}
API int miopenConvolutionBackwardDataImmediate(handle *h, tensor *y, void *out, tensor *w, void *filter, convolution *c,
                                               tensor *x, void *in, void *workspace, size_t bytes, u64 number) {
  return run(h, (work){DATA, number, *x, *w, *y, *c, in, filter, out}, workspace, bytes);
}
API int miopenConvolutionBackwardWeightsImmediate(handle *h, tensor *y, void *out, tensor *x, void *in, convolution *c,
                                                  tensor *w, void *filter, void *workspace, size_t bytes, u64 number) {
  return run(h, (work){WEIGHT, number, *x, *w, *y, *c, in, filter, out}, workspace, bytes);
}
