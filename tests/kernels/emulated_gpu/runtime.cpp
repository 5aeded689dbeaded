// The functions of HIP's runtime (or, with AS_CUDA, of CUDA's driver) that tile_oracle.device.runtime calls, over the emulated
// GPU: kernels really run, and compute what they should.
//
//   EMULATED_CODE=FOLDER     what modules are: FOLDER/<length>-<CRC-32 of the image>.emulated is the same source, compiled for the
//                            emulator (compiler.py). An image without one is invalid.
//   EMULATED_GPUS=2          how many GPUs there are (default 1), before HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES
//   EMULATED_ACCESS_NS=100   how many nanoseconds a memory access takes (default 1): a kernel that takes longer needs fewer
//                            runs for one sample
//   EMULATED_HIP_FAULTS=code a kernel's fault is an error number in HIP, too; by default HIP ends the process, as ROCm does
//
// Launches run at once, but their faults come to light in the next call that waits, and in all later ones. Whatever
// the emulator finds (bounds, races in LDS, missing waits) is such a fault, with its message on standard error. Device
// memory is the host's. The clock counts memory accesses: equal runs take equal times, which say nothing about a GPU.
#include "emulator.cpp"

typedef unsigned long size_t;
typedef void *handle;

extern "C" {
[[noreturn]] void abort(void);
int dprintf(int, const char *, ...);
char *getenv(const char *);
void *malloc(size_t);
void *realloc(void *, size_t);
void free(void *);
int strcmp(const char *, const char *);
size_t strlen(const char *);
long strtol(const char *, char **, int);
void *dlopen(const char *, int);
void *dlsym(void *, const char *);
int dlclose(void *);
int dladdr(const void *, void *);
int dladdr1(const void *, void *, void **, int);
}

#ifdef AS_CUDA
#define BOTH(hip, cuda) cuda
#else
#define BOTH(hip, cuda) hip
#endif
#define API(hip, cuda, ...) EXPORTED int BOTH(hip, cuda)(__VA_ARGS__)

namespace {

enum Code {
  FINE = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  NO_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
};

constexpr u64 MEMORY_BYTES = 2ull << 30;
constexpr int MOST_GPUS = 8, COMPUTE_UNITS = 4;
constexpr int LDS_OF_UNIT = BOTH(160, 228) << 10, LDS_OF_LAUNCH = BOTH(160, 227) << 10, LDS_UNASKED = BOTH(160, 48) << 10;
constexpr int REGISTERS = 128, MOST_ARGUMENTS = 16;
// Nanoseconds of the device's clock.
constexpr double NS_LAUNCH = 3000, NS_IN_GRAPH = 1000, NS_MISS = 20000, BYTES_A_NS = 4000;
constexpr u64 CACHE_BYTES = 32 << 20;

int fault;        // of a kernel, found out about by the next call that waits
double clock_ns;  // the device's
double host_takes_ns; // what a function of the host says that it took
int access_ns;    // of the clock; 0: not known yet
bool cold;        // caches hold something else than what kernels use
int visible[MOST_GPUS], visible_count = -1;
bool has_context;

// ---- handles: of each kind of object, numbers that are never used again ----

enum Kind_ { MODULE = 1, FUNCTION, STREAM, EVENT, GRAPH, EXECUTABLE };

struct Module {
  void *library;
  const emu_module *code;
};
// What its kernels declare, beside which a launch asks for more.
int declared_lds_bytes(const emu_module *code) {
  return code->static_lds_bytes + (int)(code->variables_end - code->variables);
}
struct Function {
  size_t module; // its handle
  const emu_module *code;
  void (*entry)(const void *);
  int argument_count, argument_bytes[MOST_ARGUMENTS];
  int dynamic_lds_bytes; // what a launch may ask for
};
struct Node {
  size_t function;
  int grid[3], threads, lds_bytes;
  u8 *arguments; // one after the other, each at a multiple of 16
  void (*host)(void *); // a function of the host in place of a kernel, and its argument
  void *data;
};
struct Graph {
  Node *nodes;
  int count;
};
struct Event {
  bool recorded;
  double ns;
};
struct Object {
  Kind_ kind;
  bool alive;
  void *what;
};
Object *objects;
size_t object_count;

handle add(Kind_ kind, void *what) {
  objects = (Object *)realloc(objects, (object_count + 1) * sizeof(Object));
  objects[object_count] = Object{kind, true, what};
  return (handle)((++object_count << 8) | 0x80); // no address, and no small number
}
Object *object_of(handle h, Kind_ kind) {
  size_t n = ((size_t)h >> 8) - 1;
  if (((size_t)h & 255) != 0x80 || n >= object_count || objects[n].kind != kind || !objects[n].alive) return nullptr;
  return objects + n;
}
template <class T> T *find(handle h, Kind_ kind) {
  Object *o = object_of(h, kind);
  return o ? (T *)o->what : nullptr;
}
template <class T> T *made() {
  T *t = (T *)malloc(sizeof(T));
  *t = T{};
  return t;
}

// ---- memory: what was allocated, and modules' variables ----

struct Allocation {
  emu_range range;
  void *block;
  char name[40];
};
Allocation **allocations;
int allocation_count, allocations_made;
u64 allocated_bytes;

bool within(const void *p, u64 bytes) {
  for (int i = 0; i < allocation_count; ++i) {
    u64 at = (const u8 *)p - allocations[i]->range.first;
    if (at < allocations[i]->range.bytes && at + bytes <= allocations[i]->range.bytes) return true;
  }
  return false;
}

// What dladdr and dladdr1 write.
struct Place {
  const char *library;
  void *base;
  const char *symbol;
  void *address;
};
struct Symbol {
  u32 name;
  u8 info, other;
  u16 section;
  u64 value, size;
};

bool is_variable(const void *p, u64 bytes) {
  Place place;
  Symbol *symbol = nullptr;
  if (!dladdr1(p, &place, (void **)&symbol, 1) || !symbol || !place.address) return false;
  return (const u8 *)p + bytes <= (const u8 *)place.address + symbol->size;
}

// ---- images ----

u32 crc32(const u8 *p, u64 bytes) {
  u32 crc = ~0u;
  for (u64 i = 0; i < bytes; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

template <class T> T at(const u8 *p, u64 offset) {
  T value;
  memcpy(&value, p + offset, sizeof value);
  return value;
}

// Nobody tells a driver how long an image is: an ELF file ends where the last of its parts does, PTX with a zero.
u64 image_bytes(const u8 *p) {
  if (at<u32>(p, 0) != 0x464C457F) return strlen((const char *)p);
  u64 programs = at<u64>(p, 32), sections = at<u64>(p, 40), section_bytes = at<u16>(p, 58), count = at<u16>(p, 60);
  u64 end = programs + (u64)at<u16>(p, 54) * at<u16>(p, 56);
  if (sections + count * section_bytes > end) end = sections + count * section_bytes;
  for (u64 i = 0; i < count; ++i) {
    const u8 *s = p + sections + i * section_bytes;
    bool in_file = at<u32>(s, 4) != 8; // SHT_NOBITS
    u64 last = at<u64>(s, 24) + (in_file ? at<u64>(s, 32) : 0);
    if (last > end) end = last;
  }
  return end;
}

int load(Module *module, const u8 *image) {
  bool elf = at<u32>(image, 0) == 0x464C457F;
  if (elf && at<u16>(image, 18) != BOTH(224, 190)) return NO_BINARY_FOR_GPU;
  if (!elf && BOTH(true, image[0] != '/' && image[0] != '.')) return INVALID_IMAGE;
  const char *folder = getenv("EMULATED_CODE");
  char path[4096];
  u64 bytes = image_bytes(image);
  snprintf(path, sizeof path, "%s/%llx-%08x.emulated", folder ? folder : ".", bytes, crc32(image, bytes));
  // Modules find the emulator's functions by name, so this library must be visible to them.
  static void *own;
  Place here;
  if (!own && dladdr((void *)&load, &here)) own = dlopen(here.library, 2 | 4 | 0x100); // now, if loaded; global
  module->library = dlopen(path, 2);
  if (!module->library) return INVALID_IMAGE;
  module->code = (const emu_module *)dlsym(module->library, "to_emulated_module");
  return module->code ? FINE : INVALID_IMAGE;
}

// ---- launches ----

Graph *capturing;
bool capture_broken;

int check_launch(const Function &f, const Node &n, const unsigned *block) {
  if (block[1] != 1 || block[2] != 1 || n.threads < 1 || n.threads > MOST_LANES) return INVALID_VALUE;
  for (int i = 0; i < 3; ++i)
    if (n.grid[i] < 1 || (i && n.grid[i] > 65535)) return INVALID_VALUE;
  if (n.lds_bytes > f.dynamic_lds_bytes || declared_lds_bytes(f.code) + n.lds_bytes > LDS_OF_LAUNCH) return INVALID_VALUE;
  return FINE;
}

int ns_of_an_access() {
  if (!access_ns) {
    const char *number = getenv("EMULATED_ACCESS_NS");
    access_ns = number ? (int)strtol(number, nullptr, 10) : 1;
    if (access_ns < 1) access_ns = 1;
  }
  return access_ns;
}

void run(const Node &n, double overhead_ns) {
  if (fault) return;
  if (n.host) {
    host_takes_ns = 0;
    n.host(n.data);
    clock_ns += overhead_ns + host_takes_ns;
    return;
  }
  Function *f = find<Function>((handle)n.function, FUNCTION);
  void *addresses[MOST_ARGUMENTS];
  u8 *next = n.arguments;
  for (int i = 0; i < f->argument_count; next += (f->argument_bytes[i++] + 15) / 16 * 16) addresses[i] = next;
  emu_range *ranges = (emu_range *)malloc((allocation_count + 1) * sizeof(emu_range));
  for (int i = 0; i < allocation_count; ++i) ranges[i] = allocations[i]->range;
  emu_launch what{f->entry, f->code, addresses, ranges, allocation_count, {n.grid[0], n.grid[1], n.grid[2]}, n.threads,
                  n.lds_bytes, {}};
  u64 before = accesses;
  trapped = false;
  if (emu_run(&what)) {
    fault = trapped ? LAUNCH_FAILED : ILLEGAL_ADDRESS;
    dprintf(2, "the emulated GPU: %s\n", what.message);
  }
  free(ranges);
  clock_ns += overhead_ns + (cold ? NS_MISS : 0) + (double)ns_of_an_access() * (double)(accesses - before);
  cold = false;
}

// What every call begins with that is not part of a capture.
int refused() {
  if (!has_context) return NO_CONTEXT;
  if (capturing) {
    capture_broken = true;
    return CAPTURE_UNSUPPORTED;
  }
#ifndef AS_CUDA
  const char *faults = getenv("EMULATED_HIP_FAULTS");
  if (fault && !(faults && !strcmp(faults, "code"))) {
    dprintf(2, fault == ILLEGAL_ADDRESS ? "Memory access fault by GPU node-1. Reason: Unknown.\n"
                                        : "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.\n");
    abort();
  }
#endif
  return fault;
}

int see_devices() {
  if (visible_count >= 0) return visible_count ? FINE : NO_DEVICE;
  const char *number = getenv("EMULATED_GPUS"), *list = getenv(BOTH("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"));
  int there = number ? (int)strtol(number, nullptr, 10) : 1;
  if (there > MOST_GPUS) there = MOST_GPUS;
  if (list && !*list) list = nullptr;
  visible_count = 0;
  for (int i = 0; !list && i < there; ++i) visible[visible_count++] = i;
  // As the vendors do it: what stands behind a number that is no device is not seen.
  while (list && *list && visible_count < MOST_GPUS) {
    char *end;
    long device = strtol(list, &end, 10);
    if (end == list || device < 0 || device >= there) break;
    visible[visible_count++] = (int)device;
    list = *end == ',' ? end + 1 : end;
  }
  return visible_count ? FINE : NO_DEVICE;
}

void give_back(Graph *graph) {
  for (int i = 0; i < graph->count; ++i) free(graph->nodes[i].arguments);
  free(graph->nodes);
  free(graph);
}

int destroy(handle h, Kind_ kind) {
  Object *o = object_of(h, kind);
  if (!o) return INVALID_HANDLE;
  o->alive = false;
  return FINE;
}

} // namespace

#define UNLESS_REFUSED                                                                              \
  if (int code = refused()) return code;

// ---- the device ----

API(hipInit, cuInit, unsigned) { return see_devices(); }
API(hipRuntimeGetVersion, cuDriverGetVersion, int *version) {
  *version = BOTH(60443484, 12080);
  return FINE;
}
API(hipGetDeviceCount, cuDeviceGetCount, int *count) {
  int code = see_devices();
  *count = visible_count;
  return BOTH(code, FINE);
}
API(hipDeviceGet, cuDeviceGet, int *device, int index) {
  if (int code = see_devices()) return code;
  *device = index;
  return index < 0 || index >= visible_count ? INVALID_DEVICE : FINE;
}
const char *amd_arch() {
  const char *given = getenv("EMULATED_ARCH");
  return given ? given : "gfx950";
}
API(hipDeviceGetName, cuDeviceGetName, char *name, int size, int) {
  snprintf(name, size, "emulated %s", BOTH(amd_arch(), "sm_90"));
  return FINE;
}
API(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId, char *name, int size, int device) {
  snprintf(name, size, "0000:%02X:00.0", 0xE0 + visible[device]);
  return FINE;
}
#ifdef AS_CUDA
EXPORTED int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 16 ? COMPUTE_UNITS : 0;
  return FINE;
}
EXPORTED int cuDevicePrimaryCtxRetain(handle *context, int device) {
  *context = (handle)(size_t)(0xC0 + device);
  return FINE;
}
EXPORTED int cuCtxSetCurrent(handle context) {
  has_context = context != nullptr;
  return FINE;
}
EXPORTED int cuGetErrorName(int code, const char **name) {
#else
EXPORTED int hipSetDevice(int device) {
  has_context = device >= 0 && device < visible_count;
  return has_context ? FINE : INVALID_DEVICE;
}
EXPORTED int hipGetDevicePropertiesR0600(char *block, int) {
  memset(block, 0, 1472);
  snprintf(block + 1160, 256, "%s:sramecc+:xnack-", amd_arch()); // where ROCm 6 has gcnArchName
  return FINE;
}
EXPORTED const char *hipGetErrorName(int code) {
  const char *found = "", **name = &found;
#endif
#define NAMED(number, hip, cuda) *name = code == number ? BOTH(hip, cuda) : *name;
  *name = BOTH("hipErrorUnknown", "CUDA_ERROR_UNKNOWN");
  NAMED(INVALID_VALUE, "hipErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE")
  NAMED(OUT_OF_MEMORY, "hipErrorOutOfMemory", "CUDA_ERROR_OUT_OF_MEMORY")
  NAMED(NO_DEVICE, "hipErrorNoDevice", "CUDA_ERROR_NO_DEVICE")
  NAMED(INVALID_DEVICE, "hipErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE")
  NAMED(INVALID_IMAGE, "hipErrorInvalidImage", "CUDA_ERROR_INVALID_IMAGE")
  NAMED(NO_CONTEXT, "hipErrorInvalidContext", "CUDA_ERROR_INVALID_CONTEXT")
  NAMED(NO_BINARY_FOR_GPU, "hipErrorNoBinaryForGpu", "CUDA_ERROR_NO_BINARY_FOR_GPU")
  NAMED(INVALID_HANDLE, "hipErrorInvalidHandle", "CUDA_ERROR_INVALID_HANDLE")
  NAMED(NOT_FOUND, "hipErrorNotFound", "CUDA_ERROR_NOT_FOUND")
  NAMED(ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS")
  NAMED(LAUNCH_FAILED, "hipErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED")
  NAMED(CAPTURE_UNSUPPORTED, "hipErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
  NAMED(CAPTURE_INVALIDATED, "hipErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
  return BOTH(found, FINE);
}

// ---- memory ----

API(hipMemGetInfo, cuMemGetInfo_v2, size_t *there, size_t *total) {
  UNLESS_REFUSED
  *there = MEMORY_BYTES - allocated_bytes;
  *total = MEMORY_BYTES;
  return FINE;
}
API(hipMalloc, cuMemAlloc_v2, handle *where, size_t bytes) {
  UNLESS_REFUSED
  if (!bytes) return INVALID_VALUE;
  if (bytes > MEMORY_BYTES - allocated_bytes) return OUT_OF_MEMORY;
  Allocation *made_now = made<Allocation>();
  made_now->block = malloc(bytes + 256);
  if (!made_now->block) return OUT_OF_MEMORY;
  u8 *first = (u8 *)(((size_t)made_now->block + 255) / 256 * 256);
  snprintf(made_now->name, sizeof made_now->name, "allocation %d", ++allocations_made);
  made_now->range = emu_range{first, bytes, nullptr, made_now->name, MAY_READ | MAY_WRITE};
  allocations = (Allocation **)realloc(allocations, (allocation_count + 1) * sizeof *allocations);
  allocations[allocation_count++] = made_now;
  allocated_bytes += bytes;
  *where = first;
  return FINE;
}
API(hipFree, cuMemFree_v2, handle where) {
  UNLESS_REFUSED
  for (int i = 0; i < allocation_count; ++i)
    if (allocations[i]->range.first == where) {
      allocated_bytes -= allocations[i]->range.bytes;
      free(allocations[i]->block);
      free(allocations[i]);
      allocations[i] = allocations[--allocation_count];
      return FINE;
    }
  return INVALID_VALUE;
}
API(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, handle to, const void *from, size_t bytes, handle stream) {
  UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  if (!within(to, bytes)) return INVALID_VALUE;
  memcpy(to, from, bytes);
  return FINE;
}
API(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void *to, handle from, size_t bytes, handle stream) {
  UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  if (!within(from, bytes) && !is_variable(from, bytes)) return INVALID_VALUE;
  memcpy(to, from, bytes);
  return FINE;
}
API(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, handle to, handle from, size_t bytes, handle stream) {
  UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  if (!within(to, bytes) || !within(from, bytes)) return INVALID_VALUE;
  memcpy(to, from, bytes);
  return FINE;
}
API(hipMemsetD8Async, cuMemsetD8Async, handle where, unsigned char value, size_t bytes, handle stream) {
  UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  if (!within(where, bytes)) return INVALID_VALUE;
  memset(where, value, bytes);
  cold = cold || bytes >= CACHE_BYTES;
  clock_ns += (double)bytes / BYTES_A_NS;
  return FINE;
}

// ---- code ----

API(hipModuleLoadData, cuModuleLoadData, handle *module, const u8 *image) {
  UNLESS_REFUSED
  Module *loaded = made<Module>();
  int code = load(loaded, image);
  if (code == FINE) *module = add(MODULE, loaded);
  return code;
}
API(hipModuleUnload, cuModuleUnload, handle module) {
  UNLESS_REFUSED
  Module *loaded = find<Module>(module, MODULE);
  if (!loaded) return INVALID_HANDLE;
  for (size_t i = 0; i < object_count; ++i)
    if (objects[i].kind == FUNCTION && ((Function *)objects[i].what)->module == (size_t)module) objects[i].alive = false;
  dlclose(loaded->library);
  return destroy(module, MODULE);
}
API(hipModuleGetFunction, cuModuleGetFunction, handle *function, handle module, const char *name) {
  UNLESS_REFUSED
  Module *loaded = find<Module>(module, MODULE);
  if (!loaded) return INVALID_HANDLE;
  char symbol[256];
  snprintf(symbol, sizeof symbol, "launch_%s", name);
  void *entry = dlsym(loaded->library, symbol);
  snprintf(symbol, sizeof symbol, "arguments_of_%s", name);
  void *sizes = dlsym(loaded->library, symbol);
  if (!entry || !sizes) return NOT_FOUND;
  Function *f = made<Function>();
  f->module = (size_t)module;
  f->code = loaded->code;
  f->entry = (void (*)(const void *))entry;
  f->argument_count = ((int (*)(int *))sizes)(f->argument_bytes);
  f->dynamic_lds_bytes = LDS_UNASKED - declared_lds_bytes(f->code);
  *function = add(FUNCTION, f);
  return FINE;
}
API(hipModuleGetGlobal, cuModuleGetGlobal_v2, handle *where, size_t *bytes, handle module, const char *name) {
  UNLESS_REFUSED
  Module *loaded = find<Module>(module, MODULE);
  if (!loaded) return INVALID_HANDLE;
  *where = dlsym(loaded->library, name);
  Place place;
  Symbol *symbol = nullptr;
  if (!*where || !dladdr1(*where, &place, (void **)&symbol, 1) || !symbol) return NOT_FOUND;
  *bytes = symbol->size;
  return FINE;
}
API(hipModuleLaunchKernel, cuLaunchKernel, handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned lds, handle stream, void **parameters, void **) {
  if (!capturing) UNLESS_REFUSED
  Function *f = find<Function>(function, FUNCTION);
  if (!f || !object_of(stream, STREAM)) return INVALID_HANDLE;
  unsigned block[] = {bx, by, bz};
  Node node{(size_t)function, {(int)gx, (int)gy, (int)gz}, (int)bx, (int)lds, nullptr, nullptr, nullptr};
  if (int code = check_launch(*f, node, block)) {
    capture_broken = true;
    return code;
  }
  u64 bytes = 16;
  for (int i = 0; i < f->argument_count; ++i) bytes += (f->argument_bytes[i] + 15) / 16 * 16;
  u8 *next = node.arguments = (u8 *)malloc(bytes);
  for (int i = 0; i < f->argument_count; next += (f->argument_bytes[i++] + 15) / 16 * 16)
    memcpy(next, parameters[i], f->argument_bytes[i]);
  if (capturing) {
    capturing->nodes = (Node *)realloc(capturing->nodes, (capturing->count + 1) * sizeof(Node));
    capturing->nodes[capturing->count++] = node;
    return FINE;
  }
  run(node, NS_LAUNCH);
  free(node.arguments);
  return FINE;
}

// A function of the host on the stream, as emulated libraries run one in place of their kernels.
API(hipLaunchHostFunc, cuLaunchHostFunc, handle stream, void (*function)(void *), void *data) {
  if (!capturing) UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  Node node{};
  node.host = function;
  node.data = data;
  if (capturing) {
    capturing->nodes = (Node *)realloc(capturing->nodes, (capturing->count + 1) * sizeof(Node));
    capturing->nodes[capturing->count++] = node;
    return FINE;
  }
  run(node, NS_LAUNCH);
  return FINE;
}
// What the function of the host that runs now takes on the device's clock.
EXPORTED void emulated_host_takes_ns(double ns) { host_takes_ns = ns; }

// ---- streams, events, graphs ----

API(hipStreamCreateWithFlags, cuStreamCreate, handle *stream, unsigned) {
  UNLESS_REFUSED
  *stream = add(STREAM, nullptr);
  return FINE;
}
API(hipStreamSynchronize, cuStreamSynchronize, handle stream) {
  UNLESS_REFUSED
  return object_of(stream, STREAM) ? FINE : INVALID_HANDLE;
}
API(hipEventCreateWithFlags, cuEventCreate, handle *event, unsigned) {
  UNLESS_REFUSED
  *event = add(EVENT, made<Event>());
  return FINE;
}
API(hipEventDestroy, cuEventDestroy_v2, handle event) {
  UNLESS_REFUSED
  return destroy(event, EVENT);
}
API(hipEventRecord, cuEventRecord, handle event, handle stream) {
  UNLESS_REFUSED
  Event *e = find<Event>(event, EVENT);
  if (!e || !object_of(stream, STREAM)) return INVALID_HANDLE;
  *e = Event{true, clock_ns};
  return FINE;
}
API(hipEventElapsedTime, cuEventElapsedTime, float *ms, handle from, handle to) {
  UNLESS_REFUSED
  Event *a = find<Event>(from, EVENT), *b = find<Event>(to, EVENT);
  if (!a || !b || !a->recorded || !b->recorded) return INVALID_HANDLE;
  *ms = (float)((b->ns - a->ns) / 1e6);
  return FINE;
}
API(hipStreamBeginCapture, cuStreamBeginCapture_v2, handle stream, int) {
  UNLESS_REFUSED
  if (!object_of(stream, STREAM)) return INVALID_HANDLE;
  capturing = made<Graph>();
  capture_broken = false;
  return FINE;
}
API(hipStreamEndCapture, cuStreamEndCapture, handle stream, handle *graph) {
  *graph = nullptr;
  if (!capturing || !object_of(stream, STREAM)) return INVALID_VALUE;
  Graph *made_now = capturing;
  capturing = nullptr;
  if (capture_broken) {
    give_back(made_now);
    return CAPTURE_INVALIDATED;
  }
  *graph = add(GRAPH, made_now);
  return FINE;
}
API(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, handle *executable, handle graph, unsigned long long) {
  UNLESS_REFUSED
  Graph *from = find<Graph>(graph, GRAPH);
  if (!from) return INVALID_HANDLE;
  Graph *copy = made<Graph>();
  copy->nodes = (Node *)malloc((from->count + 1) * sizeof(Node));
  for (int i = 0; i < from->count; ++i) {
    Node &node = copy->nodes[copy->count++] = from->nodes[i];
    if (node.host) continue;
    Function *f = find<Function>((handle)node.function, FUNCTION);
    if (!f) return INVALID_HANDLE;
    u64 bytes = 16;
    for (int a = 0; a < f->argument_count; ++a) bytes += (f->argument_bytes[a] + 15) / 16 * 16;
    node.arguments = (u8 *)memcpy(malloc(bytes), from->nodes[i].arguments, bytes);
  }
  *executable = add(EXECUTABLE, copy);
  return FINE;
}
API(hipGraphLaunch, cuGraphLaunch, handle executable, handle stream) {
  UNLESS_REFUSED
  Graph *graph = find<Graph>(executable, EXECUTABLE);
  if (!graph || !object_of(stream, STREAM)) return INVALID_HANDLE;
  for (int i = 0; i < graph->count; ++i) {
    // Its module was unloaded: the code is gone.
    if (!graph->nodes[i].host && !find<Function>((handle)graph->nodes[i].function, FUNCTION)) return INVALID_HANDLE;
    run(graph->nodes[i], i ? NS_IN_GRAPH : NS_LAUNCH);
  }
  return FINE;
}
API(hipGraphExecDestroy, cuGraphExecDestroy, handle executable) {
  UNLESS_REFUSED
  Graph *graph = find<Graph>(executable, EXECUTABLE);
  if (graph) give_back(graph);
  return destroy(executable, EXECUTABLE);
}
API(hipGraphDestroy, cuGraphDestroy, handle graph) {
  UNLESS_REFUSED
  Graph *captured = find<Graph>(graph, GRAPH);
  if (captured) give_back(captured);
  return destroy(graph, GRAPH);
}

// ---- what only CUDA says of a function ----

#ifdef AS_CUDA
EXPORTED int cuFuncSetAttribute(handle function, int attribute, int value) {
  UNLESS_REFUSED
  Function *f = find<Function>(function, FUNCTION);
  if (!f) return INVALID_HANDLE;
  if (attribute != 8 || value < 0 || value > LDS_OF_LAUNCH) return INVALID_VALUE;
  f->dynamic_lds_bytes = value;
  return FINE;
}
EXPORTED int cuFuncGetAttribute(int *value, int attribute, handle function) {
  UNLESS_REFUSED
  Function *f = find<Function>(function, FUNCTION);
  if (!f) return INVALID_HANDLE;
  // The emulator has no registers; this many are said to be used.
  *value = attribute == 1 ? declared_lds_bytes(f->code) : attribute == 4 ? REGISTERS : 0;
  return FINE;
}
EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, handle function, int threads, size_t lds) {
  UNLESS_REFUSED
  Function *f = find<Function>(function, FUNCTION);
  if (!f || threads < 1) return f ? INVALID_VALUE : INVALID_HANDLE;
  int by_threads = 2048 / threads, by_registers = 65536 / (REGISTERS * threads);
  int by_lds = LDS_OF_UNIT / (int)(declared_lds_bytes(f->code) + lds + 1024);
  *count = by_threads < by_registers ? by_threads : by_registers;
  if (by_lds < *count) *count = by_lds;
  return FINE;
}
#endif
