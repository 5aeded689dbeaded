"""Vendors' libraries, and an algorithm of one as a loaded kernel. Its "binary" is a small file that describes
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library import cublaslt_pool, cudnn_pool, hipblaslt, miopen, pytorch
from tile_oracle.device.library.cublaslt import Algorithm, CublasLt, CublasProduct
from tile_oracle.device.library.cudnn import Cudnn, of_data
from tile_oracle.device.loaded_run import Launches, LoadedKernel, Run
from tile_oracle.device.runtime.driver import LibraryLaunch
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.libraries.offers import WORKSPACE_BYTES, AlgorithmFile, ProblemOffers
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class _Interface:
    """How a library is used."""

    open: Callable[[Path], Any]
    """Loads it."""
    describe: Callable[[Any, Problem], Any]
    """A problem as it sees it: an object with `prepare(algorithm)`, which returns a
    tile_oracle.device.library.calls.Prepared, and `close()`. Raises Unlaunchable, LibraryFailure."""
    offers: Callable[[Any, Any, int], ProblemOffers]
    """At most so many algorithms for such an object. Raises LibraryFailure."""
    algorithm: Callable[[str], Any]
    """An algorithm from `Offer.data`. Raises ValueError."""
    call: str
    """The function that starts a run."""


_INTERFACES: Mapping[str, _Interface] = {
    "cublaslt": _Interface(CublasLt, CublasProduct, cublaslt_pool.offers_for, Algorithm.of, "cublasLtMatmul"),
    "hipblaslt": _Interface(
        *(hipblaslt.HipblasLt, hipblaslt.HipProduct, hipblaslt.offers_for, hipblaslt.algorithm_of),
        "hipblasLtMatmul",
    ),
    "cudnn": _Interface(Cudnn, cudnn_pool.graph_of, cudnn_pool.offers_for, of_data, "cudnnBackendExecute"),
    "torch": _Interface(pytorch.Pytorch, pytorch.GroupedProduct, pytorch.offers_for, str, pytorch.CALL),
    "miopen": _Interface(
        *(miopen.Miopen, miopen.MiopenConvolution, miopen.offers_for, int),
        "miopenConvolutionImmediate",
    ),
}


class OpenedLibrary:
    """A loaded library, and the latest problem that it was asked for, whose descriptors the kernels share."""

    def __init__(self, name: str, path: str) -> None:
        """Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be
        initialized."""
        if name not in _INTERFACES:
            raise ValueError(f"there is no library {name}")
        self._name, self._interface = name, _INTERFACES[name]
        self._library = self._interface.open(Path(path))
        self.version: str = self._library.version
        self._latest: tuple[str, Any] | None = None

    def _described(self, problem: Problem) -> Any:
        if problem.op not in LIBRARIES[self._name].ops:
            raise Unlaunchable(f"{LIBRARIES[self._name].title} is not asked for {problem.op}")
        if self._latest is None or self._latest[0] != problem.id:
            if self._latest is not None:
                self._latest[1].close()
                self._latest = None
            self._latest = problem.id, self._interface.describe(self._library, problem)
        return self._latest[1]

    def offers(self, problem: Problem, most: int) -> ProblemOffers:
        """At most `most` offers. Raises LibraryFailure."""
        try:
            return self._interface.offers(self._library, self._described(problem), most)
        except Unlaunchable as error:
            return ProblemOffers(why_none=str(error))

    def kernel(self, data: str) -> AlgorithmKernel:
        """Returns the algorithm of `Offer.data`. Raises ValueError."""
        algorithm = self._interface.algorithm(data)
        return AlgorithmKernel(partial(self._run, algorithm))

    def _run(self, algorithm: Any, problem: Problem) -> Run:
        needed, prepare = self._described(problem).prepare(algorithm)
        most = WORKSPACE_BYTES[self._name]
        if needed > most:
            raise Unlaunchable(f"it needs {needed:,} bytes of workspace, {most:,} are the most")

        def launches(*addresses: int) -> Launches:
            start = prepare(*addresses)

            def started(stream: int) -> int:
                start(stream)
                return 0

            return (LibraryLaunch(self._interface.call, started),)

        return Run(needed, f"{needed:,} bytes of workspace", launches)


@dataclass(frozen=True)
class AlgorithmKernel(LoadedKernel):
    """One algorithm. The library keeps its code, and does not say which it launches."""

    run: Callable[[Problem], Run]

    def plan(self, problem: Problem) -> Run:
        return self.run(problem)


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
    return opened.kernel(described.data)


_open = lru_cache(maxsize=4)(OpenedLibrary)
