"""Changes the meaning of one field of a good file at a time, and counts what is believed.

The field says that the victim, the fastest row, is not valid, was measured elsewhere, is of another type,
layout, batch or operation, or has figures that contradict each other or any device. The outcome of a lie is

- `file refused`, `row refused`, or `not ok`: the victim's status is another one,
- `believed`: the victim is ok, or a problem of the list; a failure,
- `witness lost`: the other row went with it; a failure.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.good_files import CONV, FORMATS, GEMM, VICTIM_MS, Format, Row

_GOOD, _BAD = ("file refused", "row refused", "not ok"), ("believed", "witness lost")
_DRAWS = 60
"""Draws for a lie that was not told before."""

Drawn = Callable[[random.Random], Any]
Statements = Mapping[str, Sequence[Any] | Drawn]
"""Field -> the values in which it lies, or how one is drawn."""

_NO = (False, 0, "no", "No", "failed", "FAIL", "maybe", "0.0", "unknown")
_YES = (True, 1, "yes", "true")
_ERRORS = ("verification failed", "hipErrorIllegalAddress", "mismatch at 17", -1, "nan in output")
_ARCHS = ("gfx942", "gfx90a", "gfx1250", "gfx1201", "sm_90", "gfx942:sramecc+:xnack-", "cpu", "cdna3")
_DEVICES = ("NVIDIA H100", "NVIDIA RTX A400", "AMD Instinct MI300X", "MI250X", "Radeon RX 9070 XT", "gfx942")
_DTYPES = ("fp8", "fp32", "torch.int8", "int4", "bf8", "torch.float8_e4m3fnuz", "fp4x2", "tf32", "double")
_TIMES = ("0", "-0.5", "nan", "inf", "-inf", "fast", "1e400", "0x10")


def _scaled(value: float) -> Drawn:
    """A figure that is wrong by a factor, small or absurd."""

    def draw(choose: random.Random) -> float:
        factor = choose.choice((1e-300, 1e-6, 1e-3, 0.1, 1.1, 10, 1e3, 1e6, 1e9, 1e290)) * choose.uniform(
            1, 3
        )
        return value * factor if abs(factor - 1) > 0.02 else value * 5

    return draw


def _far(value: float) -> Drawn:
    """A bandwidth beyond the stated bound."""
    return lambda choose: value * choose.choice((1e-6, 1e-3, 0.05, 20, 1e3, 1e12)) * choose.uniform(1, 3)


def _time(unit: float = 1.0) -> Drawn:
    """A time that no device needs, or a tuner's penalty."""
    return lambda choose: choose.choice(
        (
            *_TIMES,
            *(unit * choose.uniform(1, 9) * 10.0 ** choose.choice((-300, -30, -9, -6, 6, 9, 20, 37, 300)),)
            * 4,
        )
    )


def _samples(choose: random.Random) -> list[float]:
    return [choose.uniform(1, 9) * 10.0 ** choose.choice((-9, 4, 30))] * 2


def _batch(choose: random.Random) -> Any:
    return choose.choice((choose.randint(2, 512), -1, 0, "many"))


def _error(choose: random.Random) -> Any:
    return choose.choice((choose.uniform(0.11, 1e4), float("inf"), -0.1, "n/a", 1e300))


GUARDS: Statements = {
    **dict.fromkeys(("verified", "is_valid", "valid", "passed", "correct", "verification", "success"), _NO),
    **dict.fromkeys(("failed", "invalid"), _YES),
    **dict.fromkeys(("error", "error_message", "exception"), _ERRORS),
    **dict.fromkeys(("max_rel", "max_rel_err", "err_ratio"), _error),
    **dict.fromkeys(("arch", "gfx", "gpu_arch", "gfx_id"), _ARCHS),
    **dict.fromkeys(("gpu_name", "device_name", "card"), _DEVICES),
    **dict.fromkeys(("outcome", "verdict of the day"), ("FAIL", "incorrect", "mismatch", "failed")),
    **dict.fromkeys(("mismatches", "timed_out"), (1, 37, "yes")),
    **dict.fromkeys(("dtype", "datatype", "data_type"), _DTYPES),
    "layout": ("rrr", "crr", "NCHW", "rcrr", "nchw", "blocked"),
    **dict.fromkeys(
        ("op_type", "operation"), ("batched_gemm", "multi_d", "preshuffle", "moe", "conv_bias_act")
    ),
    **dict.fromkeys(("beta", "bias", "activation"), (1, 0.5, "True", "relu", "gelu")),
    **dict.fromkeys(("tile_m", "tile_n", "tile_k", "warp_tile_k"), (8, 48, 512, 1024, "big")),
    **dict.fromkeys(("pipeline", "scheduler", "epilogue"), ("compv6", "interwave", "direct", "stream")),
}
FIGURES: Statements = {
    "latency_ms": _time(),
    "tflops": _scaled(GEMM.tflops(VICTIM_MS)),
    "gflops": _scaled(GEMM.tflops(VICTIM_MS)),
    "measured_tflops": _scaled(GEMM.tflops(VICTIM_MS)),
    "bandwidth(GB/s)": _far(GEMM.bytes / (VICTIM_MS * 1e6)),
    **dict.fromkeys(("latency_us", "time(ns)", "avg_time_ms", "latency_s"), _scaled(7.7)),
    "unit": ("us", "ns", "s", "jiffies", "cycles"),
    "status": ("crash", "timeout", "wrong", "failed", "skipped", "compile error", "so-so", "NaN!"),
    "device": (1, 2, 3, "gfx950#1", "MI300X"),
}
CONV_FIGURES: Statements = {
    **FIGURES,
    "tflops": _scaled(CONV.tflops(VICTIM_MS)),
    "gflops": _scaled(CONV.tflops(VICTIM_MS)),
    "measured_tflops": _scaled(CONV.tflops(VICTIM_MS)),
    "bandwidth(GB/s)": _far(CONV.bytes / (VICTIM_MS * 1e6)),
}
_ENDINGS = ("256x256x64_2x2x1_32x32x16", "128x256x64_2x2x1_32x32x16")
OF_GEMM: Statements = {
    **{f"dtype_{operand}": _DTYPES for operand in "abc"},
    **dict.fromkeys(("q_dtype_w", "q_dtype_a", "a_type"), _DTYPES),
    **dict.fromkeys(("layout_a", "layout_c"), ("ColumnMajor", "blocked")),
    "layout_b": ("RowMajor", "preshuffled", "r"),
    **{f"stride_{operand}": lambda choose: 1024 + choose.randint(1, 4096) for operand in "abc"},
    **dict.fromkeys(("B", "batch", "batch_count", "groups", "group_count"), _batch),
    **dict.fromkeys(("scale_a", "scaleAB", "bpreshuffle", "preshuffle"), (True, 1, "yes", 0.5)),
    **dict.fromkeys(("grouped_gemm", "structured_sparsity"), _YES),
    "alpha": (0.5, 2, "x"),
    "persistent": (True, 1, "maybe"),
    **dict.fromkeys("MNK", (0, -1, 1.5, "many", 1e30, "nan")),
    "kernel": tuple(
        f"gemm_{word}_compv3_cshuffle_intrawave_False_False_False_False_{ending}"
        for word in ("preshuffle_fp16_rcr", "multi_d_fp16_rcrr", "batched_fp16_rcr", "bf8_rcr", "fp16_rcc")
        for ending in _ENDINGS
    ),
}
OF_CONV: Statements = {
    **dict.fromkeys(("in_layout", "out_layout", "memory_format"), ("NCHW", "ngchw", "NHWC4", "contiguous")),
    **dict.fromkeys(("direction", "variant"), ("bwd_data", "bwd_weight", "backward")),
    **dict.fromkeys(("ndim", "ndim_spatial"), (1, 3, 4)),
    **dict.fromkeys(("Ho", "Wo", "Do"), (1.5, 14, 27, 29, 99)),
    "batch_size": lambda choose: choose.randint(9, 900),
    "split_k": _batch,
    "scale": (0.5, 2, "x"),
    "non_zero": lambda choose: choose.randint(0, 700_000),
    **dict.fromkeys(("C", "Hi", "Y"), (0, -1, 1.5, "many", 1e30)),
}
OWN: Mapping[str, Statements] = {
    "guards": GUARDS,
    "figures": FIGURES,
    "gemm": OF_GEMM,
    "conv": {**OF_CONV, **CONV_FIGURES},
    "sweep": {  # its tiles are all that names a kernel: other numbers are another kernel's
        **dict.fromkeys(("tile_m", "tile_n", "tile_k"), (0, -64, 48.5, "big")),
        "pipeline": ("direct", "stream"),
        "latency_us": _time(1e3), "tflops": _scaled(CONV.tflops(VICTIM_MS)), "unit": ("ns", "s", "jiffies"),
        "status": FIGURES["status"], "device": (1, 2), "latency_ms": _scaled(7.7),
    },
    "cache": {
        "time": _time(), "times": _samples,
        "device_name": _DEVICES, "gflops": FIGURES["gflops"],
    },
    "t4": {
        "time": _time(), "unit": ("us", "ns", "s", "cycles"), "correctness": _NO,
        "invalidity": ("runtime", "compile", "timeout", "correctness", "constraints", "tired", ""),
        "times": _samples,
        "gflops": FIGURES["gflops"],
    },
    "nvbench": {
        "mean": _time(1e-3), "min": lambda choose: choose.uniform(1, 9),
        "max": lambda choose: 1e-9 * choose.random(),
        "noise": ("inf", -1, "-inf", "nan!"), "samples": (0, -5, "-inf", "inf"), "is_skipped": (True,),
        "device": (1, 2, 3, 9),
    },
    "blas": {
        "batch_count": _batch, "grouped_gemm": _YES, "beta": (1, 0.5, "x"), "us": _time(1e3),
        **dict.fromkeys(("a_type", "b_type", "d_type"), ("i8_r", "f8_r", "bf16_r", "f64_r", "f4_r")),
        "alpha": (0.5, 2, "x"), "verified": _NO, "device_name": _DEVICES, "error": _ERRORS,
        "compute_type": ("xf32_r", "f32_fast_bf16_r"), "activation_type": ("gelu", "relu"),
        **dict.fromkeys(("scaleA", "scaleB", "bias_vector"), (1, 2)),
        **dict.fromkeys(("lda", "ldb", "ldc"), lambda choose: 1024 + choose.randint(1, 4096)),
        "hipblaslt-Gflops": _scaled(1e3 * GEMM.tflops(VICTIM_MS)),
        "hipblaslt-GB/s": _far(GEMM.bytes / (VICTIM_MS * 1e6)),
        **dict.fromkeys(("atol", "rtol"), ("failed",)), "transA": ("C", "H"), "m": ("0", "many", -1),
    },
    "aiter": {
        "gfx": ("gfx1300", "gfx1350", "sm_77a"), "B": _batch, "batch": _batch,
        **dict.fromkeys(("dtype", "q_dtype_w", "q_dtype_a"), ("torch.int8", "fp4x2", "float8_e5m2", "i4")),
        "layout": ("rrr", "crr"), "grouped_gemm": _YES, "op_type": ("moe", "batched_gemm"),
        "K": ("0", "many", 1.5),
    },
    "aiter results": {
        "us": _time(1e3), "tflops": _scaled(GEMM.tflops(VICTIM_MS)),
        "bw": _far(GEMM.bytes / (VICTIM_MS * 1e6)),
        "err_ratio": _error, "gfx": _ARCHS, **dict.fromkeys(("bias", "scaleAB", "bpreshuffle"), ("True", 1)),
        "outdtype": ("torch.float32", "torch.int8"), "verified": _NO, "error": _ERRORS,
        "kernelName": ("f4gemm_one", "a8w8_blockscale_one", "gemm_a16w8", "I8gemm_one", "BpreShuffle_one"),
    },
    "cutlass": {
        "OperationKind": ("spgemm", "conv2d", "grouped_gemm"), "gemm_kind": ("spgemm", "batched", "grouped"),
        "Disposition": ("failed", "incorrect", "so-so"), "Status": ("error_internal", "odd"),
        **dict.fromkeys("AB", ("e4m3:row", "s8:column", "f16:blocked", "f64:row", "f16:row:nk2", "")),
        **dict.fromkeys("D", ("f32:row", "s8:row", "e4m3:row", "f16:blocked")), "accum": ("f16", "s32"),
        "alpha": (0.5, 2, "x"), "beta": (1, 0.5, "x"), "batch_count": _batch, "Runtime": _time(),
        "GFLOPs": _scaled(1e3 * GEMM.tflops(VICTIM_MS)), "GB/s": _far(GEMM.bytes / (VICTIM_MS * 1e6)),
        **dict.fromkeys("mnk", ("0", "many", -1, 1.5)),
    },
    "tunable": {
        "op": ("ScaledGemmTunableOp", "GemmAndBiasTunableOp", "GemmStridedBatchedTunableOp", "Other"),
        "type": ("Float8_e4m3fn", "double", "tf32", "Int8"), "trans": ("NT", "TC", "XX"), "key": ("nt", "cn"),
        "sizes": ("0_1024_1024", "1024_many_1024", "1024_1024"), "batch": ("_B_2", "_B_64", "_X_3"),
        "ld": ("_ld_2048_1024_1024", "_ld_1024_1024_9999", "_bias"), "ms": _time(),
        "solution": ("Default", "1219", "Gemm_Cublas_7", "Gemm_Hipblaslt_x"),
    },
    "tuned": {
        "times": lambda choose: [_time()(choose)] * 3,
    },
    "choice": {
        "op": ("bmm", "addmm", "scaled_mm", "convolution"), "ms": _time(),
        "shapes": ("8x1024x1024, 8x1024x1024", "1024x1024, 512x1024", "1024, 1024x1024", "", "ax4, 4x9"),
        "strides": ("[2048, 1], [1, 1024]", "[0, 1], [1, 1024]", "[1024, 2], [1, 1024]", "[1024], [1, 1024]"),
        "dtypes": ("torch.float16, torch.bfloat16", "torch.int8, torch.int8", "torch.float16", "x, x"),
    },
    "found": {
        "Ho": (14, 27, 29), "pad": ("0x0", "2x1", "many"), "bias": (1, 7), "ms": _time(),
        "layout": ("NCHW", "NCHW-NHWC-NHWC", "NCHWc"), "dtype": ("INT8", "FP8", "FP16FP16FP32", "FP64"),
        "C": (0, "many", 3.5),
    },
    "trace": {
        "op_type": ("moe", "gqa_paged", "rmsnorm"), "B": (["K"], ["X", "K"], ["N", "K", "L"]),
        "M": (0, "many", -3),
        "dtype": ("float8_e5m2", "int8", "float4_e2m1"), "out": ("float32", "int8"), "hardware": _DEVICES,
        "status": ("INCORRECT_NUMERICAL", "RUNTIME_ERROR", "COMPILE_ERROR", "SO_SO", ""), "error": _error,
        "ms": _time(), "solution": ("", None),
    },
    "calls": {
        "batch_count": _batch, "grouped_gemm": _YES, "transA": ("C", "H"),
        **dict.fromkeys(("a_type", "b_type"), ("i8_r", "f64_r", "f4_r", "c32")),
        "rocblas_function": ("rocblas_sgemv", "rocblas_trsm", "rocblas_gemm_bad_arg"), "K": ("many", -1),
    },
    "shapes": {
        "batch_count": _batch, "batch": _batch, "grouped_gemm": _YES, "op_type": ("moe", "batched_gemm"),
        **dict.fromkeys(("dtype_a", "dtype_b"), ("fp16", "torch.int8", "fp4x2")),
        "q_dtype_w": ("torch.int8", "fp4x2", "torch.float8_e5m2"),
        "layout_a": ("ColumnMajor",), "layout_b": ("RowMajor",), "stride_a": (8192, 5),
        "K": ("0", "many", 1.5),
    },
}  # fmt: skip
"""What a file may state falsely, by the words in `Format.takes`."""


def run(count: int, seed: int) -> Outcome:
    """Tells `count` different lies, in each format in turn."""
    choose = random.Random(seed)
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    failures = [f"{one.name}, unchanged: {what}" for one in FORMATS if (what := told(one, {})) != "believed"]
    for number in range(count):
        form = FORMATS[number % len(FORMATS)]
        field, value = _lie(form, choose, seen)
        outcome = told(form, {field: value})
        counts[outcome] += 1
        if outcome in _BAD:
            failures.append(f"{number}, {form.name}, {field} = {value!r}: {outcome}")
    of_format = Counter(name for name, _, _ in seen)
    sizes = {"different lies": len(seen)} | {f"different lies, {name}": n for name, n in of_format.items()}
    return Outcome(count, {name: counts[name] for name in (*_GOOD, *_BAD)}, failures, sizes)


def _lie(form: Format, choose: random.Random, seen: set[tuple[str, str, str]]) -> tuple[str, Any]:
    """A field and its value, that were not told in this format before."""
    fields = {name: values for word in sorted(form.takes) for name, values in OWN[word].items()}
    for _ in range(_DRAWS):
        field = choose.choice(sorted(fields))
        values = fields[field]
        value = values(choose) if callable(values) else choose.choice(values)
        if (form.name, field, repr(value)) not in seen:
            break
    seen.add((form.name, field, repr(value)))
    return field, value


def told(form: Format, lie: Row) -> str:
    """The outcome of a file whose victim states this."""
    with tempfile.TemporaryDirectory(prefix="lies-") as folder:
        path = Path(folder) / form.file
        form.write(path, (form.rows[0] | lie, *form.rows[1:]))
        try:
            return _of_list(path, form) if form.is_list else _of_records(path, form)
        except HarnessError:
            return "file refused"


def _of_records(path: Path, form: Format) -> str:
    out = path.with_name("out.parquet")
    write_records(import_file(path, form.arch, layout=form.layout).records, out)
    records = load_records(out)
    status = dict(zip(records["kernel"], records["status"], strict=True))
    if status.pop(form.witness, "") != "ok":
        return "witness lost"
    if not status:
        return "row refused"
    return "believed" if "ok" in status.values() else "not ok"


def _of_list(path: Path, form: Format) -> str:
    found = {one.id for one in load_problem_set(path).problems}
    if form.witness not in found:
        return "witness lost"
    return "believed" if len(found) == len(form.rows) else "row refused"


CAMPAIGN = Campaign("lies", "no row is believed that its own file denies", 1000, run)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
