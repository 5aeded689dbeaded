"""Files that users bring from elsewhere: a sample of each kind, and how it is read."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tile_oracle import cli
from tile_oracle.evaluation.picks_file import read_picks
from tile_oracle.files.data_files import data_folder
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.kernel_lists import instances_json, traits_json
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import kernel_pool
from tile_oracle.problem_list.miopen_driver import driver_command
from tile_oracle.selector.solutions import read_names
from tile_oracle.vendor.offers import Offer, Offers, ProblemOffers, load_offers, offers_file, save_offers

KERNEL = "grouped_conv_forward_bf16_2d_64x64x64_compv3"
_PROBLEMS = tuple(GroupedConvProblem("forward", "bf16", 2, 2, 64, k, 1, 8, 8, 3, 3) for k in (32, 64, 96))


@dataclass(frozen=True)
class FileKind:
    """One kind of file. file: its name. sample: its content. read: reads the path; raises HarnessError or
    returns the exit status of the command that read it."""

    name: str
    file: str
    sample: Callable[[], bytes]
    read: Callable[[Path], object]


def _command(*words: str) -> Callable[[Path], int]:
    """A command of tile-oracle; FILE stands for the path, OUT for a file beside it."""

    def read(path: Path) -> int:
        values = {
            "FILE": str(path),
            "OUT": str(path.parent / "out.parquet"),
            "TABLE": str(path.parent / "out.csv"),
        }
        return cli.main([values.get(word, word) for word in words])

    return read


_IMPORT = _command("import", "FILE", "--arch", "gfx950", "-o", "OUT")
_PROBLEM_SET = _command("problems", "FILE", "-o", "TABLE")
_KERNEL_SET = _command("kernels", "--kernel-set", "FILE", "--arch", "gfx950")


def _table() -> pd.DataFrame:
    rows = []
    for at, problem in enumerate(_PROBLEMS):
        dims = {name: getattr(problem, name) for name in ("N", "C", "K", "G", "Hi", "Wi", "Y", "X")}
        for kernel, latency in ((KERNEL, 0.01), (KERNEL + "_interwave", 0.02)):
            row = {
                "kernel": kernel,
                "problem_idx": at,
                **dims,
                "stride_h": 1,
                "stride_w": 1,
                "latency_ms": latency,
            }
            rows.append(row | {"tflops": problem.tflops(latency), "non_zero": problem.N * problem.K * 36})
    return pd.DataFrame(rows)


def _results() -> bytes:
    kernels = [{"name": KERNEL, "perf_result": {"latency(ms)": 0.01}}]
    dims = [{name: getattr(one, name) for name in ("N", "C", "K", "Hi", "Wi", "Y", "X")} for one in _PROBLEMS]
    problems = [{"problem": one, "kernels": kernels} for one in dims]
    return json.dumps({"arch": "gfx950", "problems": problems}, indent=1).encode()


def _log() -> bytes:
    lines = ["[build] compiling 300 kernels ... ok"]
    for one in _PROBLEMS:
        lines.append(
            " ".join(f"{name} = {getattr(one, name)}" for name in ("N", "C", "K", "Hi", "Wi", "Y", "X"))
        )
        lines.append(f"running {KERNEL}")
        lines.append(json.dumps({"latency_ms": 0.01, "tflops": one.tflops(0.01)}))
    return "\n".join(lines).encode()


def _parquet() -> bytes:
    found = io.BytesIO()
    _table().to_parquet(found)
    return found.getvalue()


def _records() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "bench.csv", Path(folder) / "records.parquet"
        table.write_bytes(_csv())
        write_records(import_file(table, "gfx950").records, out)
        return out.read_bytes()


def _csv() -> bytes:
    return str(_table().to_csv(index=False)).encode()


def _sweep() -> bytes:
    lines = [
        "N,G,C,K,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,tile_m,tile_n,tile_k,pipeline,tflops,latency_us"
    ]
    for one in _PROBLEMS:
        half = one.__class__("forward", "fp16", 2, 1, 64, one.K, 1, 56, 56, 3, 3, 1, 1, 1, 1)
        lines.append(f"1,1,64,{one.K},56,56,3,3,1,1,1,1,64,64,64,mem,{half.tflops(0.0125)},12.5")
    return "\n".join([*lines, ""]).encode()


def _tile_engine() -> bytes:
    calls = [
        f"GroupedConvProblem(N=1, C=128, K={one.K}, G=1, Hi=32, Wi=32, Y=2, X=2, stride_h=2, stride_w=2, "
        'dilation_h=1, dilation_w=1, pad_h=0, pad_w=0, direction="forward")'
        for one in _PROBLEMS
    ]
    text = "from grouped_conv_utils import GroupedConvProblem\n\nTRAINING_PROBLEMS_FORWARD = [\n    {},\n]\n"
    return text.format(",\n    ".join(calls)).encode()


def _commands() -> bytes:
    return "\n".join([*map(driver_command, _PROBLEMS), ""]).encode()


_AITER = b"""\
gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw
gfx950,256,64,256,5120,False,torch.bfloat16,torch.float32,False,False,asm,5,13,7.9191,_ZN5aiter39bf16gemmE,0.0,21.19,417.92
gfx950,256,128,256,5120,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,7,1,9.5,Cijk_Alik,0.0,35.3,417.92
"""

_BUILDER = b"""\
# instances
DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1, \
BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3>
DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 64, 64, 64, Default, 16, 16, 2, 2, 1, 2, 4, 1, 1, \
BlkGemmPipelineScheduler: Interwave, BlkGemmPipelineVersion: v2>
"""


def _pool() -> list[GroupedConvKernel]:
    pool = kernel_pool("forward", "bf16", 2, "gfx950", "default")
    return [one for one in pool[:12] if isinstance(one, GroupedConvKernel)]


def _picks() -> bytes:
    table = _table().rename(columns={"kernel": "kernel_name", "tflops": "predicted_tflops"})
    return str(table.drop(columns=["latency_ms", "non_zero"]).to_csv(index=False)).encode()


def _offers() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        offered = ProblemOffers(
            (Offer("a66.stages=36.tile=20", "00ff", 1 << 20, 0), Offer("a1", "", 0)), "", 9, 1
        )
        every = {one.id: offered for one in _PROBLEMS}
        offers = Offers("cublaslt", "/usr/lib/libcublasLt.so.12", "12.8", "H200", "570", every)
        save_offers(Path(folder), offers)
        return offers_file(Path(folder), "cublaslt").read_bytes()


def _shipped(name: str) -> bytes:
    return (data_folder("problems") / f"{name}.csv").read_bytes()


KINDS = (
    FileKind("benchmark table", "bench.csv", _csv, _IMPORT),
    FileKind("results", "results.json", _results, _IMPORT),
    FileKind("benchmark log", "run.log", _log, _IMPORT),
    FileKind("table in parquet", "bench.parquet", _parquet, _IMPORT),
    FileKind("records", "records.parquet", _records, _IMPORT),
    FileKind("CK DSL sweep", "conv_fp16_gfx950.csv", _sweep, _IMPORT),
    FileKind("AITER table", "tuned_gemm.csv", lambda: _AITER, _PROBLEM_SET),
    FileKind("problem set", "shapes.csv", lambda: _shipped("forward_smoke"), _PROBLEM_SET),
    FileKind("GEMM problem set", "gemms.csv", lambda: _shipped("gemm_smoke"), _PROBLEM_SET),
    FileKind("problems of records", "run.parquet", _records, _PROBLEM_SET),
    FileKind("MIOpenDriver lines", "layers.txt", _commands, _PROBLEM_SET),
    FileKind("tile_engine list", "training.py", _tile_engine, _PROBLEM_SET),
    FileKind(
        "rule set",
        "rules.json",
        lambda: (data_folder("kernels") / "rules" / "tiny.json").read_bytes(),
        _KERNEL_SET,
    ),
    FileKind("instance list", "instances.json", lambda: instances_json(_pool()).encode(), _KERNEL_SET),
    FileKind("trait list", "traits.json", lambda: traits_json(_pool(), _pool()).encode(), _KERNEL_SET),
    FileKind("CK Builder config", "nhwgc_bf16.conf", lambda: _BUILDER, _KERNEL_SET),
    FileKind("picks", "picks.csv", _picks, lambda path: read_picks(path, _PROBLEMS)),
    FileKind("kernel names", "names.txt", lambda: f"{KERNEL}\n".encode() * 3, read_names),
    FileKind("library's offers", "library_cublaslt.json", _offers, load_offers),
)
