"""A good file of each format that is read from elsewhere, with a victim, the fastest row, and a witness."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem

Row = dict[str, Any]

_FLAGS = "compv3_cshuffle_intrawave_False_False_False_False"
GEMM_KERNELS = tuple(f"gemm_fp16_rcr_{_FLAGS}_{tile}_2x2x1_32x32x16" for tile in ("256x256x64", "128x128x64"))
CONV_KERNELS = tuple(
    f"grouped_conv_forward_bf16_2d_{tile}_compv3_intrawave" for tile in ("16x64x64", "64x64x64")
)
SWEEP_KERNELS = tuple(
    f"grouped_conv_forward_fp16_2d_ckdsl.conv.pipeline={pipeline}.tile_k=64.tile_m=64.tile_n=64"
    for pipeline in ("mem", "compv3")
)
GEMM = GemmProblem("fp16", "rcr", 1024, 1024, 1024)
CONV = GroupedConvProblem("forward", "bf16", 2, 8, 256, 128, 1, 28, 28, 3, 3, 1, 1, 1, 1)
SWEEP = GroupedConvProblem("forward", "fp16", 2, 8, 256, 128, 1, 28, 28, 3, 3, 1, 1, 1, 1)
VICTIM_MS, WITNESS_MS = 0.0125, 0.025


@dataclass(frozen=True)
class Format:
    """How a file of this format is written from the victim's and the witness's fields.

    witness: its kernel, or its problem in a list of problems (is_list). takes: what such a file can state, as
    names in tools.faults.lies. layout: what the user states with it. alone: it needs
    no file beside it.
    """

    name: str
    file: str
    rows: tuple[Row, ...]
    witness: str
    write: Callable[[Path, Sequence[Row]], object]
    takes: frozenset[str]
    arch: str = "gfx950"
    is_list: bool = False
    layout: str = ""
    alone: bool = True


def _figures(problem: Problem, latency_ms: float) -> Row:
    return {
        "latency_ms": latency_ms,
        "tflops": problem.tflops(latency_ms),
        "bandwidth(GB/s)": problem.bytes / (latency_ms * 1e6),
    }


def _rows(problem: Problem, kernels: Sequence[str], dims: Sequence[str], **more: Any) -> tuple[Row, Row]:
    sizes = {name: getattr(problem, name) for name in dims}
    victim, witness = (
        {"kernel": kernel, **sizes, "device": 0, **_figures(problem, time), **more}
        for kernel, time in zip(kernels, (VICTIM_MS, WITNESS_MS), strict=True)
    )
    return victim, witness


def _csv(path: Path, rows: Sequence[Row]) -> None:
    pd.DataFrame(list(rows)).to_csv(path, index=False)


def _parquet(path: Path, rows: Sequence[Row]) -> None:
    table = pd.DataFrame(list(rows))
    mixed = [name for name in table if table[name].map(type).nunique() > 1]
    table.astype(dict.fromkeys(mixed, str)).to_parquet(path)


def _json(path: Path, rows: Sequence[Row]) -> None:
    results = [
        {
            "kernel_config": {"name": row["kernel"]},
            "benchmarks": [{k: v for k, v in row.items() if k != "kernel"}],
        }
        for row in rows
    ]
    path.write_text(json.dumps({"metadata": {"version": 3}, "results": results}))


def _log(path: Path, rows: Sequence[Row]) -> None:
    lines = ["[ 12%] Building gemm_universal ..."]
    for row in rows:
        lines.append(f"Running {row['kernel']}")
        lines.append(json.dumps({name: value for name, value in row.items() if name != "kernel"}))
    path.write_text("\n".join(lines))


def _tuner_cache(path: Path, rows: Sequence[Row]) -> None:
    of_file = ("problem_size", "device_name")
    entries = {str(n): {k: v for k, v in row.items() if k not in of_file} for n, row in enumerate(rows)}
    head = {
        "schema_version": "1.1.0",
        "kernel_name": "gemm",
        "tune_params_keys": ["kernel"],
        "tune_params": {},
    }
    path.write_text(json.dumps(head | {name: rows[0][name] for name in of_file} | {"cache": entries}))


_OF_RESULT = ("invalidity", "correctness", "times", "time", "unit")


def _t4(path: Path, rows: Sequence[Row]) -> None:
    results = []
    for row in rows:
        time = {"name": "time", "value": row["time"], "unit": row["unit"]}
        results.append(
            {
                "configuration": {k: v for k, v in row.items() if k not in _OF_RESULT},
                "times": {"runtimes": row["times"]},
                "measurements": [time],
                **{name: row[name] for name in ("invalidity", "correctness")},
            }
        )
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": results}))


_SUMMARIES = {
    "mean": "nv/cold/time/gpu/mean", "min": "nv/cold/time/gpu/min", "max": "nv/cold/time/gpu/max",
    "noise": "nv/cold/time/gpu/stdev/relative", "samples": "nv/cold/sample_size",
}  # fmt: skip


def _nvbench(path: Path, rows: Sequence[Row]) -> None:
    states = []
    for row in rows:
        axes = {
            name: value for name, value in row.items() if name not in (*_SUMMARIES, "device", "is_skipped")
        }
        states.append(
            {
                "device": row["device"],
                "is_skipped": row["is_skipped"],
                "axis_values": [{"name": n, "type": "string", "value": str(v)} for n, v in axes.items()],
                "summaries": [
                    {"tag": tag, "data": [{"name": "value", "value": str(row[name])}]}
                    for name, tag in _SUMMARIES.items()
                ],
            }
        )
    devices = [{"id": n, "name": name} for n, name in enumerate(("MI355X", "MI300X", "MI355X OAM", "H100"))]
    path.write_text(json.dumps({"devices": devices, "benchmarks": [{"name": "b", "states": states}]}))


def _blas(path: Path, rows: Sequence[Row]) -> None:
    lines = []
    for number, row in enumerate(rows):
        values = {name: value for name, value in row.items() if name != "solution"}
        lines += [f"[{number}]:{','.join(values)}", "    " + ",".join(map(str, values.values()))]
        lines += [f"    --Solution index: {row['solution']}"]
    path.write_text("\n".join(lines) + "\n")


def _calls(path: Path, rows: Sequence[Row]) -> None:
    calls = (", ".join(f'{name}: "{value}"' for name, value in row.items()) for row in rows)
    path.write_text("".join(f"- {{ {call} }}\n" for call in calls))


def _blas_row(solution: int, us: float) -> Row:
    return {
        "transA": "T", "transB": "N", "grouped_gemm": 0, "batch_count": 1, "m": 1024, "n": 1024, "k": 1024,
        "alpha": 1, "lda": 1024, "beta": 0, "ldb": 1024, "ldc": 1024, "ldd": 1024, "a_type": "f16_r",
        "b_type": "f16_r", "c_type": "f16_r", "d_type": "f16_r", "compute_type": "f32_r", "scaleA": 0,
        "scaleB": 0, "activation_type": "none", "bias_vector": 0, "rotating_buffer": 0,
        "hipblaslt-Gflops": 1e3 * GEMM.tflops(us / 1e3), "hipblaslt-GB/s": GEMM.bytes / (us * 1e3), "us": us,
        "norm_error": 0, "atol": "passed", "rtol": "passed", "solution": solution,
    }  # fmt: skip


def _tuner_row(kernel: str, time: float) -> Row:
    return {
        "kernel": kernel, "problem_size": GEMM.id, "device_name": "AMD Instinct MI355X", "time": time,
        "times": [time, time], "timestamp": "2026-01-02 03:04:05+00:00",
    }  # fmt: skip


def _t4_row(kernel: str, time: float) -> Row:
    return {
        "kernel": kernel, "problem": GEMM.id, "time": time, "unit": "ms", "times": [time, time],
        "invalidity": "correct", "correctness": 1,
    }  # fmt: skip


def _state(kernel: str, time: float) -> Row:
    return {
        "kernel": kernel, "problem": GEMM.id, "device": 0, "is_skipped": False, "mean": time / 1e3,
        "min": time / 1e3, "max": time / 1e3, "noise": 0.01, "samples": 100,
    }  # fmt: skip


def _tunable(path: Path, rows: Sequence[Row]) -> None:
    lines = [f"Validator,GCN_ARCH_NAME,{rows[0]['gfx']}"]
    lines += [
        f"{row['op']}_{row['type']}_{row['trans']},{row['key']}_{row['sizes']}{row['batch']}{row['ld']},"
        f"{row['solution']},{row['ms']}"
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n")


def _autotune(path: Path, rows: Sequence[Row]) -> None:
    first = rows[0]
    key = [1024, 1024, 1024, *(first[name] for name in ("a", "b", "c"))]
    timings = [[{"kwargs": {"BLOCK_M": row["block"]}, "num_warps": 4}, row["times"]] for row in rows]
    path.write_text(json.dumps({"key": key, "configs_timings": timings}))


def _inductor(path: Path, rows: Sequence[Row]) -> None:
    lines = []
    for row in rows:
        lines += [f"AUTOTUNE {row['op']}({row['shapes']})", f"strides: {row['strides']}"]
        lines += [
            f"dtypes: {row['dtypes']}",
            f"  triton_mm_{row['n']} {row['ms']} ms 100.0% BLOCK_M={row['n']}",
        ]
    path.write_text("\n".join(lines) + "\n")


def _find_db(path: Path, rows: Sequence[Row]) -> None:
    path.write_text(
        "".join(
            f"{row['C']}-28-28-3x3-128-{row['Ho']}-28-8-{row['pad']}-1x1-1x1-{row['bias']}-{row['layout']}-"
            f"{row['dtype']}-F={row['solver']}:{row['ms']},0,miopenConvolutionFwdAlgoGEMM\n"
            for row in rows
        )
    )


def _traces(path: Path, rows: Sequence[Row]) -> None:
    folder = path.parent / "definitions"
    folder.mkdir(exist_ok=True)
    lines = []
    for number, row in enumerate(rows):
        matrices = {"A": ["M", "K"], "B": row["B"]}
        definition = {
            "op_type": row["op_type"], "axes": {"M": {}, "N": {"value": 1024}, "K": {"value": 1024}},
            "inputs": {name: {"shape": shape, "dtype": row["dtype"]} for name, shape in matrices.items()},
            "outputs": {"C": {"shape": ["M", "N"], "dtype": row["out"]}},
        }  # fmt: skip
        (folder / f"d{number}.json").write_text(json.dumps(definition))
        evaluation = {
            "status": row["status"], "environment": {"hardware": row["hardware"]},
            "correctness": {"max_relative_error": row["error"]}, "performance": {"latency_ms": row["ms"]},
        }  # fmt: skip
        workload = {"axes": {"M": row["M"]}}
        trace = {"definition": f"d{number}", "workload": workload, "evaluation": evaluation}
        lines.append(json.dumps({**trace, "solution": row["solution"]}))
    path.write_text("\n".join(lines) + "\n")


_CUTLASS = {
    "Problem": 1, "Provider": "CUTLASS", "OperationKind": "gemm", "Operation": "one", "Disposition": "passed",
    "Status": "success", "gemm_kind": "universal", "m": 1024, "n": 1024, "k": 1024, "A": "f16:row",
    "B": "f16:column", "C": "f16:row", "D": "f16:row", "alpha": 1, "beta": 0,
    "batch_count": 1, "accum": "f32",
    "Runtime": VICTIM_MS, "GB/s": GEMM.bytes / (VICTIM_MS * 1e6), "GFLOPs": 1e3 * GEMM.tflops(VICTIM_MS),
}  # fmt: skip
_CUTLASS_WITNESS = {"Operation": "two", "Runtime": WITNESS_MS, "GB/s": GEMM.bytes / (WITNESS_MS * 1e6),
                    "GFLOPs": 1e3 * GEMM.tflops(WITNESS_MS)}  # fmt: skip
_TUNABLE = {"gfx": "gfx950", "op": "GemmTunableOp", "type": "Half", "trans": "TN", "key": "tn",
            "sizes": "1024_1024_1024", "batch": "", "ld": "_ld_1024_1024_1024",
            "solution": "Gemm_Hipblaslt_1", "ms": VICTIM_MS}  # fmt: skip
_TUNED = {"a": "torch.float16", "b": "torch.float16", "c": "torch.float16", "block": 64,
          "times": [VICTIM_MS] * 3}  # fmt: skip
_CHOICE = {"op": "mm", "shapes": "1024x1024, 1024x1024", "strides": "[1024, 1], [1, 1024]", "n": 1,
           "dtypes": "torch.float16, torch.float16", "ms": VICTIM_MS}  # fmt: skip
_FOUND = {"C": 256, "Ho": 28, "pad": "1x1", "bias": 0, "layout": "NHWC-NHWC-NHWC", "dtype": "BF16",
          "solver": "One", "ms": VICTIM_MS}  # fmt: skip
_TRACE = {"op_type": "gemm", "B": ["N", "K"], "dtype": "float16", "out": "float16", "status": "PASSED",
          "M": 1024, "hardware": "AMD_Instinct_MI355X", "error": 1e-3, "ms": VICTIM_MS,
          "solution": "one"}  # fmt: skip
_AITER = {
    "gfx": "gfx950", "cu_num": 256, "M": 64, "N": 512, "K": 5120, "bias": False, "dtype": "torch.bfloat16",
    "outdtype": "torch.bfloat16", "scaleAB": False, "bpreshuffle": False, "libtype": "asm", "solidx": 5,
    "splitK": 0, "us": 7.9, "kernelName": "bf16gemm", "err_ratio": 0.0, "tflops": 21.2, "bw": 417.9,
}  # fmt: skip
_DENSE_AITER = _AITER | {"M": 1024, "N": 1024, "K": 1024, "us": 1e3 * VICTIM_MS, "kernelName": "bf16gemm_one",
                "tflops": GEMM.tflops(VICTIM_MS), "bw": GEMM.bytes / (VICTIM_MS * 1e6)}  # fmt: skip
_AITER_WITNESS = {"us": 1e3 * WITNESS_MS, "kernelName": "bf16gemm_two", "tflops": GEMM.tflops(WITNESS_MS),
                  "bw": GEMM.bytes / (WITNESS_MS * 1e6)}  # fmt: skip
_UNTUNED = {"M": 64, "N": 512, "K": 5120, "q_dtype_w": "torch.float8_e4m3fn"}
_LISTED = {"rocblas_function": "rocblas_gemm_ex", "a_type": "bf16_r", "b_type": "bf16_r", "batch_count": 1,
           "transA": "T", "transB": "N", "M": 512, "N": 64, "K": 5120, "grouped_gemm": 0}  # fmt: skip
_SHAPE = {"M": 64, "N": 512, "K": 5120}


def _pair(make: Callable[..., Row], kernels: Sequence[str]) -> tuple[Row, Row]:
    return make(kernels[0], VICTIM_MS), make(kernels[1], WITNESS_MS)


ROW_SAYS = frozenset({"guards", "figures", "gemm"})
"""What a table of GEMM results may state: flags, devices and operations, figures, and a GEMM's own."""

_GEMMS = _rows(GEMM, GEMM_KERNELS, ("M", "N", "K"))
_DIMS = ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w", "Ho", "Wo")
_CONVS = _rows(CONV, CONV_KERNELS, _DIMS, non_zero=8 * 128 * 28 * 28)
_SWEEPS: tuple[Row, ...] = tuple(
    {**{name: value for name, value in row.items() if name not in ("kernel", "latency_ms", "Ho", "Wo")},
     "tile_m": 64, "tile_n": 64, "tile_k": 64, "pipeline": pipeline, "latency_us": 1e3 * row["latency_ms"]}
    for row, pipeline in zip(_rows(SWEEP, SWEEP_KERNELS, _DIMS), ("mem", "compv3"), strict=True)
)  # fmt: skip
_OF_CONV = frozenset({"guards", "figures", "conv"})

FORMATS: tuple[Format, ...] = (
    Format("table of GEMMs", "g.csv", _GEMMS, GEMM_KERNELS[1], _csv, ROW_SAYS),
    Format("table of convolutions", "c.csv", _CONVS, CONV_KERNELS[1], _csv, _OF_CONV),
    Format("table in parquet", "g.parquet", _GEMMS, GEMM_KERNELS[1], _parquet, ROW_SAYS),
    Format("nested results", "g.json", _GEMMS, GEMM_KERNELS[1], _json, ROW_SAYS),
    Format("nested results of convolutions", "c.json", _CONVS, CONV_KERNELS[1], _json, _OF_CONV),
    Format("benchmark log", "g.log", _GEMMS, GEMM_KERNELS[1], _log, ROW_SAYS),
    Format("CK DSL sweep", "s_fp16.csv", (_SWEEPS[0], _SWEEPS[1]), SWEEP_KERNELS[1], _csv,
           frozenset({"guards", "sweep"})),
    Format("Kernel Tuner cache", "k.json", _pair(_tuner_row, GEMM_KERNELS), GEMM_KERNELS[1], _tuner_cache,
           frozenset({"guards", "cache"})),
    Format("T4 results", "t.json", _pair(_t4_row, GEMM_KERNELS), GEMM_KERNELS[1], _t4,
           frozenset({"guards", "t4"})),
    Format("NVBench", "n.json", _pair(_state, GEMM_KERNELS), GEMM_KERNELS[1], _nvbench,
           frozenset({"guards", "nvbench"})),
    Format("hipblaslt-bench", "b.log", (_blas_row(1, 12.5), _blas_row(2, 25.0)), "gemm_fp16_rcr_hipblaslt.s2",
           _blas, frozenset({"blas"})),
    Format("AITER table", "tuned_gemm.csv", (_AITER, _AITER | {"M": 128, "tflops": 42.4}),
           "gemm-bf16-rcr-m128-n512-k5120", _csv, frozenset({"aiter"}), is_list=True),
    Format("AITER shapes", "untuned_gemm.csv", (_UNTUNED, _UNTUNED | {"M": 128}),
           "gemm-fp8-rcr-m128-n512-k5120", _csv, frozenset({"aiter"}), is_list=True),
    Format("AITER results", "r_tuned_gemm.csv", (_DENSE_AITER, _DENSE_AITER | _AITER_WITNESS),
           "gemm_bf16_rcr_aiter.bf16gemm_two.libtype=asm.solidx=5.splitk=0", _csv,
           frozenset({"aiter", "aiter results"})),
    Format("CUTLASS profiler", "p.gemm.csv", (_CUTLASS, _CUTLASS | _CUTLASS_WITNESS),
           "gemm_fp16_rcr_cutlass.two", _csv, frozenset({"cutlass"})),
    Format("TunableOp", "tunableop_results0.csv",
           (_TUNABLE, _TUNABLE | {"solution": "Gemm_Hipblaslt_2", "ms": WITNESS_MS}),
           "gemm_fp16_rcr_hipblaslt.s2", _tunable, frozenset({"tunable"})),
    Format("Triton's autotuner", "f.autotune.json",
           (_TUNED, _TUNED | {"block": 128, "times": [WITNESS_MS] * 3}),
           "gemm_fp16_rcr_triton.f.BLOCK_M=128.num_warps=4", _autotune, frozenset({"tuned"}), layout="rcr"),
    Format("Inductor's autotuner", "i.log", (_CHOICE, _CHOICE | {"n": 2, "ms": WITNESS_MS}),
           "gemm_fp16_rcr_inductor.triton_mm.BLOCK_M=2", _inductor, frozenset({"choice"})),
    Format("MIOpen's find-db", "gfx95064.HIP.fdb.txt", (_FOUND, _FOUND | {"solver": "Two", "ms": WITNESS_MS}),
           "grouped_conv_forward_bf16_2d_miopen.Two", _find_db, frozenset({"found"})),
    Format("flashinfer-bench", "t.jsonl", (_TRACE, _TRACE | {"solution": "two", "ms": WITNESS_MS}),
           "gemm_fp16_rcr_flashinfer.two", _traces, frozenset({"trace"}), alone=False),
    # A batch is another operation's problem, and a list is of the operation of most calls: the plain one.
    Format("list of BLAS calls", "calls.log", (_LISTED, _LISTED | {"N": 128}, _LISTED | {"N": 256}),
           "gemm-bf16-rcr-m128-n512-k5120", _calls, frozenset({"calls"}), is_list=True),
    Format("table of problems", "p.csv", (_SHAPE, _SHAPE | {"M": 128}), "gemm-bf16-rcr-m128-n512-k5120",
           _csv, frozenset({"shapes"}), is_list=True),
)  # fmt: skip
