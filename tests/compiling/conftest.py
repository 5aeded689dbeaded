"""A kernel family that compiles quickly and misbehaves on demand, selected by its tile_m."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiling.bare_machine import strip_machine
from tile_oracle.compiling.builder import Builder
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

SMALL_FAMILY = """\
#include "abi.h"
#include <stdint.h>
#if TO_TILE_M == 13
#error "thirteen rows are one too many"
#endif
extern "C" {
int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
#if TO_TILE_M != 11
int64_t to_workspace_bytes(const to_conv_args *args) { return args->N * TO_TILE_M; }
#endif
int32_t to_launch(const to_conv_args *args) { __builtin_memset(args->out, 0, args->N); return TO_OK; }
#if TO_TILE_M == 19
__attribute__((weak)) int32_t perhaps_somewhere(void);
__attribute__((visibility("default"))) int32_t asks(void) {
    return perhaps_somewhere ? perhaps_somewhere() : 0;
}
#endif
#if TO_TILE_M == 17
int32_t somewhere_else(void);
__attribute__((visibility("default"))) int32_t needs_more(void) { return somewhere_else(); }
#endif
}
"""


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "grouped_conv.hpp").write_text(SMALL_FAMILY)
    shutil.copy(data_folder("kernels") / "cpu" / "abi.h", folder)
    return folder


@pytest.fixture
def make_kernel() -> Callable[..., GroupedConvKernel]:
    def make(tile_m: int = 64, **fields: object) -> GroupedConvKernel:
        values: dict[str, object] = {"direction": "forward", "dtype": "bf16", "ndim": 2}
        values |= {"tile_m": tile_m, "tile_n": 64, "tile_k": 64, "wave_m": 1, "wave_n": 1, "wave_k": 1}
        values |= {"warp_tile_m": 6, "warp_tile_n": 16, "warp_tile_k": 1}
        return GroupedConvKernel(**(values | fields))  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_builder(tmp_path: Path, include: Path) -> Callable[..., Builder]:
    def make(**options: object) -> Builder:
        defaults: dict[str, object] = {
            "toolchain": "ziglang",
            "build_dir": tmp_path / "cache",
            "include": include,
        }
        return Builder(**(defaults | options))  # type: ignore[arg-type]

    return make


def _there_is(name: str) -> bool:
    return (
        importlib.util.find_spec("ziglang") is not None
        if name == "ziglang"
        else shutil.which(name) is not None
    )


@pytest.fixture(params=["ziglang", "g++", "clang++"])
def compiler(request: pytest.FixtureRequest) -> str:
    """Each compiler on this machine."""
    if not _there_is(request.param):
        pytest.skip(f"this machine has no {request.param}")
    return str(request.param)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any compiler; the folder is its PATH."""
    return strip_machine(monkeypatch, tmp_path)
