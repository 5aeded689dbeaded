"""A library's algorithms as a kernel source of a target."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future
from pathlib import Path

from tile_oracle.compiling.binary import BuildResult
from tile_oracle.kernel import Kernel
from tile_oracle.libraries.offers import AlgorithmFile, Offers
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.targets.target import Source, finished


class Algorithms(Source):
    """What a library offers. A file that describes the algorithm stands for a binary."""

    def __init__(self, offers: Offers, arch: str) -> None:
        self.implementation, self.identity = offers.library, f"{offers.library} {offers.version}"
        self._arch = arch
        # Not in the build folder: kernels built elsewhere may lie where nothing can be written.
        self._folder = tempfile.TemporaryDirectory(prefix="tile-oracle-algorithms-")
        self._files: dict[Kernel, AlgorithmFile] = {}
        for problem_id, of_problem in offers.of_problem.items():
            kind = problem_from_id(problem_id).kind
            for offer in of_problem.offers:
                kernel = offer.kernel(kind, offers.library)
                self._files[kernel] = AlgorithmFile(
                    offers.library, offers.path, offers.version, kernel.name, offer.data
                )

    def declares(self, kernel: Kernel) -> bool:
        return kernel.source == self.implementation

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        return None if kernel in self._files else f"{self.implementation}: it offers no such algorithm"

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """Returns the algorithm's file. Raises BuildError when it cannot be written."""
        file = self._files.get(kernel)
        if file is None:
            log = f"{self.implementation} offers no such algorithm"
            return finished(BuildResult(kernel, "build_error", None, log))
        binary = file.binary(Path(self._folder.name), self._arch)
        return finished(BuildResult(kernel, "ok", binary))

    def close(self) -> None:
        self._folder.cleanup()
