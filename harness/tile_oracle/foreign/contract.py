"""What a field of a foreign file means, and whether its row can be believed.

A format declares every column or key that it knows as a `Field`. A field becomes a column of the records, in
their unit, or it is compared with what the row must be: verified, of this architecture, type, layout, batch.
A row that a field denies is refused, or gets another status than ok. Names that no format declares are
listed in the summary; a value of theirs that is a verdict or a device all the same counts as one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tile_oracle.arch import known_archs, load_arch
from tile_oracle.problem.dtype_words import dtype_named

Holds = Callable[[str, Any], bool]
"""Tells whether a row is what it must be, from a value's text in lower case and what it is compared with."""

REFUSED = "refused"


@dataclass(frozen=True)
class Field:
    """A named value of a file.

    fills: the column that it becomes, times `factor`. of: what `holds` compares it with (nothing, the
    architecture's name, the row's problem or kernel). why: what a value says that does not hold; status: what
    the row becomes then.
    """

    fills: str = ""
    factor: float = 1.0
    holds: Holds | None = None
    of: Literal["value", "arch", "problem", "kernel"] = "value"
    why: str = ""
    status: str = REFUSED


UNUSED = Field()
"""A field that says nothing about the measurement."""

UNITS_MS: Mapping[str, float] = {
    "s": 1e3, "sec": 1e3, "second": 1e3, "seconds": 1e3,
    "ms": 1.0, "msec": 1.0, "millisecond": 1.0, "milliseconds": 1.0,
    "us": 1e-3, "\u00b5s": 1e-3, "\u03bcs": 1e-3, "usec": 1e-3, "microsecond": 1e-3, "microseconds": 1e-3,
    "ns": 1e-6, "nsec": 1e-6, "nanosecond": 1e-6, "nanoseconds": 1e-6,
}  # fmt: skip
"""Milliseconds in each unit of time."""

_TRUE = frozenset({"true", "1", "1.0", "yes", "y", "pass", "passed", "ok", "valid", "correct", "success"})
NOTHING = frozenset({"false", "0", "0.0", "no", "n", "none", "null", "off", "disabled", "nan"})
_MOST_ERROR = 0.1
"""Largest relative error that rounding explains, whatever the data type."""
_STATUSES: Mapping[str, str] = {
    **dict.fromkeys(("ok", "success", "succeeded", "passed", "pass", "correct", "valid", "done"), "ok"),
    **dict.fromkeys(
        ("wrong", "incorrect", "mismatch", "verification_failed", "correctness", "incorrect_shape",
         "incorrect_numerical", "incorrect_dtype"),
        "wrong",
    ),
    **dict.fromkeys(
        ("unsupported", "skipped", "not_supported", "constraints", "invalidconfig", "invalid_problem",
         "error_not_supported"),
        "unsupported",
    ),
    **dict.fromkeys(
        ("build_error", "compile_error", "compilation_failed", "compile", "compilationfailedconfig"),
        "build_error",
    ),
    **dict.fromkeys(
        ("crash", "crashed", "failed", "fail", "error", "runtime_error", "runtime", "runtimefailedconfig"),
        "crash",
    ),
    **{same: same for same in ("timeout", "flaky", "noisy", "untimed", "device_lost")},
}  # fmt: skip

_PRODUCTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{words})(?![0-9])"), arch)
    for words, arch in (
        (r"mi\s?-?(?:350|355)x?", "gfx950"), (r"mi\s?-?(?:300|308|325)[ax]?", "gfx942"),
        (r"mi\s?-?(?:210|250)x?", "gfx90a"), (r"mi\s?-?100", "gfx908"),
        (r"mi\s?-?(?:430|450|455)x?", "gfx1250"),
        (r"rx 79\d\d", "gfx1100"), (r"rx 9060", "gfx1200"), (r"rx 9070", "gfx1201"),
        (r"g?h(?:100|200|20|800)", "sm_90"), (r"a(?:100|800|30)", "sm_80"), (r"g?b[1-3]00", "sm_100"),
        (r"v100", "sm_70"), (r"(?:rtx )?a(?:400|2000|4000|5000|6000|10|16|40)|rtx 30\d\d", "sm_86"),
        (r"l4|l40s?|rtx 40\d\d", "sm_89"), (r"rtx 50\d\d", "sm_120"), (r"xeon|epyc|ryzen|core", "cpu"),
    )
)  # fmt: skip
"""Products, and the architectures that they are of."""
_DEVICE = re.compile(
    r"(?:amd|nvidia|instinct|radeon|geforce) .+|mi-?[0-9]{3}[ax]?|[ah][0-9]00"
    r"|gfx[0-9a-f]{3,4}(?::.+)?|sm_?[0-9]{2,3}"
)
"""A text that is the name of a device or an architecture, and of nothing else."""
_VERDICTS = frozenset(
    {"fail", "failed", "failure", "wrong", "incorrect", "mismatch", "invalid", "bad", "crashed"}
)
_ARCH = re.compile(r"gfx[0-9a-f]{3,4}|(?:sm|compute)_?[0-9]{2,3}")


def status_named(text: str) -> str:
    """Returns our status for another tool's word; "" for a word that is unknown."""
    return _STATUSES.get(text.strip().lower().replace(" ", "_").replace("-", "_"), "")


def arch_named(text: str) -> str:
    """Returns the architecture that a device's name or an architecture's name states; "" if it states
    none."""
    lower = text.strip().lower()
    found = _ARCH.search(lower)
    if found:
        return found.group().replace("compute", "sm").replace("sm_", "sm").replace("sm", "sm_")
    if lower in known_archs():
        return lower
    return next((arch for pattern, arch in _PRODUCTS if pattern.search(lower)), "")


def is_true(text: str, _: Any = None) -> bool:
    """Returns whether a text affirms. A word that neither affirms nor denies does not."""
    return text in _TRUE


def is_false(text: str, _: Any = None) -> bool:
    """Returns whether a text denies, or says that there is nothing."""
    return text in NOTHING


def one_of(*words: str) -> Holds:
    """Compares with words; a number may be written as a float."""
    return lambda text, _: text.removesuffix(".0") in words


def of_arch(text: str, arch: str) -> bool:
    """Returns whether a device or architecture may be the one that is imported. An unknown product may be."""
    return arch_named(text) in ("", arch)


def _states_arch(text: str, arch: str) -> bool:
    return arch_named(text) == arch or text == load_arch(arch).family


def speaks(text: str) -> bool:
    """Returns whether a text is a verdict or the name of a device, whatever it is the value of."""
    return text in _VERDICTS or _DEVICE.fullmatch(text) is not None


def _may_be_beside(text: str, arch: str) -> bool:
    """Returns whether a text is no device's name, or that of an architecture, or of its host's processor."""
    stated = arch_named(text) if _DEVICE.fullmatch(text) else ""
    return arch == "cpu" or stated in ("", "cpu", arch)


def same_dtype(text: str, problem: Any) -> bool:
    """Returns whether a text names the data type of the operands."""
    return dtype_named(text) == str(problem.dtype)


def of_kernel(name: str) -> Holds:
    """Compares with a field of the kernel. Kernels of families without it agree with anything; one of a
    source has it in its name, or its row states more than the name."""

    def holds(text: str, kernel: Any) -> bool:
        value = kernel.configuration.get(name) if kernel.source else getattr(kernel, name, None)
        if value is None:
            return not kernel.source
        if isinstance(value, bool):
            return text in (_TRUE if value else NOTHING)
        return text.removesuffix(".0") == str(value).lower()

    return holds


def _denial(holds: Holds, why: str) -> Field:
    return Field(holds=holds, why=why, status="wrong")


_FAILED = "says that the run failed"
ANOTHER = "says that it is another operation"
MORE = "says that more than the operation is done"


def against(
    fields: Mapping[str, Field], row: Mapping[str, str], problem: Any, arch: str = ""
) -> list[tuple[str, Field]]:
    """Returns what a row states that does not hold for its problem, or for an architecture: (name and reason,
    field). The names of the row's columns may be in any case."""
    found = []
    of = {"value": problem, "problem": problem, **({"arch": arch} if arch else {})}
    for name, cell in row.items():
        field, text = fields.get(name.lower()), cell.strip().lower()
        if field is None or field.holds is None or field.of not in of or not text:
            continue
        if not field.holds(text, of[field.of]):
            found.append((f"{name} {field.why}", field))
    return found


FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("kernel", "kernel_name", "name"), Field("kernel")),
    **dict.fromkeys(("latency", "avg_time", "mean_time"), Field("latency")),
    **{
        spelled: Field("latency_ms", factor)
        for unit, factor in UNITS_MS.items()
        for word in ("latency", "time", "avg_time", "mean_time", "duration", "kernel_time", "elapsed")
        for spelled in (f"{word}_{unit}", f"{word}({unit})", f"{word} ({unit})", f"{word}[{unit}]")
    },
    **{unit: Field("latency_ms", UNITS_MS[unit]) for unit in ("ms", "us", "ns")},
    **dict.fromkeys(("unit", "time_unit", "latency_unit"), Field("unit")),
    **dict.fromkeys(("tflops", "tflops(tflops)", "measured_tflops", "tflops/s"), Field("tflops")),
    **dict.fromkeys(("gflops", "gflop/s", "gflops/s", "gflops(gflops)"), Field("tflops", 1e-3)),
    **dict.fromkeys(
        ("bandwidth(gb/s)", "bandwidth_gb_s", "bandwidth_gbs", "gb/s", "gb_per_s", "bw", "bandwidth"),
        Field("gb_per_s"),
    ),
    "non_zero": Field("non_zero"),
    "status": Field("status"),
    **dict.fromkeys(
        ("verified", "is_valid", "valid", "is_verified", "is_correct", "correct", "verification", "verify",
         "passed", "pass", "success", "correctness", "verification_passed"),
        _denial(is_true, "says that the result is not right"),
    ),
    **dict.fromkeys(
        ("invalid", "failed", "is_wrong", "skipped", "timed_out", "crashed", "mismatches", "num_mismatches",
         "num_errors", "error_count"),
        _denial(is_false, _FAILED),
    ),
    **dict.fromkeys(
        ("error", "errors", "error_message", "err", "exception", "failure", "skip_reason", "invalid_reason",
         "compile_error", "build_error", "runtime_error"),
        _denial(one_of(*NOTHING, "ok", "success", "no error", "hipsuccess"), "states an error"),
    ),
    **dict.fromkeys(
        ("max_rel", "max_rel_err", "max_relative_error", "rel_err", "rel_error", "errratio", "err_ratio"),
        _denial(lambda text, _: 0 <= number_of(text) <= _MOST_ERROR, f"is above {_MOST_ERROR}, or no number"),
    ),
    **dict.fromkeys(
        ("arch", "gfx", "gfx_id", "gfx_arch", "gpu_arch", "gpu_target", "architecture"),
        Field(holds=_states_arch, of="arch", why="states another architecture"),
    ),
    **dict.fromkeys(
        ("device", "device_name", "gpu", "gpu_name", "gpu_id", "device_id", "cu_num", "num_cu", "num_cus"),
        Field("device", holds=of_arch, of="arch", why="states another architecture"),
    ),
    **dict.fromkeys(
        ("problem_idx", "problem_id", "index", "idx", "id", "rank", "source", "warmup", "repeat",
         "iterations", "n_warmup", "n_repeat", "timestamp", "date", "run", "seed"),
        UNUSED,
    ),
}  # fmt: skip
"""The fields that mean the same for every operation, by their names in lower case."""
UNDECLARED = (
    Field(holds=_may_be_beside, of="arch", why="states another architecture"),
    _denial(lambda text, _: text not in _VERDICTS, _FAILED),
)
"""What no value may say, whatever its name is."""
KERNEL_COLUMNS = tuple(name for name, one in FIELDS.items() if one.fills == "kernel")


def number_of(value: Any) -> float:
    """Returns the value as a number, or NaN."""
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):
        return math.nan
