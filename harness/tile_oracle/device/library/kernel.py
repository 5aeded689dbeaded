"""An algorithm of a library as a loaded kernel. Its "binary" is a small file that describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cublaslt import Algorithm, CublasLt, Product
from tile_oracle.device.library.cudnn import Cudnn, Graph, Plan, of_data
from tile_oracle.device.library.cudnn_pool import graph_of
from tile_oracle.device.library.hipblaslt import HipblasLt, HipProduct, algorithm_of
from tile_oracle.device.library.miopen import Miopen, MiopenConvolution
from tile_oracle.device.loaded_run import Launches, Run
from tile_oracle.device.runtime.driver import LibraryLaunch
from tile_oracle.problem import Problem
from tile_oracle.vendor.algorithm_file import AlgorithmFile
from tile_oracle.vendor.offers import WORKSPACE_BYTES


class AlgorithmKernel:
    """One algorithm. See tile_oracle.device.loaded_kernel.LoadedKernel."""

    def __init__(self, run: Callable[[Problem], Run]) -> None:
        self._run = run

    def plan(self, problem: Problem) -> Run:
        return self._run(problem)

    def facts(self) -> Mapping[str, int]:
        """Empty: the library does not say which code it launches."""
        return {}

    def unload(self) -> None:
        """Does nothing: the library keeps its code."""


def load_algorithm(path: Path) -> AlgorithmKernel:
    """Raises ValueError for a file that describes no algorithm, OSError and ValueError for a library that
    cannot be loaded or is another one by now, LibraryFailure."""
    try:
        described = msgspec.json.decode(path.read_bytes(), type=AlgorithmFile)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it describes no algorithm: {error}") from None
    opened = _open(described.library, described.path)
    if opened.version != described.version:
        raise ValueError(f"{described.path} is {opened.version}, not {described.version}: start again")
    return AlgorithmKernel(opened.kernel(described.data))


class _OpenedCublasLt:
    """The library and the products that it was asked for, whose descriptors the kernels share."""

    def __init__(self, path: str) -> None:
        self._library = CublasLt(Path(path))
        self._products: dict[str, Product] = {}

    @property
    def version(self) -> str:
        return self._library.version

    def kernel(self, data: str) -> Callable[[Problem], Run]:
        algorithm = Algorithm.of(data)
        return lambda problem: self._run(algorithm, problem)

    def _run(self, algorithm: Algorithm, problem: Problem) -> Run:
        if problem.op != "gemm":
            raise Unlaunchable(f"cuBLASLt multiplies matrices, not {problem.op}")
        if problem.id not in self._products:
            self._products[problem.id] = Product(self._library, problem)
        product = self._products[problem.id]
        code, demands = product.check(algorithm)
        if code:
            raise Unlaunchable(f"cublasLtMatmulAlgoCheck: {self._library.calls.name_of(code)} ({code})")
        needed = _bounded("cublaslt", int(demands.workspace_bytes))
        return _planned(
            "cublasLtMatmul",
            needed,
            lambda a, b, c, scratch: (
                lambda stream: product.start(algorithm, (a, b, c, scratch), needed, stream)
            ),
        )


class _OpenedHipblasLt:
    """The library and the products that it was asked for, whose descriptors the kernels share."""

    def __init__(self, path: str) -> None:
        self._library = HipblasLt(Path(path))
        self._products: dict[str, HipProduct] = {}

    @property
    def version(self) -> str:
        return self._library.version

    def kernel(self, data: str) -> Callable[[Problem], Run]:
        algorithm = algorithm_of(data)
        return lambda problem: self._run(algorithm, problem)

    def _run(self, algorithm: bytes, problem: Problem) -> Run:
        if problem.op != "gemm":
            raise Unlaunchable(f"hipBLASLt multiplies matrices, not {problem.op}")
        if problem.id not in self._products:
            self._products[problem.id] = HipProduct(self._library, problem)
        product = self._products[problem.id]
        if algorithm not in product.ranked:
            raise Unlaunchable("hipBLASLt does not name the algorithm for this problem")
        needed = _bounded("hipblaslt", product.ranked[algorithm])
        return _planned(
            "hipblasLtMatmul",
            needed,
            lambda a, b, c, scratch: (
                lambda stream: product.start(algorithm, (a, b, c, scratch), needed, stream)
            ),
        )


class _OpenedMiopen:
    """The library and the convolutions that it was asked for, whose descriptors the kernels share."""

    def __init__(self, path: str) -> None:
        self._library = Miopen(Path(path))
        self._convolutions: dict[str, MiopenConvolution] = {}

    @property
    def version(self) -> str:
        return self._library.version

    def kernel(self, data: str) -> Callable[[Problem], Run]:
        number = int(data)
        return lambda problem: self._run(number, problem)

    def _run(self, number: int, problem: Problem) -> Run:
        if problem.id not in self._convolutions:
            self._convolutions[problem.id] = MiopenConvolution(self._library, problem)
        convolution = self._convolutions[problem.id]
        needed = _bounded("miopen", convolution.prepare(number))
        return _planned(
            "miopenConvolutionImmediate",
            needed,
            lambda *addresses: lambda stream: convolution.start(number, addresses, needed, stream),
        )


class _OpenedCudnn:
    """The library, and the plans of the problem that it was asked for last."""

    def __init__(self, path: str) -> None:
        self._library = Cudnn(Path(path))
        self._problem = ""
        self._graph: Graph | None = None
        self._plans: dict[str, Plan] = {}

    @property
    def version(self) -> str:
        return self._library.version

    def kernel(self, data: str) -> Callable[[Problem], Run]:
        of_data(data)
        return lambda problem: self._run(data, problem)

    def _run(self, data: str, problem: Problem) -> Run:
        if problem.id != self._problem or self._graph is None:
            self._forget()
            self._graph, self._problem = graph_of(self._library, problem), problem.id
        if data not in self._plans:
            self._plans[data] = self._graph.plan(*of_data(data))
        plan = self._plans[data]
        needed = _bounded("cudnn", plan.workspace_bytes)

        def prepared(*addresses: int) -> Callable[[int], None]:
            pack = plan.pack(addresses[:-1], addresses[-1])
            return lambda stream: plan.start(pack, stream)

        return _planned("cudnnBackendExecute", needed, prepared)

    def _forget(self) -> None:
        """Destroys the plans of another problem, which are large."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        if self._graph is not None:
            self._graph.close()
        self._graph = None


_Opened = _OpenedCublasLt | _OpenedCudnn | _OpenedHipblasLt | _OpenedMiopen


def _planned(call: str, workspace_bytes: int, prepared: Callable[..., Callable[[int], None]]) -> Run:
    """A run of one call.

    prepared: given the addresses of the operands, the output and the workspace, returns what starts the call
    on a stream.
    """

    def launches(*addresses: int) -> Launches:
        start = prepared(*addresses)

        def started(stream: int) -> int:
            start(stream)
            return 0

        return (LibraryLaunch(call, started),)

    return Run(workspace_bytes, f"{workspace_bytes:,} bytes of workspace", launches)


def _bounded(library: str, workspace_bytes: int) -> int:
    most = WORKSPACE_BYTES[library]
    if workspace_bytes > most:
        raise Unlaunchable(f"it needs {workspace_bytes:,} bytes of workspace, {most:,} are the most")
    return workspace_bytes


@lru_cache(maxsize=4)
def _open(library: str, path: str) -> _Opened:
    kinds: dict[str, Callable[[str], _Opened]] = {
        "cublaslt": _OpenedCublasLt,
        "cudnn": _OpenedCudnn,
        "hipblaslt": _OpenedHipblasLt,
        "miopen": _OpenedMiopen,
    }
    if library not in kinds:
        raise ValueError(f"there is no library {library}")
    return kinds[library](path)
