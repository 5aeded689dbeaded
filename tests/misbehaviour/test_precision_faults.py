"""Which precision fault each pattern of device.check_data detects, with real kernels of each fault.

The table of docs/verification.md is the one below.
"""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from tile_oracle.compiling.builder import Builder
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_HEADER = Path(__file__).with_name("precision_faults.hpp")

FAULTS = {
    "none": 0,
    "operands in fp4 (e2m1 digits)": 1,
    "operands in fp8 (e4m3 digits)": 2,
    "operands in bf16": 3,
    "operands cut by their last bit": 4,
    "sums in fp16": 5,
    "sums in bf16": 6,
    "result cut, not rounded": 7,
    "result rounded half up": 8,
    "sums of a block of 8 in fp16": 9,
    "operands through fp16": 10,
    "operands as int16": 11,
    "values under 1e-3 flushed": 12,
    "values over 1e5 clamped": 13,
    "operands as sixteenths": 14,
    "NaN taken for zero": 15,
    "infinities taken for the largest number": 16,
    "padding multiplied by zero": 17,
}
"""Fault -> `fault` of precision_faults.hpp."""

HARMLESS = {("operands in bf16", "bf16"), ("operands through fp16", "fp16")}
"""Faults that do not exist in a dtype."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("precision")
    include = folder / "include"
    include.mkdir()
    shutil.copy(_HEADER, include / "grouped_conv.hpp")
    shutil.copy(data_folder("kernels") / "cpu" / "abi.h", include)
    with Builder("cpu", toolchain="ziglang", build_dir=folder / "cache", include=include) as builder:
        kernel = GroupedConvKernel("forward", "bf16", 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        result = builder.submit(kernel).result()
    assert result.binary is not None, result.log
    return result.binary.path


def check(device: CpuDevice, library: Path, fault: str, dtype: str) -> tuple[str, str]:
    code = ctypes.CDLL(str(library))
    ctypes.c_int.in_dll(code, "fault").value = FAULTS[fault]
    ctypes.c_int.in_dll(code, "dtype").value = ("bf16", "fp16").index(dtype)
    result = device.check(library)
    return result.status, result.detail


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("channels", [1, 2, 64], ids=lambda channels: f"c{channels}")
def test_every_fault_is_seen(dtype: str, channels: int, device: CpuDevice, library: Path) -> None:
    problem = GroupedConvProblem("forward", dtype, 2, 2, channels, 12, 1, 8, 9, 3, 3, pad_h=1, pad_w=1)
    device.load(problem, 1)
    seen = {fault: check(device, library, fault, dtype)[0] for fault in FAULTS}
    wanted = {fault: "ok" if fault == "none" or (fault, dtype) in HARMLESS else "wrong" for fault in FAULTS}
    assert seen == wanted
