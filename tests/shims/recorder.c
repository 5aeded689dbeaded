/* The functions of HIP (or, with AS_CUDA, of CUDA's driver) that tile_oracle.device.runtime calls. Each notes its name
 * and arguments in the file RECORD_TO and answers plausibly: device memory is the host's, kernels do nothing.
 *
 *   RECORD_FAIL=hipMalloc:2      that function fails with that number
 *   RECORD_ELAPSED_MS=0.5        what every pair of events is apart (default 0.01)
 *   RECORD_INFO=1,256,...        the nine numbers of to_launch_info
 */
typedef unsigned long size_t;
typedef void *handle;

int dprintf(int, const char *, ...);
int open(const char *, int, ...);
char *getenv(const char *);
void *malloc(size_t);
void free(void *);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int strcmp(const char *, const char *);
int strncmp(const char *, const char *, size_t);
size_t strlen(const char *);
char *strcpy(char *, const char *);
long strtol(const char *, char **, int);
double strtod(const char *, char **);

#ifdef AS_CUDA
#define BOTH(hip, cuda) cuda
#else
#define BOTH(hip, cuda) hip
#endif
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#define API(hip, cuda, ...) __attribute__((visibility("default"))) int BOTH(hip, cuda)(__VA_ARGS__)
#define NOTE(hip, cuda, format, ...)                                                                     \
  do {                                                                                                   \
    int failed = note(TEXT(BOTH(hip, cuda)), format __VA_OPT__(, ) __VA_ARGS__);                         \
    if (failed) return failed;                                                                           \
  } while (0)

static int record = -1;
static int info[9] = {1, 128, 0, 0, 0, 64, 64, 64, 1};
static unsigned long next_handle = 0x1000;

#define note(name, format, ...)                                                                          \
  (record < 0 ? (void)(record = open(getenv("RECORD_TO"), 02 | 0100 | 02000, 0600)) : (void)0,           \
   (void)dprintf(record, "%s " format "\n", name __VA_OPT__(, ) __VA_ARGS__), failure_of(name))

static int failure_of(const char *name) {
  const char *wanted = getenv("RECORD_FAIL");
  if (!wanted || strncmp(wanted, name, strlen(name)) || wanted[strlen(name)] != ':') return 0;
  return (int)strtol(wanted + strlen(name) + 1, 0, 10);
}

static handle fresh(void) { return (handle)(next_handle += 16); }

API(hipInit, cuInit, unsigned flags) { NOTE(hipInit, cuInit, "%u", flags); return 0; }
API(hipRuntimeGetVersion, cuDriverGetVersion, int *version) {
  *version = BOTH(60443484, 13000);
  NOTE(hipRuntimeGetVersion, cuDriverGetVersion, "");
  return 0;
}
API(hipGetDeviceCount, cuDeviceGetCount, int *count) { *count = 1; NOTE(hipGetDeviceCount, cuDeviceGetCount, ""); return 0; }
API(hipDeviceGet, cuDeviceGet, int *device, int index) {
  *device = index;
  NOTE(hipDeviceGet, cuDeviceGet, "%d", index);
  return 0;
}
API(hipDeviceGetName, cuDeviceGetName, char *name, int size, int device) {
  NOTE(hipDeviceGetName, cuDeviceGetName, "%d %d", size, device);
  strcpy(name, "a recorder");
  return 0;
}
API(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId, char *name, int size, int device) {
  NOTE(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId, "%d %d", size, device);
  const char *own = getenv("RECORD_PCI");
  strcpy(name, own ? own : "0000:AB:00.0");
  return 0;
}
API(hipMemGetInfo, cuMemGetInfo_v2, size_t *there, size_t *total) {
  *there = *total = 1ul << 30;
  NOTE(hipMemGetInfo, cuMemGetInfo_v2, "");
  return 0;
}
API(hipMalloc, cuMemAlloc_v2, handle *where, size_t size) {
  NOTE(hipMalloc, cuMemAlloc_v2, "%lu", size);
  *where = malloc(size);
  return 0;
}
API(hipFree, cuMemFree_v2, handle where) { NOTE(hipFree, cuMemFree_v2, "%p", where); free(where); return 0; }
API(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, handle to, const void *from, size_t size, handle stream) {
  NOTE(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, "%p %lu %p", to, size, stream);
  memcpy(to, from, size);
  return 0;
}
API(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void *to, handle from, size_t size, handle stream) {
  NOTE(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, "%p %lu %p", from, size, stream);
  memcpy(to, from, size);
  return 0;
}
API(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, void *to, handle from, size_t size, handle stream) {
  NOTE(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, "%p %p %lu %p", to, from, size, stream);
  memcpy(to, from, size);
  return 0;
}
API(hipMemsetD8Async, cuMemsetD8Async, handle where, unsigned char value, size_t size, handle stream) {
  NOTE(hipMemsetD8Async, cuMemsetD8Async, "%p %u %lu %p", where, value, size, stream);
  memset(where, value, size);
  return 0;
}
API(hipModuleLoadData, cuModuleLoadData, handle *module, const char *image) {
  NOTE(hipModuleLoadData, cuModuleLoadData, "%.4s", image);
  *module = fresh();
  return 0;
}
API(hipModuleUnload, cuModuleUnload, handle module) { NOTE(hipModuleUnload, cuModuleUnload, "%p", module); return 0; }
API(hipModuleGetFunction, cuModuleGetFunction, handle *function, handle module, const char *name) {
  NOTE(hipModuleGetFunction, cuModuleGetFunction, "%p %s", module, name);
  *function = fresh();
  return 0;
}
API(hipModuleGetGlobal, cuModuleGetGlobal_v2, handle *where, size_t *size, handle module, const char *name) {
  NOTE(hipModuleGetGlobal, cuModuleGetGlobal_v2, "%p %s", module, name);
  char *numbers = getenv("RECORD_INFO");
  for (int i = 0; numbers && *numbers && i < 9; ++i) {
    info[i] = (int)strtol(numbers, &numbers, 10);
    if (*numbers) ++numbers;
  }
  *where = info;
  *size = sizeof info;
  return 0;
}
API(hipModuleLaunchKernel, cuLaunchKernel, handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
    unsigned by, unsigned bz, unsigned lds, handle stream, void **parameters, void **extra) {
  NOTE(hipModuleLaunchKernel, cuLaunchKernel, "%p %u,%u,%u %u,%u,%u %u %p %p %d", function, gx, gy, gz, bx, by, bz, lds,
       stream, *(void **)parameters[0], extra != 0);
  return 0;
}
API(hipStreamCreateWithFlags, cuStreamCreate, handle *stream, unsigned flags) {
  NOTE(hipStreamCreateWithFlags, cuStreamCreate, "%u", flags);
  *stream = fresh();
  return 0;
}
API(hipStreamSynchronize, cuStreamSynchronize, handle stream) {
  NOTE(hipStreamSynchronize, cuStreamSynchronize, "%p", stream);
  return 0;
}
API(hipEventCreateWithFlags, cuEventCreate, handle *event, unsigned flags) {
  NOTE(hipEventCreateWithFlags, cuEventCreate, "%u", flags);
  *event = fresh();
  return 0;
}
API(hipEventDestroy, cuEventDestroy_v2, handle event) { NOTE(hipEventDestroy, cuEventDestroy_v2, "%p", event); return 0; }
API(hipEventRecord, cuEventRecord, handle event, handle stream) {
  NOTE(hipEventRecord, cuEventRecord, "%p %p", event, stream);
  return 0;
}
API(hipEventElapsedTime, cuEventElapsedTime, float *ms, handle from, handle to) {
  NOTE(hipEventElapsedTime, cuEventElapsedTime, "%p %p", from, to);
  const char *wanted = getenv("RECORD_ELAPSED_MS");
  *ms = wanted ? (float)strtod(wanted, 0) : 0.01f;
  return 0;
}
API(hipStreamBeginCapture, cuStreamBeginCapture_v2, handle stream, int mode) {
  NOTE(hipStreamBeginCapture, cuStreamBeginCapture_v2, "%p %d", stream, mode);
  return 0;
}
API(hipStreamEndCapture, cuStreamEndCapture, handle stream, handle *graph) {
  *graph = fresh();
  NOTE(hipStreamEndCapture, cuStreamEndCapture, "%p", stream);
  return 0;
}
API(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, handle *graph, handle captured, unsigned long long flags) {
  NOTE(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, "%p %llu", captured, flags);
  *graph = fresh();
  return 0;
}
API(hipGraphLaunch, cuGraphLaunch, handle graph, handle stream) {
  NOTE(hipGraphLaunch, cuGraphLaunch, "%p %p", graph, stream);
  return 0;
}
API(hipGraphExecDestroy, cuGraphExecDestroy, handle graph) { NOTE(hipGraphExecDestroy, cuGraphExecDestroy, "%p", graph); return 0; }
API(hipGraphDestroy, cuGraphDestroy, handle graph) { NOTE(hipGraphDestroy, cuGraphDestroy, "%p", graph); return 0; }

#ifdef AS_CUDA
API(, cuDeviceGetAttribute, int *value, int attribute, int device) {
  NOTE(, cuDeviceGetAttribute, "%d %d", attribute, device);
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 0;
  return 0;
}
API(, cuDevicePrimaryCtxRetain, handle *context, int device) {
  NOTE(, cuDevicePrimaryCtxRetain, "%d", device);
  *context = fresh();
  return 0;
}
API(, cuCtxSetCurrent, handle context) { NOTE(, cuCtxSetCurrent, "%p", context); return 0; }
API(, cuFuncSetAttribute, handle function, int attribute, int value) {
  NOTE(, cuFuncSetAttribute, "%p %d %d", function, attribute, value);
  return 0;
}
API(, cuFuncGetAttribute, int *value, int attribute, handle function) {
  NOTE(, cuFuncGetAttribute, "%d %p", attribute, function);
  *value = attribute == 1 ? 256 : attribute == 3 ? 10 : attribute == 4 ? 168 : 0;
  return 0;
}
API(, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *count, handle function, int threads, size_t lds) {
  NOTE(, cuOccupancyMaxActiveBlocksPerMultiprocessor, "%p %d %lu", function, threads, lds);
  *count = 3;
  return 0;
}
API(, cuGetErrorName, int code, const char **name) { *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR"; return code == 12345; }
#else
API(hipSetDevice, , int device) { NOTE(hipSetDevice, , "%d", device); return 0; }
API(hipGetDevicePropertiesR0600, , char *block, int device) {
  NOTE(hipGetDevicePropertiesR0600, , "%d", device);
  const char *own = getenv("RECORD_ARCH");
  strcpy(block + 1160, own ? own : "gfx950:sramecc+:xnack-");
  return 0;
}
__attribute__((visibility("default"))) const char *hipGetErrorName(int code) {
  return code == 700 ? "hipErrorIllegalAddress" : code == 12345 ? 0 : "hipErrorSomething";
}
#endif
