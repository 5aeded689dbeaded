"""Whether an architecture can compute with fp8 operands."""

from __future__ import annotations

from tile_oracle.arch.table import load_arch


def fp8_refusal(arch: str) -> str | None:
    """Why fp8 cannot be checked on the architecture, or None: operands and references are OCP's e4m3."""
    found = load_arch(arch).fp8_format
    if found == "ocp":
        return None
    has = f"reads e4m3 as {found}, in which the same bits are different numbers" if found else "has none"
    return f"dtype 'fp8' has no code for {arch}: operands are OCP's e4m3, and its matrix unit {has}"
