"""What a declaration of a Triton kernel sees of a grouped convolution."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.triton.views import FIRST, OUT, SECOND, Pointer, ProblemView

_NUMBERS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w", "C_per_group", "K_per_group"),
)
_ARRAYS = {"forward": ("x", "w", "y"), "bwd_data": ("dy", "w", "dx"), "bwd_weight": ("x", "dy", "dw")}


class GroupedConvView(ProblemView):
    """A grouped convolution. The numbers are the problem's fields: N, C, K, G, Di, Hi, Wi, Z, Y, X, Do, Ho,
    Wo, stride_d ... dilation_w; C and K are totals over the groups, C_per_group and K_per_group of one group.

    Arrays lie as N[D]HWGC, GK[Z]YXC and N[D]HWGK. x, w, y: of forward; dy, w, dx: of bwd_data; x, dy, dw: of
    bwd_weight.
    """

    op = "grouped_conv"
    numbers = _NUMBERS
    kinds = MappingProxyType({"direction": ("forward",), "dtype": ("bf16", "fp16"), "ndim": (2,)})

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.direction, self.ndim = str(kind.words["direction"]), int(kind.words["ndim"])
        self.arrays = _ARRAYS[self.direction]
        x = self.N * self.Di * self.Hi * self.Wi * self.C
        y = self.N * self.Do * self.Ho * self.Wo * self.K
        w = self.K * self.Z * self.Y * self.X * self.C_per_group
        sizes = {"x": x, "dx": x, "y": y, "dy": y, "w": w, "dw": w}
        for role, name in zip((FIRST, SECOND, OUT), self.arrays, strict=True):
            dtype = self.result_dtype if role == OUT else self.dtype
            setattr(self, name, Pointer(role, dtype, sizes[name]))

    def contiguous(self) -> tuple[str, ...]:
        """Returns the channels, in all groups and in one."""
        return ("C", "K", "C_per_group", "K_per_group")

    @classmethod
    def values(cls, problem: GroupedConvProblem) -> dict[str, int]:
        """Returns the values of `numbers`. 2D convolutions have a depth of 1."""
        found = {name: int(getattr(problem, name)) for name in cls.numbers if "_per_" not in name}
        return found | {f"{name}_per_group": found[name] // found["G"] for name in ("C", "K")}
