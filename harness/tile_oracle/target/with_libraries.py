"""A target that also runs algorithms that vendors' libraries offer."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from tile_oracle.build.binary import BuildResult
from tile_oracle.build.builder import Builder
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.target.base import InParts, Target, part_of, parts_of
from tile_oracle.vendor.algorithm_file import AlgorithmFile
from tile_oracle.vendor.libraries import library_of
from tile_oracle.vendor.offers import Offers


class WithLibraries(InParts):
    """See tile_oracle.target.base.Target. All but the libraries' algorithms is the other target's."""

    def __init__(self, target: Target, offers: Sequence[Offers]) -> None:
        self._target, self._offers = target, tuple(offers)
        self.name, self.arch = target.name, target.arch
        self.device_module, self.device_name = target.device_module, target.device_name
        self.implementation = target.implementation
        self.builder: Builder | None = target.builder
        # Not in the build folder: kernels built elsewhere may lie where nothing can be written.
        self._folder = tempfile.TemporaryDirectory(prefix="tile-oracle-algorithms-")
        self._files = {kernel: file for one in self._offers for kernel, file in _files(one)}

    @property
    def parts(self) -> tuple[Target, ...]:
        return parts_of(self._target)

    def part_of(self, kernel: Kernel) -> Target:
        return part_of(self._target, kernel)

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        if library_of(kernel) is None:
            return self._target.refusal(kernel, problem)
        return None if kernel in self._files else f"{library_of(kernel)}: it offers no such algorithm"

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        if library_of(kernel) is None:
            return self._target.build(kernel)
        future: Future[BuildResult] = Future()
        try:
            binary = self._files[kernel].binary(Path(self._folder.name), self.arch)
            future.set_result(BuildResult(kernel, "ok", binary, "", 0.0, cached=True))
        except KeyError:
            log = f"{library_of(kernel)} offers no such algorithm"
            future.set_result(BuildResult(kernel, "build_error", None, log, 0.0, cached=True))
        except BuildError as error:
            future.set_exception(error)
        return future

    def source_identity(self) -> str:
        digest = hashlib.sha256(self._target.source_identity().encode())
        for one in self._offers:
            digest.update(f"\n{one.library} {one.version}".encode())
        return digest.hexdigest()

    def device_options(self) -> Mapping[str, str]:
        return self._target.device_options()

    def timeout_s(self, problem: Problem) -> float:
        return self._target.timeout_s(problem)

    def close(self) -> None:
        self._target.close()
        self._folder.cleanup()


def _files(offers: Offers) -> list[tuple[Kernel, AlgorithmFile]]:
    found: list[tuple[Kernel, AlgorithmFile]] = []
    for problem_id, of_problem in offers.of_problem.items():
        kind = problem_from_id(problem_id).kind
        for offer in of_problem.offers:
            kernel = offer.kernel(kind, offers.library)
            file = AlgorithmFile(offers.library, offers.path, offers.version, kernel.name, offer.data)
            found.append((kernel, file))
    return found
