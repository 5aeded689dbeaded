/* The recorder, with what a library that was compiled from HIP sources calls besides: it registers its kernels and
 * starts them by the addresses of their host functions. The names of the kernels are in the record. */
#include "recorder.c"

typedef struct { unsigned x, y, z; } dim3;

static struct { const void *host; const char *name; } kernels[256];
static int kernel_count;
static struct { dim3 grid, block; size_t lds; handle stream; } configured;

__attribute__((visibility("default"))) void **__hipRegisterFatBinary(const void *wrapper) {
  static void *modules[1];
  (void)note("__hipRegisterFatBinary", "%d", wrapper != 0);
  return modules;
}
__attribute__((visibility("default"))) void __hipUnregisterFatBinary(void **modules) { (void)modules; }
__attribute__((visibility("default"))) void __hipRegisterFunction(void **modules, const void *host, char *device,
    const char *name, unsigned limit, void *a, void *b, void *c, void *d, int *e) {
  (void)modules, (void)device, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
  if (kernel_count < 256) {
    kernels[kernel_count].host = host;
    kernels[kernel_count++].name = name;
  }
}
__attribute__((visibility("default"))) void __hipRegisterVar(void **m, void *v, char *h, char *d, int e, size_t s, int c, int g) {
  (void)m, (void)v, (void)h, (void)d, (void)e, (void)s, (void)c, (void)g;
}
API(__hipPushCallConfiguration, , dim3 grid, dim3 block, size_t lds, handle stream) {
  configured.grid = grid, configured.block = block, configured.lds = lds, configured.stream = stream;
  return 0;
}
API(__hipPopCallConfiguration, , dim3 *grid, dim3 *block, size_t *lds, handle *stream) {
  *grid = configured.grid, *block = configured.block, *lds = configured.lds, *stream = configured.stream;
  return 0;
}
API(hipLaunchKernel, , const void *host, dim3 grid, dim3 block, void **arguments, size_t lds, handle stream) {
  const char *name = "unregistered";
  for (int i = 0; i < kernel_count; ++i)
    if (kernels[i].host == host) name = kernels[i].name;
  NOTE(hipLaunchKernel, , "%u,%u,%u %u,%u,%u %lu %p %p %s", grid.x, grid.y, grid.z, block.x, block.y, block.z, lds, stream,
       *(void **)arguments[0], name);
  return 0;
}
API(hipGetLastError, , void) { return failure_of("hipGetLastError"); }
API(hipPeekAtLastError, , void) { return 0; }
API(hipGetDevice, , int *device) { *device = 0; return 0; }
/* As HIP 5's headers name and lay it out, which the libraries are compiled with: `major` comes 328 bytes in. */
API(hipGetDeviceProperties, , char *block, int device) {
  NOTE(hipGetDeviceProperties, , "%d", device);
  *(int *)(block + 328) = 9;
  return 0;
}
API(hipDeviceGetAttribute, , int *value, int attribute, int device) {
  (void)attribute, (void)device;
  *value = 256;
  return 0;
}
API(hipOccupancyMaxActiveBlocksPerMultiprocessor, , int *count, const void *host, int threads, size_t lds) {
  NOTE(hipOccupancyMaxActiveBlocksPerMultiprocessor, , "%d %d %lu", host != 0, threads, lds);
  *count = 2;
  return 0;
}
API(hipMemsetAsync, , void *where, int value, size_t size, handle stream) {
  NOTE(hipMemsetAsync, , "%p %d %lu %p", where, value, size, stream);
  memset(where, value, size);
  return 0;
}
__attribute__((visibility("default"))) const char *hipGetErrorString(int code) { return code ? "an error" : "no error"; }
