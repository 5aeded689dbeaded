"""Translation units of kernels on rows for the target cpu: loading, storing, exponential and entry points."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.operations.rowwise.problem import RowKernel

_NUMBERS = {"bf16": "BF16", "fp16": "FP16", "fp32": "FP32"}

ELEMENTS = r"""
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
"""
"""Element, load and store."""

EXPONENTIAL = r"""
/* exp(x) for x <= 0: 2^n times Taylor's polynomial of degree 7 on [-0.35, 0.35], with an error below 5e-9.
   n ln 2 is subtracted in two parts, the first of which has few bits. */
static inline float exp_of(float x) {
  if (!(x >= -87.0f)) return x != x ? x : 0.0f;
  int n = (int)(x * 1.44269504f - 0.5f);
  float f = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.3888889e-3f + f * 1.9841270e-4f;
  p = 4.1666667e-2f + f * (8.3333333e-3f + f * p);
  p = 1 + f * (1 + f * (0.5f + f * (1.6666667e-1f + f * p)));
  int32_t bits = (n + 127) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return p * scale;
}
"""

_ROWS = r"""
struct Args { const Element *in, *weights; Element *out; void *workspace; int64_t rows, columns; };
"""

_LAUNCH = r"""
VISIBLE int32_t to_launch(const Args *args) {
  for (int64_t row = 0; row < args->rows; ++row)
    of_row(args->in + row * args->columns, args->weights, args->out + row * args->columns, args->columns);
  return 0;
}
"""

ENTRY_POINTS = r"""
struct Clock { long seconds, nanoseconds; };
extern "C" int clock_gettime(int, Clock *);

VISIBLE int32_t to_abi_version(void) { return 1; }
VISIBLE int64_t to_workspace_bytes(const Args *) { return 0; }

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
"""What kernels/cpu/abi.h declares, besides to_launch. Needs Args. Nobody calls to_time: it stays,
because records name the hash of this text."""


def translation_unit(dtype: str, macros: Mapping[str, object], *texts: str) -> str:
    """Returns the unit of a kernel, whose last text defines Args and to_launch."""
    defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return "".join((f"#define {_NUMBERS[dtype]}\n", defined, ELEMENTS, *texts, ENTRY_POINTS))


def unit(kernel: RowKernel, of_row: str) -> str:
    """Returns the translation unit of a kernel. of_row: the text of
    `static void of_row(const Element *x, const Element *w, Element *y, int64_t columns)`, in which LANES is
    the number of elements that are reduced in parallel."""
    return translation_unit(kernel.dtype, {"LANES": kernel.lanes}, _ROWS, of_row, _LAUNCH)
