"""Translation units of kernels on rows for the target cpu: loading, storing, exponential and entry points."""

from __future__ import annotations

from tile_oracle.operations.rowwise.kernel import RowKernel

_NUMBERS = {"bf16": "BF16", "fp16": "FP16", "fp32": "FP32"}

_BEFORE = r"""
#include <stdint.h>

#define VISIBLE extern "C" __attribute__((visibility("default")))

#if defined(BF16)
typedef uint16_t Element;
static inline float load(Element stored) {
  uint32_t bits = (uint32_t)stored << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
static inline Element store(float value) {  /* to nearest, ties to even; a NaN stays one */
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if (value != value) return 0x7FC0;
  return (Element)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
#elif defined(FP16)
typedef _Float16 Element;
static inline float load(Element stored) { return (float)stored; }
static inline Element store(float value) { return (Element)value; }
#else
typedef float Element;
static inline float load(Element stored) { return stored; }
static inline Element store(float value) { return value; }
#endif

struct Args { const Element *in, *weights; Element *out; void *workspace; int64_t rows, columns; };
struct Clock { long seconds, nanoseconds; };
extern "C" int clock_gettime(int, Clock *);

VISIBLE int32_t to_abi_version(void) { return 1; }
VISIBLE int64_t to_workspace_bytes(const Args *) { return 0; }
"""

_AFTER = r"""
VISIBLE int32_t to_launch(const Args *args) {
  for (int64_t row = 0; row < args->rows; ++row)
    of_row(args->in + row * args->columns, args->weights, args->out + row * args->columns, args->columns);
  return 0;
}

VISIBLE int32_t to_time(const Args *args, int64_t count, uint64_t *nanoseconds) {
  for (int64_t i = 0; i < count; ++i) {
    Clock start, stop;
    clock_gettime(1, &start);
    int32_t status = to_launch(args);
    clock_gettime(1, &stop);
    if (status) return status;
    nanoseconds[i] = (stop.seconds - start.seconds) * 1000000000l + stop.nanoseconds - start.nanoseconds;
  }
  return 0;
}
"""


def unit(kernel: RowKernel, of_row: str) -> str:
    """The translation unit of a kernel. of_row: the text of
    `static void of_row(const Element *x, const Element *w, Element *y, int64_t columns)`, in which LANES is
    the number of elements that are reduced in parallel."""
    return f"#define {_NUMBERS[kernel.dtype]}\n#define LANES {kernel.lanes}\n{_BEFORE}\n{of_row}\n{_AFTER}"
