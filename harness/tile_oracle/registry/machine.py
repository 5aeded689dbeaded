"""The machine that a registry runs kernels on: target, worker process and the kernels that failed."""

from __future__ import annotations

import threading

from tile_oracle.arch import load_arch
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.kernel_source import CK_TILE, KernelSource
from tile_oracle.errors import KernelError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.supervisor import Applied, Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.model.made_by import MadeBy
from tile_oracle.problem import Problem
from tile_oracle.targets.base import DataFiles
from tile_oracle.targets.target import Target


class Machine:
    """A target and its worker, which starts on first use; or an architecture alone, for which kernels can be
    checked against limits but not run.

    turn: the lock to hold while using the worker.
    """

    def __init__(
        self, target: Target | None, arch: str, settings: SweepSettings, source: KernelSource | None = None
    ) -> None:
        """arch: the target's architecture, or the one to pick for. source: the kernel source, if it is not
        the project's own. Raises RuleError for an unknown architecture."""
        self.target = target
        self.source = source
        known = load_arch(arch)
        self.arch = known.unlisted if source is not None and source.implementation == CK_TILE else known
        self.turn = threading.RLock()
        self._settings = settings
        self._supervisor: Supervisor | None = None
        self._failed: set[tuple[Problem, Kernel]] = set()
        self._closed = False

    @property
    def device_name(self) -> str:
        """The device's name if it is known without opening the device, else ""."""
        return self.target.device_name if self.target is not None else ""

    @property
    def made_by(self) -> MadeBy:
        """What builds and runs kernels here, as far as it is known without opening the device."""
        builder = self.target.builder if self.target is not None else None
        toolchain = None if builder is None else builder.toolchain
        return MadeBy.of_names("" if toolchain is None else toolchain.identity, self.device_name)

    def may_run(self, kernel: Kernel, problem: Problem) -> bool:
        """Returns whether the kernel source has code for the kernel, the architecture's limits allow it, and
        it has not failed for the problem here."""
        if self._failed and (problem, kernel) in self._failed:
            return False
        if self.source is not None and self.source.refusal(kernel, problem) is not None:
            return False
        return self.arch.problem_refusal(kernel, problem) is None

    def without_code(self, kernel: Kernel) -> str:
        """Returns why the kernel source has no code for the kernel; "" when it has."""
        try:
            if self.source is not None:
                self.source.unit(kernel)
        except KernelError as error:
            return str(error)
        return ""

    def exclude(self, kernel: Kernel, problem: Problem) -> None:
        """Marks the kernel as failed for the problem: `may_run` refuses it from now on."""
        self._failed.add((problem, kernel))

    def apply(self, problem: Problem, kernel: Kernel, data: DataFiles) -> tuple[Applied, bool]:
        """Builds the kernel and runs it once on the data. Returns the outcome, and whether the binary was
        cached. The caller holds the turn."""
        target = self.target_to("run kernels")
        refusal = target.refusal(kernel, problem)
        if refusal is not None:
            return Applied("unsupported", refusal), True
        future = target.build(kernel)
        cached, built = future.done(), future.result()
        if built.binary is None:
            return Applied(built.status, compiler_message(built.log)), cached
        return self.supervisor().apply(problem, built.binary.path, data), cached

    def supervisor(self) -> Supervisor:
        """Returns the supervisor of the worker, started on first use. The caller holds the turn. Raises
        TargetError after `close`."""
        if self._closed:
            raise TargetError("the registry is closed")
        if self._supervisor is None:
            self._supervisor = Supervisor(self.target_to("start a worker"), self._settings)
        return self._supervisor

    def target_to(self, what_for: str) -> Target:
        """Returns the target. Raises TargetError if there is none; `what_for` completes the message's "cannot
        ..."."""
        if self.target is None:
            raise TargetError(
                f"this registry only picks, for {self.arch.name}, and cannot {what_for}: give it a target"
            )
        return self.target

    def close(self) -> None:
        """Ends the worker; may be called twice. The caller holds the turn."""
        self._closed = True
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.close()
