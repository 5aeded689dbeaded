/* The functions of cuDNN's backend that tile_oracle.device.library.cudnn calls, over the emulated GPU (its memory is the
 * host's). Convolutions are computed by their definition, from the dimensions and strides of the descriptors; attention
 * in steps, with those of its mask between the scores and the softmax, in fp32. Each call of cudnnBackendExecute is noted in the file
 * RECORD_TO.
 *
 * Its engines:
 *   0  right and slow, without knobs
 *   1  right and fast; knob 14 (stages) from 2 to 3, and with 3 it leaves out the first channel, or the first step of
 *      a product's depth: wrong. Needs 4 KiB
 *   2  no plan can be made of it
 * Heuristics of mode A name engine 0, then engine 1 with 2 stages; the fallback names engine 1 with 3. There is no mode B.
 */
#include "library.h"

enum { FINE = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { CONVOLUTION = 1, ENGINE, CONFIGURATION, RANKING, PLAN, CHOICE = 7, FORWARD = 10, WEIGHT, DATA, GRAPH = 15, PACK, TENSOR };
enum { MOST = 48, VALUES = 24 };
enum { POINTWISE = 13, PRODUCT = 19, REDUCTION = 22, ATTENTION = 41 };
double exp(double);

typedef struct { int name, count; u64 values[VALUES]; } attribute;
typedef struct { int kind, done, count; attribute several[MOST]; } desc;

static size_t size_of(int type) { return type == 2 ? 1 : type == 14 || type == 18 ? 4 : type == 1 || type == 4 || (type >= 7 && type <= 9) ? 4 : 8; }
static attribute *find(const desc *d, int name) {
  for (int i = 0; i < d->count; ++i)
    if (d->several[i].name == name) return (attribute *)d->several + i;
  return 0;
}
static u64 value(const desc *d, int name) { return find(d, name) ? find(d, name)->values[0] : 0; }
static desc *inner(const desc *d, int name) { return (desc *)value(d, name); }
static void put(desc *d, int name, u64 one) {
  attribute *a = find(d, name);
  if (!a) a = d->several + d->count++;
  *a = (attribute){name, 1, {one}};
}

API size_t cudnnGetVersion(void) { return 92801; }
API const char *cudnnGetErrorString(int status) { return "CUDNN_STATUS_NOT_SUPPORTED"; }
API int cudnnCreate(void **handle) { *handle = zeroed(8); return FINE; }
API int cudnnSetStream(void **handle, void *stream) { *handle = stream; return FINE; }
API int cudnnBackendCreateDescriptor(int kind, desc **made) {
  *made = zeroed(sizeof(desc));
  (*made)->kind = kind;
  return FINE;
}
API int cudnnBackendDestroyDescriptor(desc *d) { free(d); return FINE; }
API int cudnnBackendSetAttribute(desc *d, int name, int type, long count, const void *from) {
  if (d->done || count > VALUES) return BAD_PARAM;
  attribute *a = find(d, name);
  if (!a) a = d->several + d->count++;
  *a = (attribute){name, (int)count, {0}};
  for (long i = 0; i < count; ++i) memcpy(a->values + i, (const u8 *)from + i * size_of(type), size_of(type));
  return FINE;
}
static void choose(desc *configuration, int engine, int stages) {
  desc *one = zeroed(sizeof(desc));
  one->kind = ENGINE;
  put(one, 1301, engine);
  put(configuration, 300, (u64)one);
  if (!stages) return;
  desc *choice = zeroed(sizeof(desc));
  choice->kind = CHOICE;
  put(choice, 600, 14);
  put(choice, 601, stages);
  put(configuration, 302, (u64)choice);
}
API int cudnnBackendGetAttribute(desc *d, int name, int type, long most, long *count, void *to) {
  if (!d->done && d->kind != CONFIGURATION && d->kind != ENGINE && d->kind != CHOICE) return BAD_PARAM;
  if (name == 202) {
    int mode = (int)value(d, 200);
    *count = mode == 3 ? 2 : 1;
    if (!to) return FINE;
    if (most < *count) return BAD_PARAM;
    desc **several = to;
    if (mode == 3) choose(several[0], 0, 0), choose(several[1], 1, 2);
    else choose(several[0], 1, 3);
    return FINE;
  }
  if (name == 802) put(d, 802, 3);
  attribute *a = find(d, name);
  *count = a ? a->count : 0;
  if (!to) return FINE;
  for (long i = 0; a && i < a->count && i < most; ++i) {
    if (type == 15) *((desc **)to)[i] = *(desc *)a->values[i];
    else memcpy((u8 *)to + i * size_of(type), a->values + i, size_of(type));
  }
  return FINE;
}

/* Groups, from the channels of the input and those of a filter. */
static int fits(const desc *operation) {
  if (operation->kind > DATA) return 1;
  int at = operation->kind == FORWARD ? 703 : operation->kind == DATA ? 709 : 715;
  int in = operation->kind == FORWARD ? 704 : operation->kind == DATA ? 710 : 716;
  attribute *x = find(inner(operation, in), 902), *w = find(inner(operation, at), 902);
  return x && w && w->values[1] && x->values[1] % w->values[1] == 0;
}
API int cudnnBackendFinalize(desc *d) {
  if (d->kind == RANKING && value(d, 200) == 1) return NOT_SUPPORTED;
  if (d->kind == ENGINE && value(d, 1301) >= 3) return BAD_PARAM;
  if (d->kind == GRAPH && (!inner(d, 801)->done || !fits(inner(d, 801)))) return BAD_PARAM;
  if (d->kind == CHOICE && (value(d, 600) != 14 || value(d, 601) < 2 || value(d, 601) > 3)) return NOT_SUPPORTED;
  if (d->kind == PLAN) {
    desc *engine = inner(inner(d, 401), 300);
    if (!value(d, 400) || value(engine, 1301) == 2) return NOT_SUPPORTED;
    put(d, 402, value(engine, 1301) == 1 ? 4096 : 0);
  }
  d->done = 1;
  return FINE;
}

/* ---- the convolution, when the stream comes to it ---- */

typedef struct { attribute dims, strides; int type; void *memory; } tensor;
typedef struct { int kind, rank, engine, stages; attribute dilation, stride, pad; tensor x, w, y; } work;

static int type_of(const tensor *t) { return t->type == 0 ? R_32F : t->type == 2 ? R_16F : R_16BF; }
static u64 total(const tensor *t) {
  u64 all = 1;
  for (int i = 0; i < t->dims.count; ++i) all *= t->dims.values[i];
  return all;
}
static void place(const tensor *t, u64 number, u64 *at) {
  for (int i = t->dims.count; i-- > 0; number /= t->dims.values[i]) at[i] = number % t->dims.values[i];
}
static u64 offset(const tensor *t, const u64 *at) {
  u64 sum = 0;
  for (int i = 0; i < t->dims.count; ++i) sum += at[i] * t->strides.values[i];
  return sum;
}
static void convolve(void *data) {
  work *w = data;
  tensor *result = w->kind == FORWARD ? &w->y : w->kind == DATA ? &w->x : &w->w;
  float *sums = zeroed(4 * total(result));
  u64 outputs = total(&w->y), taps = total(&w->w) / w->w.dims.values[0], of_group = w->w.dims.values[1];
  u64 groups = w->x.dims.values[1] / of_group, per_group = w->w.dims.values[0] / groups;
  u64 first = w->stages == 3 ? taps / of_group : 0;
  for (u64 o = 0; o < outputs; ++o) {
    u64 out[VALUES], tap[VALUES], in[VALUES];
    place(&w->y, o, out);
    for (u64 t = first; t < taps; ++t) {
      place(&w->w, out[1] * taps + t, tap);
      in[0] = out[0];
      in[1] = out[1] / per_group * of_group + tap[1];
      int inside = 1;
      for (int i = 0; i < w->rank; ++i) {
        long at = (long)(out[2 + i] * w->stride.values[i] + tap[2 + i] * w->dilation.values[i]) - (long)w->pad.values[i];
        inside &= at >= 0 && at < (long)w->x.dims.values[2 + i];
        in[2 + i] = (u64)at;
      }
      if (!inside) continue;
      u64 x = offset(&w->x, in), f = offset(&w->w, tap), y = offset(&w->y, out);
      if (w->kind == FORWARD) sums[y] += load(w->x.memory, x, type_of(&w->x)) * load(w->w.memory, f, type_of(&w->w));
      else if (w->kind == DATA) sums[x] += load(w->y.memory, y, type_of(&w->y)) * load(w->w.memory, f, type_of(&w->w));
      else sums[f] += load(w->x.memory, x, type_of(&w->x)) * load(w->y.memory, y, type_of(&w->y));
    }
  }
  for (u64 i = 0; i < total(result); ++i) store(result->memory, i, type_of(result), sums[i]);
  free(sums);
  takes_ns(w->engine == 1 ? 10000 : 20000);
}
static tensor tensor_of(const desc *operation, int name, const desc *pack) {
  const desc *t = inner(operation, name);
  return (tensor){*find(t, 902), *find(t, 903), (int)value(t, 901), (void *)find(pack, 1001)->values[value(t, 906)]};
}

/* ---- attention ---- */

typedef struct { tensor t; int number, is_virtual; float *values; } node;
typedef struct { int kind, mode, axis, x, b, t, y; } step;
typedef struct { int steps, nodes, engine, stages; step several[VALUES]; node all[VALUES + 8]; } graph_work;

static int node_of(graph_work *w, const desc *t, const desc *pack) {
  if (!t) return -1;
  int number = (int)value(t, 906);
  for (int i = 0; i < w->nodes; ++i) if (w->all[i].number == number) return i;
  node *made = w->all + w->nodes;
  *made = (node){{*find(t, 902), *find(t, 903), (int)value(t, 901), 0}, number, (int)value(t, 907), 0};
  const attribute *names = find(pack, 1000);
  for (int i = 0; i < names->count; ++i)
    if ((int)names->values[i] == number) made->t.memory = (void *)find(pack, 1001)->values[i];
  if (!made->is_virtual && !made->t.memory) abort();
  if (value(t, 908)) { /* a number by value: the caller may change it after this call */
    u32 bits;
    memcpy(&bits, made->t.memory, 4);
    made->values = zeroed(4);
    *made->values = made->t.type == 4 ? (float)(int)bits : as_float(bits);
  }
  return w->nodes++;
}
/* The value of an array at a place of another one; axes of one element are repeated. */
static float at_place(const node *n, const u64 *at) {
  u64 sum = 0;
  for (int i = 0; i < n->t.dims.count; ++i) {
    u64 dim = n->t.dims.values[i];
    sum = sum * dim + (dim == 1 ? 0 : at[i]);
  }
  return n->values[sum];
}
static float of_pointwise(const step *s, const node *all, const u64 *at) {
  if (s->mode == 501) return (float)at[s->axis];
  float x = at_place(all + s->x, at), b = s->b < 0 ? 0 : at_place(all + s->b, at);
  switch (s->mode) {
    case 0: return x + b;
    case 1: return x * b;
    case 6: return x / b;
    case 9: return x - b;
    case 13: return (float)exp(x);
    case 303: return x >= b;
    case 601: return at_place(all + s->t, at) != 0 ? x : b;
    default: abort();
  }
}
static float of_product(const step *s, const node *all, const u64 *at, int first) {
  const node *a = all + s->x, *b = all + s->b;
  float sum = 0;
  for (u64 k = first; k < a->t.dims.values[3]; ++k) {
    u64 in_a[4] = {at[0], at[1], at[2], k}, in_b[4] = {at[0], at[1] * b->t.dims.values[1] / a->t.dims.values[1], k, at[3]};
    sum += at_place(a, in_a) * at_place(b, in_b);
  }
  return sum;
}
static float of_reduction(const step *s, const node *all, const u64 *at) {
  const node *x = all + s->x;
  float found = s->mode == 3 ? -3.4e38f : 0;
  for (u64 k = 0; k < x->t.dims.values[3]; ++k) {
    u64 in[4] = {at[0], at[1], at[2], k};
    float one = at_place(x, in);
    found = s->mode == 3 ? (one > found ? one : found) : found + one;
  }
  return found;
}
static void run_graph(void *data) {
  graph_work *w = data;
  for (int i = 0; i < w->nodes; ++i) {
    node *n = w->all + i;
    if (n->values) continue; /* a number by value */
    n->values = zeroed(4 * total(&n->t));
    if (n->is_virtual) continue;
    for (u64 e = 0; e < total(&n->t); ++e) {
      u64 at[VALUES];
      place(&n->t, e, at);
      n->values[e] = load(n->t.memory, offset(&n->t, at), type_of(&n->t));
    }
  }
  for (int i = 0; i < w->steps; ++i) {
    const step *s = w->several + i;
    node *y = w->all + s->y;
    for (u64 e = 0; e < total(&y->t); ++e) {
      u64 at[VALUES];
      place(&y->t, e, at);
      float one = s->kind == POINTWISE ? of_pointwise(s, w->all, at)
                : s->kind == PRODUCT ? of_product(s, w->all, at, w->stages == 3) : of_reduction(s, w->all, at);
      u16 rounded;
      if (y->t.type == 2 || y->t.type == 9) store(&rounded, 0, type_of(&y->t), one), one = load(&rounded, 0, type_of(&y->t));
      y->values[e] = one;
      if (!y->is_virtual) store(y->t.memory, offset(&y->t, at), type_of(&y->t), one);
    }
  }
  for (int i = 0; i < w->nodes; ++i) { /* a captured run may run again: its numbers by value stay */
    node *n = w->all + i;
    if (n->is_virtual || total(&n->t) > 1) free(n->values), n->values = 0;
  }
  takes_ns(w->engine == 1 ? 10000 : 20000);
}
static int new_node(graph_work *w, int number, tensor t) {
  w->all[w->nodes] = (node){t, number, !t.memory, 0};
  return w->nodes++;
}
static void add_step(graph_work *w, int kind, int mode, int x, int b, int t, int y) {
  w->several[w->steps++] = (step){kind, mode, 0, x, b, t, y};
}
static void add_mask(graph_work *w, const desc *graph, const desc *pack) {
  const attribute *operations = find(graph, 801);
  for (int i = 0; i < operations->count; ++i) {
    const desc *o = (desc *)operations->values[i], *described = inner(o, 750);
    if (o->kind != POINTWISE) abort();
    int x = node_of(w, inner(o, 751), pack), b = node_of(w, inner(o, 752), pack), t = node_of(w, inner(o, 758), pack);
    add_step(w, POINTWISE, (int)value(described, 0), x, b, t, node_of(w, inner(o, 753), pack));
    w->several[w->steps - 1].axis = (int)value(described, 9);
  }
}
static int of_number(const graph_work *w, int number) {
  for (int i = 0; i < w->nodes; ++i) if (w->all[i].number == number) return i;
  abort();
}
static int execute_attention(void *stream, const desc *o, const desc *pack, int engine, int stages) {
  graph_work *w = zeroed(sizeof(graph_work));
  w->engine = engine, w->stages = stages;
  int q = node_of(w, inner(o, 2800), pack), v = node_of(w, inner(o, 2802), pack), out = node_of(w, inner(o, 2803), pack);
  int scale = node_of(w, inner(o, 2805), pack), masked = inner(o, 2811) != 0;
  tensor k = tensor_of(o, 2801, pack), rows = w->all[q].t;
  u64 depth = k.dims.values[3], step_of_depth = k.strides.values[3];
  k.dims.values[3] = k.dims.values[2], k.strides.values[3] = k.strides.values[2];
  k.dims.values[2] = depth, k.strides.values[2] = step_of_depth;
  tensor scores = {rows.dims, rows.strides, 0, 0}, of_rows = scores, weights;
  scores.dims.values[3] = k.dims.values[3], of_rows.dims.values[3] = 1;
  weights = scores, weights.type = rows.type;
  int product = new_node(w, 1000, scores), scaled = new_node(w, masked ? (int)value(o, 2812) : 1001, scores);
  add_step(w, PRODUCT, 0, q, new_node(w, 1002, k), -1, product);
  add_step(w, POINTWISE, 1, product, scale, -1, scaled);
  if (masked) add_mask(w, inner(o, 2811), pack);
  int seen = masked ? of_number(w, (int)value(o, 2813)) : scaled, most = new_node(w, 1003, of_rows), less = new_node(w, 1004, scores);
  int powers = new_node(w, 1005, scores), sum = new_node(w, 1006, of_rows), share = new_node(w, 1007, weights);
  add_step(w, REDUCTION, 3, seen, -1, -1, most);
  add_step(w, POINTWISE, 9, seen, most, -1, less);
  add_step(w, POINTWISE, 13, less, -1, -1, powers);
  add_step(w, REDUCTION, 0, powers, -1, -1, sum);
  add_step(w, POINTWISE, 6, powers, sum, -1, share);
  add_step(w, PRODUCT, 0, share, v, -1, out);
  note("execute", engine, stages);
  return run_on(stream, run_graph, w) ? 5000 : FINE;
}
API int cudnnBackendExecute(void **handle, desc *plan, desc *pack) {
  static const int names[3][4] = {{702, 704, 703, 705}, {714, 716, 715, 717}, {708, 710, 709, 711}};
  if (!plan->done || !pack->done || plan->kind != PLAN || pack->kind != PACK) return BAD_PARAM;
  if (value(plan, 402) && !value(pack, 1003)) return BAD_PARAM;
  const desc *configuration = inner(plan, 401), *engine = inner(configuration, 300);
  const desc *operation = inner(inner(engine, 1300), 801), *choice = inner(configuration, 302);
  if (operation->kind > DATA)
    return execute_attention(*handle, operation, pack, (int)value(engine, 1301), choice ? (int)value(choice, 601) : 2);
  const int *name = names[operation->kind - FORWARD];
  const desc *c = inner(operation, name[0]);
  work *w = zeroed(sizeof(work)); /* a captured launch may run at any later time */
  *w = (work){operation->kind, (int)value(c, 106), (int)value(engine, 1301), choice ? (int)value(choice, 601) : 2,
              *find(c, 102), *find(c, 103), *find(c, 105), tensor_of(operation, name[1], pack),
              tensor_of(operation, name[2], pack), tensor_of(operation, name[3], pack)};
  note("execute", w->engine, w->stages);
  return run_on(*handle, convolve, w) ? 5000 : FINE;
}
