"""Inspects the built library of a CK Tile kernel without loading it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tile_oracle.compiling.ck_tile.offload_bundle import code_objects
from tile_oracle.compiling.code_object import CodeObject, KernelFacts, inspect_binary, read_code_object
from tile_oracle.compiling.elf import DAMAGED, FAT_SECTION, Elf
from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as

EXPORTS = ("to_ck_abi_version", "to_ck_kernel", "to_ck_plan", "to_ck_launch")
"""The functions that kernels/ck_tile/abi.h declares."""

_ENTRY = "to_ck_entry"


def code_object_in(path: Path, arch: str) -> CodeObject:
    """Returns the code object for an architecture in a host library. Raises BuildError when there is none."""
    with disk_errors_as(BuildError, f"{path} cannot be read"):
        data = path.read_bytes()
    return read_code_object(embedded_code(data, path, arch), str(path))


def embedded_code(data: bytes, path: Path, arch: str) -> bytes:
    """Returns the code object for an architecture, or the first for a family (gfx9), in the content of a host
    library. Raises BuildError when there is none."""
    try:
        found = code_objects(Elf(data).body(FAT_SECTION))
    except KeyError:
        raise BuildError(f"{path} contains no GPU code: it has no section {FAT_SECTION}") from None
    except DAMAGED as error:
        raise BuildError(f"{path}: its GPU code cannot be read: {error}") from None
    for name, code in found.items():
        # The target name may have features: gfx950:sramecc+:xnack-.
        target = name.partition("--")[2].partition(":")[0]
        if target == arch or (arch == "gfx9" and target.startswith(arch)):
            return code
    raise BuildError(f"{path} contains code for {', '.join(found) or 'no GPU'}, not for {arch}")


def instances(code: CodeObject) -> tuple[KernelFacts, ...]:
    """Returns the kernel's instances: one for each tail if the loop's tail is a template argument."""
    return tuple(facts for name, facts in sorted(code.kernels.items()) if _ENTRY in name)


def most_demanding(found: Iterable[KernelFacts]) -> KernelFacts:
    """Returns the largest value of each fact over all instances. Raises ValueError when there is none."""
    first, *others = found
    numbers = [name for name in KernelFacts.__struct_fields__ if name != "name"]
    most = {name: max(getattr(facts, name) for facts in (first, *others)) for name in numbers}
    return msgspec.structs.replace(first, name=_ENTRY, **most)


def what_is_wrong_with_library(path: Path, arch: str) -> str | None:
    """Returns why a library cannot be used: damaged, without an export, or without the kernel's code."""
    missing = [name for name in EXPORTS if name not in inspect_binary(path).exports]
    if missing:
        return f"the library does not export {', '.join(missing)}"
    try:
        code = code_object_in(path, arch)
    except BuildError as error:
        return str(error)
    return None if instances(code) else f"the code for {arch} holds no kernel {_ENTRY}"
