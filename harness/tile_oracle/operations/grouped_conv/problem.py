"""Grouped convolution problems: forward, data gradient, weight gradient, in 2D and 3D.

Symbols, as in the published benchmark files: N batch, G groups, C input channels and K output
channels (totals over all groups), (Di) Hi Wi input extents, (Z) Y X filter extents, (Do) Ho Wo output
extents. Padding is symmetric. Tensors are channels-last with the group beside the channel:

    input   NHWGC   (N, Hi, Wi, G, C/G)          NDHWGC   (N, Di, Hi, Wi, G, C/G)
    weight  GKYXC   (G, K/G, Y, X, C/G)          GKZYXC   (G, K/G, Z, Y, X, C/G)
    output  NHWGK   (N, Ho, Wo, G, K/G)          NDHWGK   (N, Do, Ho, Wo, G, K/G)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from tile_oracle.errors import ProblemError
from tile_oracle.problem.fields import FlatProblem

DIRECTIONS = ("forward", "bwd_data", "bwd_weight")
DTYPES = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class GroupedConvProblem(FlatProblem):
    """One grouped convolution: forward, data gradient or weight gradient, in 2D or 3D.

    Raises ProblemError on construction when the dimensions are invalid.
    """

    direction: str
    dtype: str
    ndim: int
    N: int
    C: int
    K: int
    G: int
    Hi: int
    Wi: int
    Y: int
    X: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    Di: int = 1
    Z: int = 1
    stride_d: int = 1
    pad_d: int = 0
    dilation_d: int = 1

    op: ClassVar[str] = "grouped_conv"
    example_id: ClassVar[str] = "forward-bf16-n1-c64-k64-i56x56-f3x3-p1"

    def __post_init__(self) -> None:
        self._require("direction", DIRECTIONS)
        self._require("dtype", DTYPES)
        self._require("ndim", (2, 3))
        numbers = self.field_names()[2:]
        paddings = ("pad_h", "pad_w", "pad_d")
        self._require_integers(name for name in numbers if name not in paddings)
        self._require_integers(paddings, least=0)
        if self.C % self.G or self.K % self.G:
            raise ProblemError(
                f"G = {self.G} must divide C = {self.C} and K = {self.K} (C and K are totals over groups)"
            )
        depth = (self.Di, self.Z, self.stride_d, self.pad_d, self.dilation_d)
        if self.ndim == 2 and depth != (1, 1, 1, 0, 1):
            raise ProblemError(
                "a 2D problem has Di = Z = stride_d = dilation_d = 1 and pad_d = 0; set ndim = 3"
            )
        for axis, name in enumerate(("Do", "Ho", "Wo")):
            if self._output_extent(axis) < 1:
                extent, filter_extent = (("Di", "Z"), ("Hi", "Y"), ("Wi", "X"))[axis]
                raise ProblemError(
                    f"{name} = {self._output_extent(axis)}: the dilated filter {filter_extent} is larger "
                    f"than the padded input {extent}; enlarge the input or the padding"
                )
        self._require_size()

    @cached_property
    def id(self) -> str:
        """Readable and reversible (`from_id`): defaults (G 1, stride 1, pad 0, dilation 1) are left out."""
        parts = [self.direction, self.dtype, f"n{self.N}"]
        if self.G != 1:
            parts.append(f"g{self.G}")
        parts += [f"c{self.C}", f"k{self.K}", "i" + _extents(self.input_spatial), "f" + _extents(self.filter)]
        for letter, values, default in (("s", self.stride, 1), ("p", self.pad, 0), ("d", self.dilation, 1)):
            if any(value != default for value in values):
                parts.append(letter + (str(values[0]) if len(set(values)) == 1 else _extents(values)))
        return "-".join(parts)

    @property
    def title(self) -> str:
        """`1x1, 192 to 388, 512 x 512, n4`: filter, channels, image, batch, and what is unlike a plain layer,
        whose padding keeps the size of the image at stride 1."""
        image = " x ".join(map(str, self.input_spatial))
        parts = ["x".join(map(str, self.filter)), f"{self.C} to {self.K}", image, f"n{self.N}"]
        same = tuple(d * (f - 1) // 2 for f, d in zip(self.filter, self.dilation, strict=True))
        for name, values, plain in (
            ("stride", self.stride, 1),
            ("dilation", self.dilation, 1),
            ("pad", self.pad, same),
        ):
            if values != plain and any(value != plain for value in values):
                few = values[:1] if len(set(values)) == 1 else values
                parts.append(f"{name} {'x'.join(map(str, few))}")
        return ", ".join([*parts, *([f"{self.G} groups"] if self.G != 1 else [])])

    @classmethod
    def id_pattern(cls) -> str:
        """Returns the pattern of ids."""
        return _ID

    @classmethod
    def _of_words(cls, words: Mapping[str, str]) -> Self:
        spatial, filter_ = _numbers(words["i"]), _numbers(words["f"])
        ndim = len(spatial)
        if len(filter_) != ndim:
            raise ProblemError(f"an id has {ndim} image extents and {len(filter_)} filter extents")
        row: dict[str, Any] = {"direction": words["direction"], "dtype": words["dtype"], "ndim": ndim}
        row |= {name.upper(): int(words.get(name, 1)) for name in ("n", "g", "c", "k")}
        axes = "dhw"[3 - ndim :]
        row |= dict(zip(("Di", "Hi", "Wi")[3 - ndim :], spatial, strict=True))
        row |= dict(zip(("Z", "Y", "X")[3 - ndim :], filter_, strict=True))
        for letter, name in (("s", "stride"), ("p", "pad"), ("d", "dilation")):
            if letter in words:
                values = _numbers(words[letter])
                values = values * ndim if len(values) == 1 else values
                row |= {f"{name}_{axis}": value for axis, value in zip(axes, values, strict=False)}
        return cls(**row)

    # ---- shapes -----------------------------------------------------------------------------

    def _output_extent(self, axis: int) -> int:
        i, f, s, p, d = (
            (self.Di, self.Z, self.stride_d, self.pad_d, self.dilation_d),
            (self.Hi, self.Y, self.stride_h, self.pad_h, self.dilation_h),
            (self.Wi, self.X, self.stride_w, self.pad_w, self.dilation_w),
        )[axis]
        return (i + 2 * p - ((f - 1) * d + 1)) // s + 1

    @cached_property
    def Do(self) -> int:
        return self._output_extent(0)

    @cached_property
    def Ho(self) -> int:
        return self._output_extent(1)

    @cached_property
    def Wo(self) -> int:
        return self._output_extent(2)

    def _spatial(self, d: int, h: int, w: int) -> tuple[int, ...]:
        return (h, w) if self.ndim == 2 else (d, h, w)

    @property
    def input_spatial(self) -> tuple[int, ...]:
        return self._spatial(self.Di, self.Hi, self.Wi)

    @property
    def output_spatial(self) -> tuple[int, ...]:
        return self._spatial(self.Do, self.Ho, self.Wo)

    @property
    def filter(self) -> tuple[int, ...]:
        return self._spatial(self.Z, self.Y, self.X)

    @property
    def stride(self) -> tuple[int, ...]:
        return self._spatial(self.stride_d, self.stride_h, self.stride_w)

    @property
    def pad(self) -> tuple[int, ...]:
        return self._spatial(self.pad_d, self.pad_h, self.pad_w)

    @property
    def dilation(self) -> tuple[int, ...]:
        return self._spatial(self.dilation_d, self.dilation_h, self.dilation_w)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """X and dX: (N, [Di,] Hi, Wi, G, C/G)."""
        return (self.N, *self.input_spatial, self.G, self.C // self.G)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """W and dW: (G, K/G, [Z,] Y, X, C/G)."""
        return (self.G, self.K // self.G, *self.filter, self.C // self.G)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Y and dY: (N, [Do,] Ho, Wo, G, K/G)."""
        return (self.N, *self.output_spatial, self.G, self.K // self.G)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(first operand, second operand, result): X W Y, dY W dX, or X dY dW."""
        x, w, y = self.input_shape, self.weight_shape, self.output_shape
        return {"forward": (x, w, y), "bwd_data": (y, w, x), "bwd_weight": (x, y, w)}[self.direction]

    @property
    def gemm_shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the implicit GEMM of one group.

        forward: (N·out, K/G, C/G·filter); bwd_data: (N·in, C/G, K/G·filter);
        bwd_weight: (K/G, C/G·filter, N·out), where in, out, filter are the volumes.
        """
        c, k = self.C // self.G, self.K // self.G
        taps = math.prod(self.filter)
        rows_out = self.N * math.prod(self.output_spatial)
        rows_in = self.N * math.prod(self.input_spatial)
        return {
            "forward": (rows_out, k, c * taps),
            "bwd_data": (rows_in, c, k * taps),
            "bwd_weight": (k, c * taps, rows_out),
        }[self.direction]

    @cached_property
    def flops(self) -> int:
        """2·N·K·out·(C/G)·filter in every direction, padding included, as in the published benchmarks."""
        return 2 * math.prod(self.output_shape) * (self.C // self.G) * math.prod(self.filter)


def _extents(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("x"))


_N = r"[0-9]{1,10}"
_ID = (
    rf"(?P<direction>{'|'.join(DIRECTIONS)})-(?P<dtype>[a-z0-9]+)-n(?P<n>{_N})(?:-g(?P<g>{_N}))?-c(?P<c>{_N})-k(?P<k>{_N})"
    rf"-i(?P<i>{_N}(?:x{_N}){{1,2}})-f(?P<f>{_N}(?:x{_N}){{1,2}})"
    rf"(?:-s(?P<s>{_N}(?:x{_N}){{0,2}}))?(?:-p(?P<p>{_N}(?:x{_N}){{0,2}}))?(?:-d(?P<d>{_N}(?:x{_N}){{0,2}}))?"
)
