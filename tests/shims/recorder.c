/* The functions of HIP (or, with AS_CUDA, of CUDA's driver) that tile_oracle.device.runtime calls. Each notes its name
 * in HIP (in CUDA, if HIP has no such function) and its arguments in the file RECORD_TO, and answers plausibly:
 * device memory is the host's, kernels do nothing.
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
    int failed = note(*TEXT(hip) ? TEXT(hip) : TEXT(cuda), format __VA_OPT__(, ) __VA_ARGS__);           \
    if (failed) return failed;                                                                           \
  } while (0)

/* A function that notes its arguments and, unless it is to fail, does one thing. */
#define CALL(hip, cuda, parameters, does, ...)                                                            \
  __attribute__((visibility("default"))) int BOTH(hip, cuda) parameters {                                \
    NOTE(hip, cuda, __VA_ARGS__);                                                                         \
    does;                                                                                                \
    return 0;                                                                                            \
  }

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

CALL(hipInit, cuInit, (unsigned flags), , "%u", flags)
CALL(hipRuntimeGetVersion, cuDriverGetVersion, (int *version), *version = BOTH(60443484, 13000), "")
CALL(hipGetDeviceCount, cuDeviceGetCount, (int *count), *count = 1, "")
CALL(hipDeviceGet, cuDeviceGet, (int *device, int index), *device = index, "%d", index)
CALL(hipDeviceGetName, cuDeviceGetName, (char *name, int size, int device), strcpy(name, "a recorder"), "%d %d", size, device)
API(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId, char *name, int size, int device) {
  NOTE(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId, "%d %d", size, device);
  const char *own = getenv("RECORD_PCI");
  strcpy(name, own ? own : "0000:AB:00.0");
  return 0;
}
CALL(hipMemGetInfo, cuMemGetInfo_v2, (size_t *there, size_t *total), *there = *total = 1ul << 30, "")
CALL(hipMalloc, cuMemAlloc_v2, (handle *where, size_t size), *where = malloc(size), "%lu", size)
CALL(hipFree, cuMemFree_v2, (handle where), free(where), "%p", where)
CALL(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (handle to, const void *from, size_t size, handle stream),
     memcpy(to, from, size), "%p %lu %p", to, size, stream)
CALL(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, handle from, size_t size, handle stream),
     memcpy(to, from, size), "%p %lu %p", from, size, stream)
CALL(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (void *to, handle from, size_t size, handle stream),
     memcpy(to, from, size), "%p %p %lu %p", to, from, size, stream)
CALL(hipMemsetD8Async, cuMemsetD8Async, (handle where, unsigned char value, size_t size, handle stream),
     memset(where, value, size), "%p %u %lu %p", where, value, size, stream)
CALL(hipModuleLoadData, cuModuleLoadData, (handle *module, const char *image), *module = fresh(), "%.4s", image)
CALL(hipModuleUnload, cuModuleUnload, (handle module), , "%p", module)
CALL(hipModuleGetFunction, cuModuleGetFunction, (handle *function, handle module, const char *name),
     *function = fresh(), "%p %s", module, name)
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
CALL(hipModuleLaunchKernel, cuLaunchKernel, (handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
    unsigned by, unsigned bz, unsigned lds, handle stream, void **parameters, void **extra),
     , "%p %u,%u,%u %u,%u,%u %u %p %p %d", function, gx, gy, gz, bx, by, bz, lds, stream, *(void **)parameters[0], extra != 0)
CALL(hipStreamCreateWithFlags, cuStreamCreate, (handle *stream, unsigned flags), *stream = fresh(), "%u", flags)
CALL(hipStreamSynchronize, cuStreamSynchronize, (handle stream), , "%p", stream)
CALL(hipEventCreateWithFlags, cuEventCreate, (handle *event, unsigned flags), *event = fresh(), "%u", flags)
CALL(hipEventDestroy, cuEventDestroy_v2, (handle event), , "%p", event)
CALL(hipEventRecord, cuEventRecord, (handle event, handle stream), , "%p %p", event, stream)
API(hipEventElapsedTime, cuEventElapsedTime, float *ms, handle from, handle to) {
  NOTE(hipEventElapsedTime, cuEventElapsedTime, "%p %p", from, to);
  const char *wanted = getenv("RECORD_ELAPSED_MS");
  *ms = wanted ? (float)strtod(wanted, 0) : 0.01f;
  return 0;
}
CALL(hipStreamBeginCapture, cuStreamBeginCapture_v2, (handle stream, int mode), , "%p %d", stream, mode)
CALL(hipStreamEndCapture, cuStreamEndCapture, (handle stream, handle *graph), *graph = fresh(), "%p", stream)
CALL(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (handle *graph, handle captured, unsigned long long flags),
     *graph = fresh(), "%p %llu", captured, flags)
CALL(hipGraphLaunch, cuGraphLaunch, (handle graph, handle stream), , "%p %p", graph, stream)
CALL(hipGraphExecDestroy, cuGraphExecDestroy, (handle graph), , "%p", graph)
CALL(hipGraphDestroy, cuGraphDestroy, (handle graph), , "%p", graph)

#ifdef AS_CUDA
CALL(, cuDeviceGetAttribute, (int *value, int attribute, int device),
     *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 0, "%d %d", attribute, device)
CALL(, cuDevicePrimaryCtxRetain, (handle *context, int device), *context = fresh(), "%d", device)
CALL(, cuCtxSetCurrent, (handle context), , "%p", context)
CALL(, cuFuncSetAttribute, (handle function, int attribute, int value), , "%p %d %d", function, attribute, value)
CALL(, cuFuncGetAttribute, (int *value, int attribute, handle function),
     *value = attribute == 1 ? 256 : attribute == 3 ? 10 : attribute == 4 ? 168 : 0, "%d %p", attribute, function)
CALL(, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *count, handle function, int threads, size_t lds),
     *count = 3, "%p %d %lu", function, threads, lds)
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
