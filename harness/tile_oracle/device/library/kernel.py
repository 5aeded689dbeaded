"""An algorithm of a library as a loaded kernel. Its "binary" is a small file that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cublaslt import Algorithm, CublasLt, Product
from tile_oracle.device.loaded_run import Launches, Run
from tile_oracle.device.runtime.driver import LibraryLaunch
from tile_oracle.problem import Problem
from tile_oracle.vendor.algorithm_file import AlgorithmFile
from tile_oracle.vendor.offers import WORKSPACE_BYTES


class CublasLtKernel:
    """One algorithm of cuBLASLt. See tile_oracle.device.loaded_kernel.LoadedKernel."""

    def __init__(self, described: AlgorithmFile) -> None:
        """Raises OSError and ValueError for a library that cannot be loaded, LibraryFailure."""
        self._opened = _opened(described.path)
        self._library = self._opened.library
        if self._library.version != described.version:
            found = self._library.version
            raise ValueError(f"{described.path} is {found}, not {described.version}: start again")
        self._algorithm = Algorithm.of(described.data)

    def plan(self, problem: Problem) -> Run:
        if problem.op != "gemm":
            raise Unlaunchable(f"cuBLASLt multiplies matrices, not {problem.op}")
        product = self._opened.product(problem)
        code, demands = product.check(self._algorithm)
        if code:
            raise Unlaunchable(f"cublasLtMatmulAlgoCheck: {self._library.calls.name_of(code)} ({code})")
        workspace_bytes = int(demands.workspace_bytes)
        if workspace_bytes > WORKSPACE_BYTES:
            raise Unlaunchable(
                f"it needs {workspace_bytes:,} bytes of workspace, {WORKSPACE_BYTES:,} are the most"
            )

        def launches(first: int, second: int, out: int, scratch: int) -> Launches:
            def start(stream: int) -> int:
                product.start(self._algorithm, (first, second, out, scratch), workspace_bytes, stream)
                return 0

            return (LibraryLaunch("cublasLtMatmul", start),)

        return Run(workspace_bytes, f"{workspace_bytes:,} bytes of workspace", launches)

    def facts(self) -> Mapping[str, int]:
        """Empty: the library does not say which code it launches."""
        return {}

    def unload(self) -> None:
        """Does nothing: the library keeps its code."""


class _Opened:
    """The library and the products that it was asked for, whose descriptors the kernels share."""

    def __init__(self, path: str) -> None:
        self.library = CublasLt(Path(path))
        self._products: dict[str, Product] = {}

    def product(self, problem: Problem) -> Product:
        """Raises Unlaunchable, LibraryFailure."""
        if problem.id not in self._products:
            self._products[problem.id] = Product(self.library, problem)
        return self._products[problem.id]


_opened = lru_cache(maxsize=4)(_Opened)


def load_algorithm(path: Path) -> CublasLtKernel:
    """Raises ValueError for a file that describes no algorithm, and as CublasLtKernel does."""
    try:
        described = msgspec.json.decode(path.read_bytes(), type=AlgorithmFile)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it describes no algorithm: {error}") from None
    return CublasLtKernel(described)
