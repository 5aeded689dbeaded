"""Reads the architecture table, kernels/arch_specs.json. No other module reads it.

An architecture belongs to a kernel family (`ck_tile`, `cpu`), which has the common requirements of pipelines,
epilogues and options. The architecture adds waves, warp tiles, LDS and hardware figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path

from tile_oracle.arch.arch import Arch
from tile_oracle.arch.specs import (
    OPTIONS,
    ComputeUnit,
    Hardware,
    KernelFamily,
    Option,
    Peak,
    Pipeline,
    RegisterLimit,
    Triple,
)
from tile_oracle.errors import RuleError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.json_tree import JsonTree, shown
from tile_oracle.kernel import EPILOGUES, SCHEDULERS
from tile_oracle.kernel.fields import triple
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.terminal.did_you_mean import did_you_mean

_BUFFERING = ("optional", "required", "refused")
_FP8_FORMATS = ("ocp", "fnuz")


def known_archs() -> tuple[str, ...]:
    """The names of the architectures in kernels/arch_specs.json, in its order."""
    return tuple(_shipped())


def load_arch(name: str) -> Arch:
    """The architecture of this name. Raises RuleError for an unknown name."""
    archs = _shipped()
    arch = archs.get(name)
    if arch is None:
        hint = did_you_mean(name, archs, f"known: {', '.join(archs)}")
        raise RuleError(f"architecture {shown(name)} is not in kernels/arch_specs.json; {hint}")
    return arch


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Arch]:
    return read_archs(data_folder("kernels") / "arch_specs.json")


def read_archs(path: Path) -> Mapping[str, Arch]:
    """Reads all architectures of a file like kernels/arch_specs.json. Raises RuleError, which names the
    place."""
    top = JsonTree.read(path).known_members(
        ("element_bytes", "accumulate", "kernel_families", "archs"), ("about", "preshuffle_warp_tiles")
    )
    element_bytes = {dtype: size.number() for dtype, size in top["element_bytes"].members().items()}
    for dtype in _convolution("dtype"):
        if dtype not in element_bytes:
            raise top["element_bytes"].error(f"the size of {dtype} is missing")
    for types, accumulator in top["accumulate"].members().items():
        accumulator.text(element_bytes)
        if types not in element_bytes and any(t not in element_bytes for t in types.split("_")):
            raise top["accumulate"].error(f"{shown(types)} names a type that element_bytes lacks")
    families = {name: _read_family(name, tree) for name, tree in top["kernel_families"].members().items()}
    combinations = tuple(top["accumulate"].members())
    archs = {
        name: _read_arch(name, tree, families, element_bytes, combinations)
        for name, tree in top["archs"].members().items()
    }
    if "preshuffle_warp_tiles" in top:
        for name, tiles in top["preshuffle_warp_tiles"].known_members((), tuple(archs)).items():
            listed = _warp_tiles(tiles, combinations)
            archs[name] = replace(archs[name], preshuffle_warp_tiles=listed)
    return archs


def _warp_tiles(tree: JsonTree, combinations: tuple[str, ...]) -> dict[str, tuple[Triple, ...]]:
    return {
        types: tuple(item.triple() for item in tiles.items())
        for types, tiles in tree.known_members((), combinations).items()
    }


def _read_family(name: str, tree: JsonTree) -> KernelFamily:
    keys = ("pipelines", "epilogues", "vectors", "paddings", "options")
    members = tree.known_members(keys, ("about",))
    pipelines = {}
    for pipeline, demands in members["pipelines"].members().items():
        demand = demands.known_members(("ops", "schedulers", "double_smem_buffer", "staged"))
        pipelines[pipeline] = Pipeline(
            ops=demand["ops"].texts(operation_names()),
            schedulers=demand["schedulers"].texts(SCHEDULERS),
            double_smem_buffer=demand["double_smem_buffer"].text(_BUFFERING),
            staged=demand["staged"].texts(("a", "b")),
        )
    options = {}
    for option, tree_ in members["options"].known_members(OPTIONS).items():
        part = tree_.known_members(("directions", "why"), ("values",))
        options[option] = Option(
            directions=part["directions"].texts(_convolution("direction")),
            values=part["values"].integers(1) if "values" in part else (),
            why=part["why"].text(),
        )
    if not options["num_groups_to_merge"].values:
        raise members["options"].error("num_groups_to_merge must list its values")
    vectors = members["vectors"].known_members(("why",), ("fixed", "max_bytes", "whole_loads"))
    if ("fixed" in vectors) == ("max_bytes" in vectors):
        raise members["vectors"].error("needs either 'fixed' or 'max_bytes'")
    return KernelFamily(
        name=name,
        pipelines=pipelines,
        epilogues=members["epilogues"].texts(EPILOGUES),
        options=options,
        fixed_vectors=vectors["fixed"].triple() if "fixed" in vectors else None,
        max_vector_bytes=vectors["max_bytes"].integer(1) if "max_bytes" in vectors else 0,
        whole_loads=vectors["whole_loads"].flag() if "whole_loads" in vectors else False,
        vectors_why=vectors["why"].text(),
        paddings_may_be_off=members["paddings"].known_members(("may_be_off",))["may_be_off"].flag(),
    )


def _read_arch(
    name: str,
    tree: JsonTree,
    families: Mapping[str, KernelFamily],
    element_bytes: Mapping[str, float],
    combinations: tuple[str, ...],
) -> Arch:
    keys = ("family", "kernels", "hardware", "lds", "max_workgroup_threads", "waves", "warp_tiles")
    members = tree.known_members(
        keys, ("about", "peak", "pipelines_refused", "registers", "workgroups", "fp8_format")
    )
    kernels = families[members["kernels"].text(families)]
    figures = members["hardware"].known_members(tuple(field.name for field in fields(Hardware)))
    hardware = Hardware(
        product=figures.pop("product").text(), **{key: value.integer() for key, value in figures.items()}
    )
    waves = tuple(item.triple() for item in members["waves"].items())
    most_threads = members["max_workgroup_threads"].integer(1)
    for m, n, k in waves:
        if m * n * k * hardware.wavefront_size > most_threads:
            raise members["waves"].error(f"{triple((m, n, k))} is more than {most_threads:,} threads")
    lds = members["lds"].known_members(("limit_bytes", "why"), ("element_bytes",))
    refused = members["pipelines_refused"].members() if "pipelines_refused" in members else {}
    for pipeline in refused:
        if pipeline not in kernels.pipelines:
            raise members["pipelines_refused"].error(f"{kernels.name} has no pipeline {shown(pipeline)}")
    lds_limit_bytes = lds["limit_bytes"].integer()
    held = members.get("workgroups")
    return Arch(
        name=name,
        family=members["family"].text(),
        hardware=hardware,
        kernels=kernels,
        element_bytes=element_bytes,
        waves=waves,
        most_threads=most_threads,
        warp_tiles=_warp_tiles(members["warp_tiles"], combinations),
        lds_limit_bytes=lds_limit_bytes,
        lds_element_bytes=lds["element_bytes"].integer(1) if "element_bytes" in lds else None,
        lds_why=lds["why"].text(),
        pipelines_refused={pipeline: why.text() for pipeline, why in refused.items()},
        register_limit=_read_registers(members["registers"], kernels) if "registers" in members else None,
        peak=_read_peak(members["peak"], tuple(element_bytes)) if "peak" in members else None,
        compute_unit=None if held is None else _read_compute_unit(held, hardware, lds_limit_bytes),
        fp8_format=members["fp8_format"].text(_FP8_FORMATS) if "fp8_format" in members else "",
    )


def _read_compute_unit(tree: JsonTree, hardware: Hardware, lds_limit_bytes: int) -> ComputeUnit:
    members = tree.known_members(("slots", "lds_step_bytes", "lds_own_bytes", "waves_together", "why"))
    return ComputeUnit(
        lanes=hardware.wavefront_size,
        simds=hardware.simds_per_cu,
        waves_per_simd=hardware.max_waves_per_cu // hardware.simds_per_cu,
        registers=hardware.registers_per_lane,
        register_step=hardware.register_granule,
        lds_bytes=max(lds_limit_bytes, hardware.lds_capacity_bytes),
        lds_step=members["lds_step_bytes"].integer(1),
        lds_own_bytes=members["lds_own_bytes"].integer(),
        workgroups=members["slots"].integer(1),
        waves_together=members["waves_together"].flag(),
    )


def _convolution(field: str) -> tuple[str, ...]:
    """The values of a field in the kinds of convolution."""
    return tuple(map(str, operation_named("grouped_conv").kind_fields[field]))


def _read_peak(tree: JsonTree, dtypes: tuple[str, ...]) -> Peak:
    members = tree.known_members(("flops_a_cu_and_clock", "memory_gb_s", "why"))
    flops = members["flops_a_cu_and_clock"].known_members((), dtypes)
    return Peak(
        {dtype: value.integer(1) for dtype, value in flops.items()}, members["memory_gb_s"].integer(1)
    )


def _read_registers(tree: JsonTree, kernels: KernelFamily) -> RegisterLimit:
    members = tree.known_members(("most", "a_thread", "a_unit", "pipelines", "why"))
    return RegisterLimit(
        most=members["most"].integer(1),
        a_thread=members["a_thread"].integer(1),
        a_unit=members["a_unit"].integer(1),
        pipelines=members["pipelines"].texts(tuple(kernels.pipelines)),
        why=members["why"].text(),
    )
