"""What happens to a sum of products before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LAST = ("mul", "residual")
"""What is done with the matrix D after the activation: multiplied, added."""


@dataclass(frozen=True)
class Epilogue:
    """C = activation(A B + bias), then times or plus D.

    activation: "", gelu (torch's approximate="none", with erf), gelu_tanh (approximate="tanh") or silu.
    last: "" without D.
    """

    bias: bool
    activation: str
    last: str


def _read(name: str) -> Epilogue:
    words = name.removeprefix("none").split("_")
    activation = "_".join(one for one in words if one not in ("bias", *LAST))
    return Epilogue("bias" in words, activation, words[-1] if words[-1] in LAST else "")


EPILOGUES: Mapping[str, Epilogue] = {
    name: _read(name)
    for name in (
        *("none", "bias", "gelu_tanh", "bias_gelu", "bias_gelu_tanh"),
        *("silu_mul", "gelu_tanh_mul", "residual", "bias_residual"),
    )
}
"""Name -> its parts."""
