"""What a target is: a parent side that knows what to build, and a device that only a worker opens."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from tile_oracle.device.roofline import Limits
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.target.device_state import DeviceState

if TYPE_CHECKING:
    from tile_oracle.build.builder import Builder, BuildResult


class Target(Protocol):
    """The parent's side. Nothing here may touch a device.

    name: what --target calls it. arch: the architecture that kernels are built for. device_module: where
    the worker finds `open_device(**device_options) -> Device`. device_name: `DeviceInfo.name`, if that is
    known without opening the device, else "".
    """

    name: str
    arch: str
    device_module: str
    device_name: str

    @property
    def implementation(self) -> str:
        """Whose kernels it runs, as records say it: `KernelSource.implementation`."""

    @property
    def builder(self) -> Builder | None:
        """What makes its kernels; None where nothing is built."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why this kernel cannot run this problem, or None."""

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """The kernel's binary, compiled in the background or taken from the cache."""

    def source_identity(self) -> str:
        """What the binaries are made from: a run may only be resumed with the same."""

    def device_options(self) -> Mapping[str, str]:
        """What the device module's `open_device` takes by name. Raises BuildError."""

    def timeout_s(self, problem: Problem) -> float:
        """How long one kernel may take on a problem, check and samples included."""

    def close(self) -> None:
        """Stop builds that nobody waits for any more."""


@dataclass(frozen=True)
class DeviceInfo:
    """The device's own name, and the version of the driver (on cpu: of the operating system's kernel)."""

    name: str
    driver: str


@dataclass(frozen=True)
class CheckResult:
    """Verdict on a kernel's results. status: ok, wrong, flaky, unsupported or build_error (cannot be loaded).

    wrong: the same wrong result each time; flaky: other results from the same data.
    """

    status: str
    detail: str = ""
    kind: str = "none"
    points: int = 0
    tainted: bool = False
    """The kernel wrote where it must not: the process that ran it is not to be trusted any more."""
    again: bool = False
    """The failure may be the process's own, not the kernel's: it is tried again in a new one."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """What the driver says of the loaded kernel (tile_oracle.build.code_facts); nothing on cpu."""


@dataclass(frozen=True)
class DataFiles:
    """Where a caller's data lie: both operands and, once a kernel has run, its output.

    Each file holds one tensor of `operand_shapes` and nothing else, in C order, as the dtype is stored.
    """

    first: Path
    second: Path
    out: Path


class ProblemRefused(Exception):
    """The device cannot hold this problem; the message says why."""


class KernelFailed(Exception):
    """A kernel that passed its check failed when it was timed; the message says how."""

    def __init__(self, detail: str, status: str = "wrong", *, tainted: bool = False) -> None:
        """`status`: wrong or flaky."""
        super().__init__(detail)
        self.status, self.tainted = status, tainted

    def as_answer(self) -> dict[str, object]:
        """What a worker says of the kernel."""
        return {"status": self.status, "detail": str(self), "tainted": self.tainted}


class Device(Protocol):
    """The worker's side: one open device and at most one loaded problem.

    kernel_seconds: time spent inside kernels so far, check and timing runs alike. timed_ms: what warm-up
    and timed runs took by the device's own clock, so far. limits: no run is faster. cold_cache: whether
    the caches are flushed before each run that is timed.
    """

    info: DeviceInfo
    limits: Limits
    kernel_seconds: float
    timed_ms: float
    cold_cache: bool

    def load(self, problem: Problem, seed: int) -> None:
        """Make inputs and expectation, once for all kernels. Raises ProblemRefused."""

    def claim(self) -> None:
        """Take the device for this process alone; waits while another session times on it."""

    def check(self, binary: Path) -> CheckResult:
        """Run once on each set of operands over a poisoned output and compare with the exact result."""

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        """Run `count` times on data of their own; nanoseconds of each run, by no clock of the kernel's.

        The operands are other than before, and the output is poisoned.

        Of runs too short for that clock: fewer values, at least one, each the mean of some runs. Raises
        KernelFailed.
        """

    def verify(self, binary: Path) -> CheckResult:
        """Compare what the last run of the latest `sample`, of this binary, left with the exact result."""

    def apply(self, problem: Problem, binary: Path, data: DataFiles) -> CheckResult:
        """Run once on a caller's data, over a poisoned output; ok once the output is in its file.

        The values are not compared with anything (kind `none`), but a kernel that writes where it must not,
        or leaves values unwritten, is `wrong`. No `load` comes before. Raises ProblemRefused.
        """

    def idle(self) -> None:
        """Nothing to do for a while: let others have the device."""

    def state(self) -> DeviceState:
        """Clocks, temperature, power and throttling, as far as they can be read."""
