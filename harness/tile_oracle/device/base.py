"""What a device is: opened by a worker and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tile_oracle.device.roofline import Limits
from tile_oracle.problem import Problem
from tile_oracle.target.base import DataFiles, DeviceInfo
from tile_oracle.target.device_state import DeviceState


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

    kernel_seconds: time spent inside kernels so far, check and timing runs alike. limits: no run is faster.
    cold_cache: whether the caches are flushed before each run that is timed.
    """

    info: DeviceInfo
    limits: Limits
    kernel_seconds: float
    cold_cache: bool

    @property
    def timed_ms(self) -> float:
        """What warm-up and timed runs took by the device's own clock, so far."""

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
