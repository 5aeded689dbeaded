"""Triton's names of the data types of operands."""

from __future__ import annotations

from collections.abc import Mapping

POINTED: Mapping[str, str] = {
    **{"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "int32": "i32"},
    **{"fp8": "fp8e4nv", "fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5", "fp4_e2m1": "u8", "e8m0": "u8"},
}
"""Data type of an operand -> its name in a kernel's signature."""

LANGUAGE: Mapping[str, str] = {
    **{"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "i32": "int32"},
    **{"fp8e4nv": "float8e4nv", "fp8e5": "float8e5", "u8": "uint8"},
}
"""Name in a kernel's signature -> name in triton.language."""
