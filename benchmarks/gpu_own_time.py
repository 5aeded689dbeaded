"""The worker's own processor time a pair on a GPU: its real code over a driver whose calls do nothing.

    python benchmarks/gpu_own_time.py [--profile]

The driver is a library with the names of libcuda.so.1. Its launches return at once, and its clock advances by
a given time for each, so every kernel is correct and as fast as told. What remains is the harness: Python,
calls through ctypes, checks of the worker after each kernel. A real driver's calls take longer (a launch some
microseconds). Without a GPU and without kernels; the parent's side is not in it.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import cast

from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.cuda import CudaDriver
from tile_oracle.device.worker import Worker
from tile_oracle.measure.commands import Load, Run
from tile_oracle.measure.protocol import Channel, Message
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import Problem, problem_from_id

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#define CALL(name, ...) int name(__VA_ARGS__)
static double now_ns, launch_ns = 20000;
static int capturing; static long captured; static size_t handles = 16;
static int info[9] = {1, 256, 0, 0, 0, 64, 64, 32, 1};
void null_launch_ns(double ns) { launch_ns = ns; }
void null_direction(int number) { info[4] = number; }
static void *handle(void) { return (void *)(handles += 16); }
CALL(cuInit, unsigned a) { return 0; }
CALL(cuDriverGetVersion, int *v) { *v = 13000; return 0; }
CALL(cuDeviceGetCount, int *n) { *n = 1; return 0; }
CALL(cuDeviceGet, int *d, int n) { *d = 0; return 0; }
CALL(cuDeviceGetName, char *s, int n, int d) { strcpy(s, "null"); return 0; }
CALL(cuDeviceGetPCIBusId, char *s, int n, int d) { strcpy(s, "0000:00:00.0"); return 0; }
CALL(cuDeviceGetAttribute, int *v, int w, int d) { *v = w == 75 ? 9 : w == 76 ? 0 : 132; return 0; }
CALL(cuDevicePrimaryCtxRetain, void **c, int d) { *c = handle(); return 0; }
CALL(cuCtxSetCurrent, void *c) { return 0; }
CALL(cuGetErrorName, int c, const char **s) { *s = "none"; return 0; }
CALL(cuMemGetInfo_v2, size_t *f, size_t *t) { *f = *t = (size_t)1 << 37; return 0; }
CALL(cuMemAlloc_v2, void **p, size_t n) { *p = calloc(1, n > 4096 ? 4096 : n); return !*p; }
CALL(cuMemFree_v2, void *p) { free(p); return 0; }
CALL(cuMemcpyHtoDAsync_v2, void *d, const void *s, size_t n, void *q) { memcpy(d, s, n); return 0; }
CALL(cuMemcpyDtoHAsync_v2, void *d, void *s, size_t n, void *q) { memcpy(d, s, n); return 0; }
CALL(cuMemcpyDtoDAsync_v2, void *d, void *s, size_t n, void *q) { return 0; }
CALL(cuMemsetD8Async, void *d, unsigned char v, size_t n, void *q) { return 0; }
CALL(cuModuleLoadData, void **m, const void *i) { *m = handle(); return 0; }
CALL(cuModuleUnload, void *m) { return 0; }
CALL(cuModuleGetFunction, void **f, void *m, const char *n) {
  *f = strncmp(n, "to_conv", 7) ? (void *)8 : handle();
  return 0; }
CALL(cuModuleGetGlobal_v2, void **p, size_t *n, void *m, const char *s) {
  *p = info, *n = sizeof info;
  return 0; }
CALL(cuFuncSetAttribute, void *f, int a, int v) { return 0; }
CALL(cuFuncGetAttribute, int *v, int a, void *f) { *v = 32; return 0; }
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *v, void *f, int t, size_t n) { *v = 2; return 0; }
CALL(cuLaunchKernel, void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
     unsigned l, void *q, void **p, void **x) {
  if (f == (void *)8) return 0;
  if (capturing) captured++; else now_ns += launch_ns;
  return 0; }
CALL(cuStreamCreate, void **s, unsigned f) { *s = handle(); return 0; }
CALL(cuStreamSynchronize, void *s) { return 0; }
CALL(cuEventCreate, void **e, unsigned f) { *e = malloc(8); return 0; }
CALL(cuEventDestroy_v2, void *e) { free(e); return 0; }
CALL(cuEventRecord, double *e, void *s) { *e = now_ns; now_ns += 2000; return 0; }
CALL(cuEventElapsedTime, float *ms, double *a, double *b) { *ms = (*b - *a) / 1e6; return 0; }
CALL(cuStreamBeginCapture_v2, void *s, int m) { capturing = 1; captured = 0; return 0; }
CALL(cuStreamEndCapture, void *s, void **g) { capturing = 0; *g = (void *)(captured * 16); return 0; }
CALL(cuGraphInstantiateWithFlags, void **x, void *g, unsigned long long f) { *x = g; return 0; }
CALL(cuGraphLaunch, void *x, void *s) { now_ns += (size_t)x / 16 * launch_ns; return 0; }
CALL(cuGraphExecDestroy, void *x) { return 0; }
CALL(cuGraphDestroy, void *g) { return 0; }
"""


class NullChannel:
    """A channel whose messages go nowhere."""

    read_fd = 0

    def __init__(self) -> None:
        self.last: Message = {}

    def send(self, *messages: Message) -> None:
        self.last = messages[0] if "done" in messages[0] else self.last


def null_library(folder: Path) -> ctypes.CDLL:
    """Compiles and loads the driver that does nothing."""
    source, library = folder / "null.c", folder / "libnullcuda.so"
    source.write_text(SOURCE)
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-O2",
        "-w",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class Bench:
    """A worker with the null device, and kernels for one problem."""

    def __init__(self, folder: Path, problem: Problem, plan: TimingPlan, kernels: int) -> None:
        self.library = null_library(folder)
        work = folder / "work.cubin"
        work.write_bytes(b"work")
        self.device = GpuDevice(CudaDriver(self.library), work)
        self.channel = NullChannel()
        self.worker = Worker(cast("Channel", self.channel))
        self.worker._device, self.worker._plan = self.device, plan
        from tile_oracle.device.audit import Audit

        self.worker._audit = Audit(tuple, 0, strict=False)
        self.worker._load(Load(problem.as_row() | {"op": problem.op}, 1))
        self.binaries = [folder / f"kernel{number}.cubin" for number in range(kernels)]
        for binary in self.binaries:
            binary.write_bytes(b"kernel")

    def run(self, launch_us: float, best_ms: float | None) -> float:
        """Runs all kernels once; processor microseconds a pair."""
        self.library.null_launch_ns(ctypes.c_double(1000 * launch_us))
        began = time.process_time_ns()
        for number, binary in enumerate(self.binaries):
            self.worker._best_ms = None
            self.worker._run(Run(number, str(binary), kernel=binary.stem, best_ms=best_ms, token="0"))
            assert self.channel.last["status"] == "ok", self.channel.last
        return (time.process_time_ns() - began) / 1e3 / len(self.binaries)


def main() -> None:
    """Prints processor microseconds a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", default="forward-bf16-n1-c64-k64-i56x56-f3x3-p1", metavar="ID")
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    options = parser.parse_args()
    problem = problem_from_id(options.problem)
    plan = TimingPlan(budget_ms=4.0)
    sequential = TimingPlan(**{**asdict(plan), "sequential": True})
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), problem, plan, options.kernels)
        for name, launch_us, of_plan, best_ms in (
            ("full plan, 20 us", 20, plan, None),
            ("full plan, 500 us", 500, plan, None),
            ("quick look, 20 us", 20, sequential, 0.015),
            ("quick look, 500 us", 500, sequential, 0.3),
            ("far behind, 5 ms", 5000, sequential, 0.3),
        ):
            bench.worker._plan = of_plan
            bench.run(launch_us, best_ms)
            taken = [bench.run(launch_us, best_ms) for _ in range(5)]
            print(f"{name}: {statistics.median(taken):.0f} us a pair ({min(taken):.0f} to {max(taken):.0f})")
            if options.profile:
                profile = cProfile.Profile()
                profile.runcall(bench.run, launch_us, best_ms)
                pstats.Stats(profile).sort_stats("tottime").print_stats(28)


if __name__ == "__main__":
    main()
