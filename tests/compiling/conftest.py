"""Builders of the small family, and the compilers of this machine."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiling.bare_machine import strip_machine
from tests.compiling.small_family import SMALL_FAMILY
from tile_oracle.compiling.builder import Builder
from tile_oracle.files.data_files import data_folder


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "grouped_conv.hpp").write_text(SMALL_FAMILY)
    shutil.copy(data_folder("kernels") / "cpu" / "abi.h", folder)
    return folder


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
