/* HIP's functions on top of CUDA's driver, so that code for HIP runs on an NVIDIA GPU. */
#include <stddef.h>
#include <string.h>

typedef void *handle;
typedef unsigned long long address;

extern int cuInit(unsigned);
extern int cuDriverGetVersion(int *);
extern int cuDeviceGetCount(int *);
extern int cuDeviceGet(int *, int);
extern int cuDeviceGetName(char *, int, int);
extern int cuDeviceGetPCIBusId(char *, int, int);
extern int cuMemGetInfo_v2(size_t *, size_t *);
extern int cuMemAlloc_v2(address *, size_t);
extern int cuMemFree_v2(address);
extern int cuMemcpyHtoDAsync_v2(address, const void *, size_t, handle);
extern int cuMemcpyDtoHAsync_v2(void *, address, size_t, handle);
extern int cuMemcpyDtoDAsync_v2(address, address, size_t, handle);
extern int cuMemsetD8Async(address, unsigned char, size_t, handle);
extern int cuModuleLoadData(handle *, const void *);
extern int cuModuleUnload(handle);
extern int cuModuleGetFunction(handle *, handle, const char *);
extern int cuModuleGetGlobal_v2(address *, size_t *, handle, const char *);
extern int cuFuncSetAttribute(handle, int, int);
extern int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
extern int cuStreamCreate(handle *, unsigned);
extern int cuStreamSynchronize(handle);
extern int cuEventCreate(handle *, unsigned);
extern int cuEventDestroy_v2(handle);
extern int cuEventRecord(handle, handle);
extern int cuEventElapsedTime(float *, handle, handle);
extern int cuStreamBeginCapture_v2(handle, int);
extern int cuStreamEndCapture(handle, handle *);
extern int cuGraphInstantiateWithFlags(handle *, handle, unsigned long long);
extern int cuGraphLaunch(handle, handle);
extern int cuGraphExecDestroy(handle);
extern int cuGraphDestroy(handle);
extern int cuDevicePrimaryCtxRetain(handle *, int);
extern int cuCtxSetCurrent(handle);
extern int cuGetErrorName(int, const char **);

int hipInit(unsigned flags) { return cuInit(flags); }
int hipRuntimeGetVersion(int *version) { *version = 60443484; return 0; }
int hipGetDeviceCount(int *count) { return cuDeviceGetCount(count); }
int hipDeviceGet(int *device, int index) { return cuDeviceGet(device, index); }
int hipSetDevice(int device) {
  handle context;
  int code = cuDevicePrimaryCtxRetain(&context, device);
  return code ? code : cuCtxSetCurrent(context);
}
int hipDeviceGetName(char *name, int size, int device) { return cuDeviceGetName(name, size, device); }
int hipDeviceGetPCIBusId(char *name, int size, int device) { return cuDeviceGetPCIBusId(name, size, device); }
int hipGetDevicePropertiesR0600(char *block, int device) {
  (void)device;
  memset(block, 0, 1472);
  strcpy(block + 1160, "gfx950:sramecc+:xnack-"); /* where ROCm 6 has gcnArchName */
  return 0;
}
int hipMemGetInfo(size_t *there, size_t *total) { return cuMemGetInfo_v2(there, total); }
int hipMalloc(address *where, size_t size) { return cuMemAlloc_v2(where, size); }
int hipFree(address where) { return cuMemFree_v2(where); }
int hipMemcpyHtoDAsync(address to, const void *from, size_t size, handle stream) {
  return cuMemcpyHtoDAsync_v2(to, from, size, stream);
}
int hipMemcpyDtoHAsync(void *to, address from, size_t size, handle stream) {
  return cuMemcpyDtoHAsync_v2(to, from, size, stream);
}
int hipMemcpyDtoDAsync(address to, address from, size_t size, handle stream) {
  return cuMemcpyDtoDAsync_v2(to, from, size, stream);
}
int hipMemsetD8Async(address where, unsigned char value, size_t size, handle stream) {
  return cuMemsetD8Async(where, value, size, stream);
}
int hipModuleLoadData(handle *module, const void *image) { return cuModuleLoadData(module, image); }
int hipModuleUnload(handle module) { return cuModuleUnload(module); }
int hipModuleGetFunction(handle *function, handle module, const char *name) {
  return cuModuleGetFunction(function, module, name);
}
int hipModuleGetGlobal(address *where, size_t *size, handle module, const char *name) {
  return cuModuleGetGlobal_v2(where, size, module, name);
}
int hipModuleLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, handle stream, void **parameters, void **extra) {
  if (lds > 48 << 10) { /* an AMD GPU needs no permission */
    int code = cuFuncSetAttribute(f, 8, (int)lds);
    if (code) return code;
  }
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, lds, stream, parameters, extra);
}
int hipStreamCreateWithFlags(handle *stream, unsigned flags) { return cuStreamCreate(stream, flags); }
int hipStreamSynchronize(handle stream) { return cuStreamSynchronize(stream); }
int hipEventCreateWithFlags(handle *event, unsigned flags) { return cuEventCreate(event, flags); }
int hipEventDestroy(handle event) { return cuEventDestroy_v2(event); }
int hipEventRecord(handle event, handle stream) { return cuEventRecord(event, stream); }
int hipEventElapsedTime(float *ms, handle from, handle to) { return cuEventElapsedTime(ms, from, to); }
int hipStreamBeginCapture(handle stream, int mode) { return cuStreamBeginCapture_v2(stream, mode); }
int hipStreamEndCapture(handle stream, handle *graph) { return cuStreamEndCapture(stream, graph); }
int hipGraphInstantiateWithFlags(handle *graph, handle template_, unsigned long long flags) {
  return cuGraphInstantiateWithFlags(graph, template_, flags);
}
int hipGraphLaunch(handle graph, handle stream) { return cuGraphLaunch(graph, stream); }
int hipGraphExecDestroy(handle graph) { return cuGraphExecDestroy(graph); }
int hipGraphDestroy(handle graph) { return cuGraphDestroy(graph); }
const char *hipGetErrorName(int code) {
  const char *name = 0;
  return cuGetErrorName(code, &name) ? 0 : name;
}
