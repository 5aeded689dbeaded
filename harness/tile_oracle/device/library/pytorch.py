"""PyTorch's grouped product, torch._grouped_mm, for products of experts.

It multiplies rows that are sorted by expert. Timed are the gathering of A's rows, the product, the factors of
`down`, and the scattering to the pairs' places. Which row is whose is read from the routing before, as the
lists of other kernels are made before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tile_oracle.device.library.calls import LibraryFailure, Prepared
from tile_oracle.libraries.offers import ProblemOffers

CALL = "torch._grouped_mm"
_STORED = {2: "<i2", 4: "<i4"}
"""Bytes of an element -> what PyTorch is told that memory holds, before it views it as a type."""


class Pytorch:
    """The imported package. path: of its library, which the package finds by itself."""

    def __init__(self, path: Path) -> None:
        """Raises OSError without the package, ValueError without the function."""
        try:
            self.torch = importlib.import_module("torch")
        except ImportError as error:
            raise OSError(f"{path}: {error}") from None
        if not hasattr(self.torch, "_grouped_mm"):
            raise ValueError(f"PyTorch {self.torch.__version__} has no {CALL}")
        self.version = str(self.torch.__version__)

    def at(self, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns a tensor that shares device memory."""
        stored = {"shape": shape, "typestr": _STORED[dtype.itemsize], "data": (address, False), "version": 3}
        memory = type("Memory", (), {"__cuda_array_interface__": stored})()
        return self.torch.as_tensor(memory, device="cuda").view(dtype)


class GroupedProduct:
    """A product of experts."""

    def __init__(self, library: Pytorch, problem: Any) -> None:
        """problem: see operations.fused_moe.problem."""
        self._library, self._problem = library, problem

    def prepare(self, algorithm: str) -> Prepared:
        """Returns its runs. PyTorch's allocator has their memory."""
        return 0, self._started

    def _started(self, *addresses: int) -> Callable[[int], None]:
        p, torch, at = self._problem, self._library.torch, self._library.at
        a, b, routing, *weights, out = addresses[:-1]
        run = grouped(
            torch,
            p,
            at(a, (p.tokens * p.rows_of_a, p.K), torch.bfloat16),
            at(b, (p.experts, p.N, p.K), torch.bfloat16),
            at(routing, p.operand_shapes[2], torch.int32)[: p.pairs],
            [at(one, (p.pairs, 1), torch.float32) for one in weights],
            at(out, (p.pairs, p.N), torch.bfloat16),
        )

        def start(stream: int) -> None:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                try:
                    run()
                except RuntimeError as error:
                    raise LibraryFailure(CALL, 1, str(error).splitlines()[0]) from None

        return start

    def close(self) -> None:
        """Frees what PyTorch keeps."""
        self._library.torch.cuda.empty_cache()


def grouped(
    torch: Any, p: Any, a: Any, b: Any, chosen: Any, weights: Sequence[Any], result: Any
) -> Callable[[], None]:
    """Returns what computes the result.

    a: (rows, K). b: (experts, N, K). chosen: the pairs' experts. weights: none, or those of pairs, of shape
    (pairs, 1). result: (pairs, N).
    """
    order = torch.argsort(chosen, stable=True)
    offsets = torch.bincount(chosen, minlength=p.experts).cumsum(0).int()
    rows, columns = order * p.rows_of_a // p.topk, b.transpose(1, 2)
    factors = [one[order].to(a.dtype) for one in weights]
    gathered = torch.empty((p.pairs, p.K), device=a.device, dtype=a.dtype)

    def run() -> None:
        torch.index_select(a, 0, rows, out=gathered)
        product = torch._grouped_mm(gathered, columns, offs=offsets)
        for one in factors:
            product *= one
        result.index_copy_(0, order, product)

    return run


def offers_for(library: Pytorch, product: GroupedProduct, most: int) -> ProblemOffers:
    """Returns the one algorithm that there is."""
    return ProblemOffers.ranked("torch", [("grouped_mm", "", 0)], most)
