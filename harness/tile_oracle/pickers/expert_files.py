"""The configuration files of vLLM and SGLang for products of experts, asked as these programs ask them.

A file E=EXPERTS,N=INTERMEDIATE,device_name=DEVICE.json maps numbers of tokens to configurations of a Triton
kernel; the nearest number is taken, the first of two that are as near. Of fp8 it is ...,dtype=fp8_w8a8.json;
with scales of blocks ...,dtype=fp8_w8a8,block_shape=[128,128].json, and SGLang's with scales of rows
...,dtype=fp8_w8a8,per_channel_quant=True.json. Without such a file there is a default by a rule, which counts
as a fallback. The files are the user's: in $VLLM_TUNED_CONFIG_FOLDER or
$SGLANG_MOE_CONFIG_DIR, else of the installed package. They choose for a kernel with one program a tile.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from tile_oracle.compiling.triton.child_process import triton_folder, triton_version
from tile_oracle.errors import ModelError
from tile_oracle.kernel import Kernel
from tile_oracle.operations.fused_moe.problem import SCALED, FusedMoeProblem
from tile_oracle.pickers.picker import NAMES, Configuration, has_a_tile
from tile_oracle.problem import Problem

DEVICES = {"sm_90": "NVIDIA_H100_80GB_HBM3", "gfx950": "AMD_Instinct_MI355X"}
"""Architecture -> the device in the files' names. TILE_ORACLE_EXPERTS_DEVICE names another, such as
NVIDIA_H200."""
_OF_SCALE = {"block": f",block_shape=[{SCALED},{SCALED}]", "row": ",per_channel_quant=True", "tensor": ""}
"""Scale of fp8 -> what stands after the data type; vLLM's files for rows are those for tensors."""
_DEVICE_VARIABLE = "TILE_ORACLE_EXPERTS_DEVICE"
_COMMON = {name: common for common, names in NAMES.items() for name in names}
Read = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class ExpertFiles:
    """The picker over some folders, of which the first with a file for the problem has it."""

    name: str
    device: str
    folders: tuple[Path, ...]
    maps: bool = True
    _read: dict[Path, Read] = field(default_factory=dict, repr=False)

    @cached_property
    def identity(self) -> str:
        """The device, the number of its files, and their digest."""
        files = [one for folder in self.folders for one in sorted(folder.glob("*.json")) if self._own(one)]
        digest = hashlib.sha256(b"".join(one.name.encode() + one.read_bytes() for one in files))
        return f"{self.name}'s {len(files)} files for {self.device} sha256:{digest.hexdigest()[:12]}"

    def _own(self, file: Path) -> bool:
        return f",device_name={self.device}," in f"{file.stem.removesuffix('_down')},"

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Configuration]:
        """As Picker.pick. None for other operations."""
        if problem.op != FusedMoeProblem.op:
            return ()
        one = cast(FusedMoeProblem, problem)
        scale = "tensor" if (one.scale, self.name) == ("row", "vllm") else one.scale
        of_dtype = f",dtype=fp8_w8a8{_OF_SCALE[scale]}" if one.scaled else ""
        stem = f"E={one.experts},N={one.intermediate},device_name={self.device}{of_dtype}"
        down = (f"{stem}_down",) if one.product == "down" and self.name == "sglang" else ()
        names = [f"{name}.json" for name in (*down, stem)]
        file = next((f / name for name in names for f in self.folders if (f / name).is_file()), None)
        if file is None:
            values = self._default(one)
        else:
            rows = self._rows(file)
            values = rows[min(rows, key=lambda tokens: abs(tokens - one.tokens))]
        among = _is_plain if any(map(_is_plain, pool)) else has_a_tile
        common = {_COMMON.get(name, name): value for name, value in values.items()}
        return (Configuration({"split_k": 1} | common, among, fallback=file is None),)

    def _default(self, problem: FusedMoeProblem) -> Mapping[str, int]:
        amd = self.device.startswith("AMD")
        if problem.scaled and problem.scale == "block":  # both programs' get_default_config
            return _configuration(64, SCALED, SCALED, 32, 4, 2 if amd else 3)
        if problem.scaled and self.name == "sglang":
            few = problem.tokens <= problem.experts
            return _configuration(*((64, 128, 128, 1, 4) if few else (128, 256, 128, 32, 8)), 2 if amd else 4)
        return _default_of_vllm(problem, amd) if self.name == "vllm" else _default_of_sglang(problem)

    def _rows(self, file: Path) -> Read:
        if file not in self._read:
            try:
                told = json.loads(file.read_text("utf-8"))
                rows = {int(tokens): dict(row) for tokens, row in told.items() if tokens.isdigit()}
                right = all(isinstance(value, int) for row in rows.values() for value in row.values())
            except (OSError, ValueError, TypeError, AttributeError) as error:
                raise ModelError(f"{file} cannot be read: {error}") from None
            if not rows or not right:
                raise ModelError(f"{file} does not map numbers of tokens to numbers such as BLOCK_SIZE_M")
            self._read[file] = rows
        return self._read[file]


def _is_plain(kernel: Kernel) -> bool:
    return kernel.function == "experts" and not kernel.configuration["SWAPPED"]


def _configuration(*values: int) -> Mapping[str, int]:
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return dict(zip(names, values, strict=False))


def _default_of_vllm(problem: FusedMoeProblem, amd: bool) -> Mapping[str, int]:
    """Returns the rule of vLLM's get_default_config for 16-bit weights, and for fp8 without blocks."""
    tokens = problem.tokens
    rows = next((rows for most, rows in ((32, 16), (96, 32), (512, 64)) if tokens <= most), 128)
    columns, depth = (64, 128) if tokens <= 64 else (128, 128 if problem.scaled else 64)
    group = 16 if tokens // problem.experts > 128 else 1
    stages = 2 if amd else 4 if tokens <= 32 else 3
    return _configuration(rows, columns, depth, group, 4 if tokens <= 128 else 8, stages)


def _default_of_sglang(problem: FusedMoeProblem) -> Mapping[str, int]:
    """Returns the rule of SGLang's get_default_config for 16-bit weights, with Triton's warps and stages."""
    few = problem.tokens <= problem.experts
    return _configuration(*((16, 32, 64, 1) if few else (64, 64, 32, 8)), 4, 3)


def _folders(variable: str, package: str, inner: str) -> list[Path]:
    """Returns the user's folder and the installed package's, as far as there are such."""
    own, spec = os.environ.get(variable), importlib.util.find_spec(package)
    installed = [Path(spec.origin).parent / inner] if spec is not None and spec.origin else []
    return [*([Path(own)] if own else []), *installed]


def vllm(arch: str) -> ExpertFiles:
    """vLLM's picker: the user's folder, then the package's. Raises ModelError for an unknown device."""
    inner = "model_executor/layers/fused_moe/configs"
    return ExpertFiles("vllm", _device(arch), tuple(_folders("VLLM_TUNED_CONFIG_FOLDER", "vllm", inner)))


def sglang(arch: str) -> ExpertFiles:
    """SGLang's picker: of the user's folder, else the package's, the files for the installed Triton, then
    those for others, newest first. Raises ModelError for an unknown device."""
    (folder, *_) = (*_folders("SGLANG_MOE_CONFIG_DIR", "sglang", "srt/layers/moe/fused_moe_triton"), Path())
    installed = f"triton_{triton_version().replace('.', '_')}" if triton_folder() is not None else ""

    def order(one: Path) -> tuple[bool, list[int]]:
        return one.name == installed, [int(part) for part in one.name.split("_") if part.isdigit()]

    found = sorted(folder.glob("configs/triton_*"), key=order, reverse=True)
    return ExpertFiles("sglang", _device(arch), tuple(found))


def _device(arch: str) -> str:
    device = os.environ.get(_DEVICE_VARIABLE) or DEVICES.get(arch, "")
    if not device:
        raise ModelError(f"no device of {arch} is known: set {_DEVICE_VARIABLE}, such as to NVIDIA_H200")
    return device
