"""`tile-oracle pool list NAME`: a kernel's fields, and which architectures allow it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tile_oracle.arch import Arch, known_archs, load_arch
from tile_oracle.commands.kinds import kinds_of
from tile_oracle.errors import KernelError
from tile_oracle.kernel import Kernel, kernel_of_kind, parse_kernel_name, tiled
from tile_oracle.operation import operation_named
from tile_oracle.pool import explain_pool_of_kind, list_rule_sets, load_rule_set
from tile_oracle.terminal.text_table import text_table


def kernel_named(args: argparse.Namespace) -> tuple[Kernel, str]:
    """Returns the kernel of a full name, or of a short one if the options name one kind, and its full name as
    given. Raises KernelError."""
    try:
        return parse_kernel_name(args.name), args.name
    except KernelError as error:
        of_kinds = {}
        for kind in kinds_of(args, defaults=False):
            with suppress(KernelError):
                of_kinds[kind] = kernel_of_kind(kind, args.name)
        if not of_kinds:
            raise error from None
    if len(of_kinds) > 1:
        first = next(iter(of_kinds.values()))
        raise KernelError(
            f"{args.name} is the short name of kernels for {len(of_kinds)} kinds of problems: add "
            f"{' and '.join('--' + name for name, _ in next(iter(of_kinds)).fields)}, or give a full name "
            f"such as {first.name}"
        )
    (kernel,) = of_kinds.values()
    return kernel, kernel.name


def kernel_document(kernel: Kernel, archs: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a kernel's fields, and for each architecture whether it is allowed and in which sets, or why
    not.
    archs: all, if none is named."""
    of_archs = {name: _on(kernel, load_arch(name)) for name in archs or known_archs()}
    return {"kernel": kernel.name, "op": kernel.op, "fields": kernel.as_row(), "archs": of_archs}


def _on(kernel: Kernel, arch: Arch) -> dict[str, Any]:
    refusals = arch.refusals(kernel)
    found: dict[str, Any] = {"allowed": not refusals, "refusals": refusals}
    if not refusals:
        found["sets"] = [name for name in list_rule_sets() if _is_in_set(kernel, arch, name)]
        if "pipeline" in operation_named(kernel.op).kernel_fields:
            found["threads"] = arch.workgroup_threads(tiled(kernel))
            found["lds_bytes"] = arch.lds_bytes(tiled(kernel))
    return found


def _is_in_set(kernel: Kernel, arch: Arch, name: str) -> bool:
    covers = load_rule_set(name).covers(kernel.kind, arch.name)
    return covers and kernel in explain_pool_of_kind(kernel.kind, arch, name).accepted


def kernel_lines(document: dict[str, Any], written: str) -> list[str]:
    """Returns a kernel's document as text. written: the name as it was given."""
    lines = [document["kernel"]]
    if written != document["kernel"]:
        lines.append(f"  (written as {written}; the name above has every field)")
    fields = [(f"  {name}", str(value)) for name, value in document["fields"].items()]
    lines += ["", *text_table(fields, right_aligned=()), ""]
    for name, found in document["archs"].items():
        if not found["allowed"]:
            lines += [f"{name:<8} refused", *(f"           {reason}" for reason in found["refusals"])]
            continue
        takes = ""
        if "threads" in found:
            limit = load_arch(name).lds_limit_bytes
            takes = f"{found['threads']:,} threads, {found['lds_bytes']:,} of {limit:,} LDS bytes; "
        sets = ", ".join(found["sets"])
        lines.append(f"{name:<8} allowed; {takes}{f'in the sets {sets}' if sets else 'in no shipped set'}")
    return lines
