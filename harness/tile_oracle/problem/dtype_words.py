"""What other programs call the data types."""

from __future__ import annotations

_WORDS = {
    "bf16": ("bf16", "bfloat16", "bf16_r", "bhalf"),
    "fp16": ("fp16", "float16", "f16", "f16_r", "half", "h"),
    "fp32": ("fp32", "float32", "f32", "f32_r", "float", "s"),
    "fp8": ("fp8", "fp8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "f8_r", "f8_fnuz_r", "f8_ocp_r"),
}
_NAMED = {word: ours for ours, words in _WORDS.items() for word in words}


def dtype_named(text: str) -> str:
    """Returns our name of a data type; the text itself, in lower case, where we have none."""
    lower = text.strip().lower().removeprefix("torch.")
    return _NAMED.get(lower, lower)
