"""`tile-oracle pool list NAME`: a kernel's fields, and which architectures allow it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress

from tile_oracle.arch import Arch, known_archs, load_arch
from tile_oracle.commands.kernel_pools import asked_fields
from tile_oracle.errors import KernelError
from tile_oracle.kernel import Kernel, kernel_of_kind, parse_kernel_name, tiled
from tile_oracle.operation import operation_named
from tile_oracle.pool import explain_pool_of_kind, list_rule_sets, load_rule_set
from tile_oracle.terminal.text_table import text_table


def kernel_named(args: argparse.Namespace) -> tuple[Kernel, str]:
    """The kernel of a full name, or of a short one if the options name one kind, and its full name as given.
    Raises KernelError."""
    try:
        return parse_kernel_name(args.name), args.name
    except KernelError as error:
        of_kinds = {}
        for kind in operation_named(args.op).kinds(asked_fields(args)):
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


def explain_kernel(kernel: Kernel, written: str | None = None, archs: Sequence[str] | None = None) -> str:
    """A kernel's fields, and for each architecture whether it is allowed and in which sets, or why not."""
    lines = [kernel.name]
    if written is not None and written != kernel.name:
        lines.append(f"  (written as {written}; the name above has every field)")
    lines += [""]
    lines += text_table(
        [(f"  {name}", str(getattr(kernel, name))) for name in kernel.as_row()], right_aligned=()
    )
    lines += [""]
    for name in known_archs() if archs is None else archs:
        arch = load_arch(name)
        refusals = arch.refusals(kernel)
        if refusals:
            lines.append(f"{name:<8} refused")
            lines += [f"           {reason}" for reason in refusals]
        else:
            sets = _sets_with(kernel, arch)
            takes = ""
            if "pipeline" in operation_named(kernel.op).kernel_fields:
                takes = (
                    f"{arch.workgroup_threads(tiled(kernel)):,} threads, "
                    f"{arch.lds_bytes(tiled(kernel)):,} of {arch.lds_limit_bytes:,} LDS bytes; "
                )
            lines.append(
                f"{name:<8} allowed; {takes}"
                + (f"in the sets {', '.join(sets)}" if sets else "in no shipped set")
            )
    return "\n".join(lines)


def kernel_document(kernel: Kernel, archs: Sequence[str] | None = None) -> dict[str, object]:
    """`explain_kernel` as JSON."""
    of_archs = {}
    for name in known_archs() if archs is None else archs:
        arch = load_arch(name)
        refusals = arch.refusals(kernel)
        found: dict[str, object] = {"allowed": not refusals, "refusals": refusals}
        if not refusals:
            found["sets"] = _sets_with(kernel, arch)
            if "pipeline" in operation_named(kernel.op).kernel_fields:
                found["threads"] = arch.workgroup_threads(tiled(kernel))
                found["lds_bytes"] = arch.lds_bytes(tiled(kernel))
        of_archs[name] = found
    return {"kernel": kernel.name, "op": kernel.op, "fields": kernel.as_row(), "archs": of_archs}


def _sets_with(kernel: Kernel, arch: Arch) -> list[str]:
    sets = []
    for name in list_rule_sets():
        if not load_rule_set(name).covers(kernel.kind, arch.name):
            continue
        if kernel in explain_pool_of_kind(kernel.kind, arch, name).accepted:
            sets.append(name)
    return sets
