"""Builds GPU kernels that misbehave on demand, with real compilers, for gfx950 and sm_90."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tile_oracle.compiling.builder import Builder
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

_HEADER = Path(__file__).with_name("grouped_conv.hpp")

MODES = {
    name.lower(): int(number)
    for name, number in re.findall(r"^    ([A-Z_]+) = ([0-9]+),$", _HEADER.read_text(), re.MULTILINE)
}
"""What a kernel does -> its tile_m."""


def evil_gpu_kernel(mode: str, variant: int = 64, **fields: object) -> GroupedConvKernel:
    """The kernel of a mode; variants (a tile_n) are different kernels that do the same."""
    values: dict[str, object] = {"direction": "forward", "dtype": "bf16", "ndim": 2, "tile_n": variant}
    values |= {"tile_m": MODES[mode], "tile_k": 64, "wave_m": 1, "wave_n": 1, "wave_k": 1}
    values |= {"warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 16}
    return GroupedConvKernel(**(values | fields))  # type: ignore[arg-type]


def evil_gpu_builder(folder: Path, arch: str, prebuilt: Path | None = None) -> Builder:
    """A builder of these kernels, with its headers and its cache below `folder`.

    prebuilt: a folder of them that another machine made, for one without a compiler.
    """
    include = evil_headers(folder / "include")
    return Builder(arch, build_dir=folder / "cache", include=include, prebuilt=prebuilt)


def evil_headers(folder: Path) -> Path:
    """A folder of headers to build them from."""
    shutil.copytree(data_folder("kernels") / "gpu", folder, dirs_exist_ok=True)
    shutil.copy(_HEADER, folder)  # in the place of the true one
    # Without its kernels, which take seconds to compile.
    work = (folder / "device_work.hpp").read_text()
    functions, end, kernels = work.partition("} // namespace to_work\n")
    assert "TO_WORK_KERNEL to_" not in functions
    assert "TO_WORK_KERNEL to_reference(" in kernels
    (folder / "work_functions.hpp").write_text(f"{functions}{end}#endif\n")
    return folder
