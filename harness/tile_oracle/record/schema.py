"""The columns of a measurement's row. docs/records.md explains them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache

import pyarrow as pa

from tile_oracle.errors import RecordError
from tile_oracle.operation import Operation, find_operation, operation_names

STATUSES = (
    *("ok", "unsupported", "build_error", "wrong", "flaky", "crash", "timeout", "device_lost", "noisy"),
    "untimed",
)
"""The statuses of a pair. Only `ok` counts for an oracle; `untimed` is right, too (Triton's interpreter)."""

ROUND_SWEEP = 0
"""Every pair once."""
ROUND_FINAL = 1
"""The leaders of a problem, measured again, interleaved, to choose the oracle."""

WARM, COLD = "warm", "cold"
"""Values of the column `cache`. Older rows have none and were measured warm."""


@dataclass(frozen=True)
class Column:
    """Name, Arrow type and meaning of one column."""

    name: str
    type: pa.DataType
    meaning: str


_TYPES = {
    "text": pa.string(),
    "number": pa.float64(),
    "count": pa.int64(),
    "int8": pa.int8(),
    "time": pa.timestamp("us", tz="UTC"),
}


def _columns(table: str) -> tuple[Column, ...]:
    """Reads rows of a column's name, its type, two spaces, and its meaning, which may go on in indented
    lines."""
    rows = (re.split(r"\s+", row, maxsplit=2) for row in re.split(r"\n(?=\S)", table.strip()))
    return tuple(Column(name, _TYPES[kind], " ".join(meaning.split())) for name, kind, meaning in rows)


_HEAD = _columns("""
run text  name of the run: the report folder's name
time time  when the measurement ended
harness_version text  version of tile-oracle that measured
round int8  0: sweep over every pair; 1: leaders measured again, interleaved
op text  the operation's name, such as grouped_conv or gemm
problem text  the problem's id; the problem's own columns follow
""")
_TAIL = _columns(f"""
status text  one of {", ".join(STATUSES)}
detail text  why the status is not ok: signal, exit code, first wrong value, end of the log; or twin of NAME
latency_ms number  median of the samples, milliseconds; null unless ok or noisy
latency_min_ms number  fastest sample, milliseconds
spread number  interquartile range of the samples / their median
samples count  timed samples, warm-up not counted
precision number  half-width of the median's 95 % interval / the median; below six samples half their range
    / the median; null for one sample and in older records
sampling text  full: until the median was precise; coarse: a few samples, for it cannot be among the
    fastest; exact: --samples; censored: one, its first checked run, for it had lost by --far-behind; null
    in older records
at_least_ms number  the least time of a kernel that had lost by its first checked run, whose time latency_ms
    is; null: the time is known
aligned number  what `tile-oracle runs merge --align` multiplied the times by; null: they are as measured
tflops number  the problem's floating-point operations / latency_ms, in TFLOPS
check text  full: every value compared; of older records also product (every value, by products with random
    integers) and spot (check_points values); none: not reached
check_points count  output values compared with the exact result
busy_ms number  warm-up and timed runs together, by the device's own clock
check_ms number  checks, without the runs that are samples, by the host's clock; null in older records
build_wait_ms number  time before it in which the device had nothing to run, because kernels were being
    compiled; null in older records
cache text  cold: caches flushed before each timed run; warm or null: not
clock_mhz count  GPU: clock of the compute units at about that time
memory_clock_mhz count  GPU: clock of the memory
temperature_c count  GPU: temperature, degrees Celsius
power_w number  GPU: power drawn, watts
throttled text  GPU: what held the clocks back meanwhile; empty: nothing
target text  where it ran: cpu, or the architecture of a GPU, such as gfx950 or sm_90
arch text  architecture that the kernel was built for
implementation text  whose kernel: native, ck_tile, triton or a library's name; null in older records
device text  the device's own name
driver text  driver or operating system kernel version
toolchain text  compiler and version
flags text  compiler flags, joined by spaces
source_hash text  hash of source, flags and toolchain: equal hashes are equal binaries
binary_bytes count  size of the binary
vgprs count  GPU: vector registers of a work-item, accumulators included; on NVIDIA: registers
agprs count  gfx950: accumulator registers of a work-item
sgprs count  gfx950: scalar registers of a wave
lds_bytes count  GPU: LDS (shared memory) of a workgroup, static and dynamic
scratch_bytes count  GPU: private memory of a work-item
spills count  GPU: registers that did not fit (NVIDIA: words of the stack frame)
workgroups_per_cu count  GPU: workgroups that a compute unit holds at once
waves_per_cu count  GPU: their waves (warps)
loop_matrix_instructions count  GPU: matrix instructions in the body of the main loop: of one or several
    steps of tile_k
seed count  seed of the input data
""")

_ARROW = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_()}


@cache
def _columns_of(operation: Operation) -> tuple[Column, ...]:
    of_problem = fields(operation.problem)
    names = {f.name for f in of_problem}
    problem = tuple(Column(f.name, _ARROW[str(f.type)], f"problem: {f.name}") for f in of_problem)
    kernel = tuple(
        Column(f.name, _ARROW[str(f.type)], f"kernel: {f.name}")
        for f in fields(operation.kernel)
        if f.name not in names
    )
    name = Column("kernel", pa.string(), "the kernel's full name; the kernel's own columns follow")
    return (*_HEAD, *problem, name, *kernel, *_TAIL)


def problem_columns(op: str = "grouped_conv") -> tuple[str, ...]:
    """Returns the names of a problem's own columns. Raises RecordError for an unknown operation."""
    return _known(op).problem_fields


def later_columns(op: str) -> Mapping[str, str]:
    """Returns a problem's own columns that older records lack, with their value there. Raises RecordError."""
    return _known(op).problem.later


def kernel_columns(op: str = "grouped_conv") -> tuple[str, ...]:
    """Returns the names of a kernel's own columns, without those that its problem also has. Raises
    RecordError."""
    operation = _known(op)
    return tuple(name for name in operation.kernel_fields if name not in operation.problem_fields)


def op_of(ops: Iterable[object]) -> str:
    """Returns the one operation of a table, from the values of its column `op`; grouped_conv if there are
    none.

    Raises RecordError for an unknown operation, and for a table of several.
    """
    found = list(dict.fromkeys(op for op in ops if isinstance(op, str)))
    if len(found) > 1:
        raise RecordError(
            f"the records are of several operations, {' and '.join(found[:5])}: read them separately"
        )
    if not found:
        return "grouped_conv"
    _known(found[0])
    return found[0]


def _known(op: str) -> Operation:
    operation = find_operation(op)
    if operation is None:
        raise RecordError(f"no record schema for operation {op!r}; known: {', '.join(operation_names())}")
    return operation


def columns(op: str = "grouped_conv") -> tuple[Column, ...]:
    """Returns the columns of an operation's records, in order. Raises RecordError for an unknown
    operation."""
    return _columns_of(_known(op))


def arrow_schema(op: str = "grouped_conv") -> pa.Schema:
    """`columns` as an Arrow schema."""
    return pa.schema([(column.name, column.type) for column in columns(op)])


STAY_TEXT = ("status", "detail")
"""The columns of text that `compact_schema` leaves as they are: they are compared and searched."""


def compact_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with dictionaries for what repeats few values: the numbers of problems and kernels,
    and texts such as device, flags, source hashes."""
    own = {column.name for column in (*_HEAD, *_TAIL) if column.type != pa.string()}
    return pa.schema(
        field.with_type(pa.dictionary(pa.int32(), field.type))
        if field.type in (pa.string(), pa.int64()) and field.name not in {*STAY_TEXT, *own}
        else field
        for field in schema
    )
