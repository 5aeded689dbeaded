"""Origami, the analytical model of hipBLASLt and of PyTorch's templates, for kernels with a tile.

It needs ROCm's Python module `origami`. The kernels of the pool are its configurations, so that nothing is
mapped; of kernels with one tile it cannot tell apart, the one whose name sorts first comes first. Without a
GPU it calculates with the figures of tile-oracle's own architecture table.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.kernel import Kernel
from tile_oracle.pickers.picker import configuration_of, has_a_tile
from tile_oracle.problem import Problem

_MODULE = "origami"
_DISTRIBUTIONS = ("origami", "rocm-origami")
_DTYPES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp8": "f8"}
_HINTS = ((0, 0), (4, 0), (0, 4))
"""Cache hints of A and B: for few rows or columns it counts only tiles that load the other matrix past the
caches, a choice that kernels here do not have."""
_TILE = ("tile_m", "tile_n", "tile_k")
_INSTRUCTION = ("warp_tile_m", "warp_tile_n", "warp_tile_k")

Tile = tuple[int, ...]


@dataclass(frozen=True)
class Origami:
    """The picker for one architecture."""

    arch: str
    name: str = "origami"
    maps: bool = False

    @property
    def identity(self) -> str:
        """The module's version, and whose figures it calculates with."""
        found = "of unknown version"
        for name in _DISTRIBUTIONS:
            with suppress(PackageNotFoundError):
                found = version(name)
        return f"origami {found}, {self.arch}, {self._hardware[1]}"

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Kernel]:
        """As Asked.pick: the pool's kernels with a tile, by predicted time. None for other operations."""
        dtype = _DTYPES.get(problem.dtype)
        if problem.op != "gemm" or dtype is None:
            return ()
        by_tile: dict[Tile, list[Kernel]] = {}
        for kernel in pool:
            if has_a_tile(kernel):
                values = configuration_of(kernel)
                by_tile.setdefault(tuple(int(values[name]) for name in _TILE), []).append(kernel)
        configs = [
            self._config(tile, kernels[0], dtype, hints)
            for tile, kernels in by_tile.items()
            for hints in _HINTS
        ]
        if not configs:
            return ()
        try:
            ranked = self._module.rank_configs(self._problem(problem, dtype), self._hardware[0], configs)
        except RuntimeError as error:
            if "No valid config" in str(error):
                return ()
            raise
        tiles = dict.fromkeys((one.config.mt.m, one.config.mt.n, one.config.mt.k) for one in ranked)
        return [one for tile in tiles for one in sorted(by_tile[tile], key=lambda kernel: kernel.name)]

    def _problem(self, problem: Problem, dtype: str) -> Any:
        module, layout = self._module, str(getattr(problem, "layout", "rcr"))
        found = module.problem_t()
        found.size = module.dim3_t(*(int(getattr(problem, name)) for name in "MNK"))
        found.batch = 1
        found.a_transpose = module.transpose_t.T if layout[0] == "r" else module.transpose_t.N
        found.b_transpose = module.transpose_t.N if layout[1] == "c" else module.transpose_t.T
        for name in ("a_dtype", "b_dtype", "c_dtype", "d_dtype", "mi_dtype"):
            setattr(found, name, module.string_to_datatype(dtype))
        return found

    def _config(self, tile: Tile, kernel: Kernel, dtype: str, hints: tuple[int, int]) -> Any:
        module = self._module
        one = module.config_t()
        one.mt = module.dim3_t(*tile)
        own = [getattr(kernel, name, None) for name in _INSTRUCTION]
        if all(own):
            one.mi = module.dim3_t(*own)
        else:  # a Triton kernel's instruction is its compiler's choice: 16 x 16 wherever there is one
            valid = self._hardware[0].get_valid_matrix_instructions(module.string_to_datatype(dtype))
            known = [(mi.m, mi.n, mi.k) for mi in valid]
            square = [mi for mi in known if mi[:2] == (16, 16)]
            one.mi = module.dim3_t(*max(square or known, key=lambda mi: mi[2]))
        one.occupancy = 1
        one.cache_hints_a, one.cache_hints_b = hints
        return one

    @cached_property
    def _module(self) -> Any:
        return importlib.import_module(_MODULE)

    @cached_property
    def _hardware(self) -> tuple[Any, str]:
        module = self._module
        try:
            return module.get_hardware_for_device(0), "of the GPU"
        except RuntimeError:
            own = load_arch(self.arch).hardware
            l2_bytes = own.l2_cache_kb * max(1, own.num_xcd) << 10
            figures = (own.num_cus, own.lds_capacity_bytes, l2_bytes, own.max_clock_mhz * 1000)
            arch = getattr(module.architecture_t, self.arch)
            return module.get_hardware_for_arch(arch, *figures), "of the architecture table"


def picker(arch: str) -> Origami:
    """Returns the picker for an architecture. Raises ModelError without the module."""
    if importlib.util.find_spec(_MODULE) is None:
        raise ModelError(
            "the picker origami needs ROCm's Python module origami: pip install rocm-origami, with ROCm"
        )
    if not arch.startswith("gfx"):
        raise ModelError(f"the picker origami is for AMD's architectures, not {arch}")
    return Origami(arch)
