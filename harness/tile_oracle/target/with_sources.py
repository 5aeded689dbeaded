"""A target that builds kernels of several sources for one device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from tile_oracle.build.binary import BuildResult
from tile_oracle.build.builder import Builder
from tile_oracle.build.kernel_source import PoolSource
from tile_oracle.build.prebuilt_folder import is_prebuilt_folder
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.problem import Problem
from tile_oracle.target.base import InParts, Target, TargetOptions
from tile_oracle.target.resolve import resolve_target


class WithSources(InParts):
    """See tile_oracle.target.base.Target. The first target opens the device.

    It also builds every kernel that none of the other sources declares.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        """targets: one a source, for one architecture. Raises BuildError when two sources declare different
        kernels of one name."""
        self._targets = tuple(targets)
        first = self._targets[0]
        self.name, self.arch = first.name, first.arch
        self.device_module, self.device_name = first.device_module, first.device_name
        self.implementation = first.implementation
        self.builder: Builder | None = first.builder
        self._owner = _owners(self._targets)

    @property
    def parts(self) -> tuple[Target, ...]:
        return self._targets

    def part_of(self, kernel: Kernel) -> Target:
        return (
            self._owner.get(kernel, self._targets[0]) if isinstance(kernel, NamedKernel) else self._targets[0]
        )

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        return self.part_of(kernel).refusal(kernel, problem)

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        return self.part_of(kernel).build(kernel)

    def source_identity(self) -> str:
        digest = hashlib.sha256()
        for target in self._targets:
            digest.update(f"{target.source_identity()}\n".encode())
        return digest.hexdigest()

    def device_options(self) -> Mapping[str, str]:
        return self._targets[0].device_options()

    def timeout_s(self, problem: Problem) -> float:
        return max(target.timeout_s(problem) for target in self._targets)

    def close(self) -> None:
        for target in self._targets:
            target.close()


def resolve_with_sources(name: str, own: TargetOptions, more: Sequence[str] = ()) -> tuple[Target, str]:
    """The target of --target NAME with all kernel sources, and why it was chosen. more: NAME=ARGUMENT of the
    sources beside that of `own`. Raises HarnessError."""
    target, reason = resolve_target(name, own)
    if not more:
        return target, reason
    # A prebuilt folder has the binaries of one source.
    shared = own.build_dir
    cache = None if shared is None or is_prebuilt_folder(shared) else shared
    parts = [target]
    for source in more:
        argument = source.partition("=")[2]
        folder = Path(argument) if argument and is_prebuilt_folder(Path(argument)) else cache
        # --toolchain is the first source's: Triton's kernels have their own compiler.
        options = replace(own, toolchain="auto", build_dir=folder, kernel_source=source)
        parts.append(resolve_target(target.name, options)[0])
    return WithSources(parts), reason


def pool_source(target: Target) -> PoolSource | None:
    """The target's source if it has kernels of its own."""
    source = None if target.builder is None else target.builder.origin
    return source if isinstance(source, PoolSource) else None


def _owners(targets: Sequence[Target]) -> dict[Kernel, Target]:
    """Which target builds the kernels that sources declare. Of equal sources it is the first."""
    owners: dict[Kernel, Target] = {}
    identities: dict[Kernel, str] = {}
    for target in targets:
        source = pool_source(target)
        if source is None:
            continue
        for kernel in (kernel for kind in source.kinds for kernel in source.pool(kind)):
            if identities.setdefault(kernel, source.identity) != source.identity:
                raise BuildError(
                    f"--kernels: two sources have a kernel {kernel.name}, of different code: leave one of "
                    "them out, or rename its function"
                )
            owners.setdefault(kernel, target)
    return owners
