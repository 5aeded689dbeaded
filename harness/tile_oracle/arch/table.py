"""Reads the architecture table, kernels/arch_specs.json. No other module reads it.

An architecture belongs to a kernel family (`ck_tile`, `cpu`), which has the common requirements of pipelines,
epilogues and options. A family may extend one above it: its pipelines are added, its other keys replace. The
architecture adds waves, warp tiles, LDS and hardware figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.arch.arch import Arch
from tile_oracle.errors import RuleError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.json_tree import shown
from tile_oracle.files.sealed_json import read_object, typed
from tile_oracle.operation import Kind
from tile_oracle.terminal.did_you_mean import did_you_mean


def known_archs() -> tuple[str, ...]:
    """Returns the names of the architectures in kernels/arch_specs.json, in its order."""
    return tuple(_shipped())


def load_arch(name: str) -> Arch:
    """Returns the architecture of this name. Raises RuleError for an unknown name."""
    archs = _shipped()
    arch = archs.get(name)
    if arch is None:
        known = f"known: {', '.join(archs)}"
        # Another number is another architecture, not a misspelt one.
        hint = known if re.fullmatch(r"sm_\d+", name) else did_you_mean(name, archs, known)
        raise RuleError(f"architecture {shown(name)} is not in kernels/arch_specs.json; {hint}")
    return arch


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Arch]:
    return read_archs(data_folder("kernels") / "arch_specs.json")


def read_archs(path: Path) -> Mapping[str, Arch]:
    """Reads all architectures of a file like kernels/arch_specs.json. Raises RuleError, which names the
    place."""
    table = read_object(path, RuleError)
    families: dict[str, dict[str, Any]] = {}
    for name, row in table["kernel_families"].items():
        base = row.pop("extends", None)
        if base is not None and base not in families:
            place = f"{path.name}: kernel_families.{name}"
            raise RuleError(f"{place} extends {shown(str(base))}, which is not a family above it")
        of = families.get(base, {})
        pipelines = {**of.get("pipelines", {}), **row.get("pipelines", {})}
        families[name] = {**of, **row, "name": name, "pipelines": pipelines}
    found: dict[str, Arch] = {}
    for name, row in table["archs"].items():
        place = f"{path.name}: archs.{name}"
        if row["kernels"] not in families:
            raise RuleError(f"{place}: {shown(row['kernels'])} is not one of {', '.join(families)}")
        if unknown := row.keys() - {"about", *(field.name for field in fields(Arch))}:
            raise RuleError(f"{place}: {min(unknown)} is not a field of tile_oracle.arch.Arch")
        whole = {
            **row,
            "name": name,
            "kernels": families[row["kernels"]],
            "element_bytes": table["element_bytes"],
            "preshuffle_warp_tiles": table["preshuffle_warp_tiles"].get(name, {}),
        }
        found[name] = typed(whole, Arch, place, RuleError)
    return found


_SUM_BITS = 24
"""Of fp32, in which the check of the operation gemm lets products of fp8 add up."""


def fp8_refusal(kind: Kind, arch: str) -> str | None:
    """Returns why products of a kind cannot be checked on the architecture, or None. Formats are OCP's."""
    dtype = kind.dtype
    if not dtype.startswith(("fp8", "fp4")):
        return None
    found = load_arch(arch)
    why = f"dtype {dtype!r} has no code for {arch}: "
    if kind.words.get("scale") == "mx" and not found.mx_formats:
        return f"{dtype} with MX scales has no code for {arch}: its matrix unit does not multiply MX formats"
    if found.fp8_format == "fnuz":
        return (
            f"{why}operands are OCP's e4m3 or e5m2, and its matrix unit reads e4m3 as fnuz, in which the "
            "same bits are different numbers"
        )
    if not found.fp8_format:
        return f"{why}kernels/arch_specs.json states no fp8 format of its matrix unit"
    if dtype == "fp8" and found.fp8_sum_bits < _SUM_BITS:
        return (
            f"{why}its matrix unit multiplies fp8 and adds up in {found.fp8_sum_bits} bits, but gemm's check "
            f"demands {_SUM_BITS}; the operation scaled_gemm has a check and kernels for it"
        )
    return None
