"""Files that users bring from elsewhere: a sample of each kind, and how it is read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from tile_oracle import cli
from tile_oracle.files.data_files import data_folder
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.libraries.offers import Offer, Offers, ProblemOffers, load_offers, offers_file, save_offers
from tile_oracle.operation import Kind
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.kernel_lists import instances_json
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.pool import pool_of_kind
from tile_oracle.selector.export import read_names
from tools.faults.good_files import FORMATS, Format

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


_IMPORTED = ("import", "FILE", "--arch", "gfx950", "-o", "OUT")
_IMPORT = _command(*_IMPORTED)
_PROBLEM_SET = _command("problems", "FILE", "-o", "TABLE")
_KERNEL_SET = _command("kernels", "--kernel-set", "FILE", "--arch", "gfx950")


def _imported(form: Format) -> Callable[[Path], int]:
    return _command(*_IMPORTED, *(("--layout", form.layout) if form.layout else ()))


def _written(form: Format) -> bytes:
    """The good file of a format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / form.file
        form.write(path, form.rows)
        return path.read_bytes()


def _records() -> bytes:
    form = next(one for one in FORMATS if one.name == "table of convolutions")
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / form.file, Path(folder) / "records.parquet"
        form.write(table, form.rows)
        write_records(import_file(table, form.arch).records, out)
        return out.read_bytes()


def _commands() -> bytes:
    line = "MIOpenDriver convbfp16 -n 2 -c 64 -k {k} -H 8 -W 8 -y 3 -x 3 --mode conv -F 1\n"
    return "".join(line.format(k=one.K) for one in _PROBLEMS).encode()


_BUILDER = b"""\
# instances
DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1, \
BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3>
DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 64, 64, 64, Default, 16, 16, 2, 2, 1, 2, 4, 1, 1, \
BlkGemmPipelineScheduler: Interwave, BlkGemmPipelineVersion: v2>
"""


def _pool() -> list[GroupedConvKernel]:
    pool = pool_of_kind(Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2), "gfx950")
    return [one for one in pool[:12] if isinstance(one, GroupedConvKernel)]


def _picks() -> bytes:
    dims = ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h")
    rows = [[KERNEL, *(getattr(one, name) for name in dims), 1.5] for one in _PROBLEMS]
    table = pd.DataFrame(rows, columns=["kernel_name", *dims, "predicted_tflops"])
    return str(table.to_csv(index=False)).encode()


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
    *(
        FileKind(
            form.name, form.file, partial(_written, form), _PROBLEM_SET if form.is_list else _imported(form)
        )
        for form in FORMATS
        if form.alone
    ),
    FileKind("records", "records.parquet", _records, _command("merge", "FILE", "-o", "OUT")),
    FileKind("problem set", "shapes.csv", lambda: _shipped("forward_smoke"), _PROBLEM_SET),
    FileKind("GEMM problem set", "gemms.csv", lambda: _shipped("gemm_smoke"), _PROBLEM_SET),
    FileKind("problems of records", "run.parquet", _records, _PROBLEM_SET),
    FileKind("MIOpenDriver lines", "layers.txt", _commands, _PROBLEM_SET),
    FileKind(
        "rule set",
        "rules.json",
        lambda: (data_folder("kernels") / "rules" / "tiny.json").read_bytes(),
        _KERNEL_SET,
    ),
    FileKind("instance list", "instances.json", lambda: instances_json(_pool()).encode(), _KERNEL_SET),
    FileKind("CK Builder config", "nhwgc_bf16.conf", lambda: _BUILDER, _KERNEL_SET),
    FileKind("picks", "picks.csv", _picks, lambda path: read_picks(path, _PROBLEMS)),
    FileKind("kernel names", "names.txt", lambda: f"{KERNEL}\n".encode() * 3, read_names),
    FileKind("library's offers", "library_cublaslt.json", _offers, load_offers),
)
