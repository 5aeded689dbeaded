"""The interface of a device. Only a worker opens one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tile_oracle.arch.time_bound import Limits
from tile_oracle.problem import Problem
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.device_state import DeviceState


@dataclass(frozen=True)
class CheckResult:
    """Verdict on a kernel's results. status: ok, wrong, flaky, unsupported, build_error (cannot be loaded) or
    device_lost (the machine cannot load it now).

    wrong: the same wrong result each time. flaky: different results from the same data.
    """

    status: str
    detail: str = ""
    kind: str = "none"
    points: int = 0
    tainted: bool = False
    """The kernel wrote outside its memory, so its process can no longer be trusted."""
    again: bool = False
    """The failure may be the process's fault: the kernel is tried again in a new process."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """The driver's facts about the loaded kernel (tile_oracle.compiling.code_facts); empty on cpu."""
    lost_in_ms: float | None = None
    """The time of the first run of a kernel that had lost by it, so that no further checks were made."""
    at_least_ms: float = 0.0
    """What such a kernel takes at least."""


class ProblemRefused(Exception):
    """The device cannot hold this problem; the message says why."""


def refuse_unless_there_is(needed_bytes: int, share: float, there_bytes: int, what: str) -> None:
    """Raises ProblemRefused for more than a share of the free memory. what: which memory, and for what."""
    if needed_bytes > share * there_bytes:
        needed, there = (f"{one / 2**30:.1f} GiB" for one in (needed_bytes, there_bytes))
        raise ProblemRefused(f"needs {needed} of {what}, {there} are free")


class KernelFailed(Exception):
    """A kernel passed its check and failed while it was timed; the message says how."""

    def __init__(self, detail: str, status: str = "wrong", *, tainted: bool = False) -> None:
        """`status`: wrong or flaky."""
        super().__init__(detail)
        self.status, self.tainted = status, tainted

    def as_answer(self) -> dict[str, object]:
        """Returns the worker's answer about the kernel."""
        return {"status": self.status, "detail": str(self), "tainted": self.tainted}


class Device(Protocol):
    """One open device with at most one loaded problem.

    kernel_seconds: time spent in kernels so far, in check and timing runs. limits: the roofline, which no
    run can beat. cold_cache: whether the caches are flushed before each timed run. adds_nothing: no driver
    opens files or starts threads in this process, so the audit may be strict.
    """

    info: DeviceInfo
    limits: Limits
    kernel_seconds: float
    cold_cache: bool
    adds_nothing: bool = False
    after_load: Callable[[], None] = staticmethod(lambda: None)
    """Called after a kernel's library was loaded into this process."""

    @property
    def timed_ms(self) -> float:
        """Total time of warm-up and timed runs so far, by the device's own clock."""

    def load(self, problem: Problem, seed: int, made: str = "") -> None:
        """Makes the inputs and the expected result, once for all kernels. Raises ProblemRefused.

        made: a file of tile_oracle.device.data_maker with what the host computes for a GPU, "" for none."""

    def claim(self) -> None:
        """Locks the device for this process. Blocks while another session times on it."""

    def check(self, binary: Path, lost_ms: float | None = None) -> CheckResult:
        """Runs once on each set of operands over a poisoned output and compares with the exact result.

        lost_ms: a kernel that is right on the first set, and takes at least this long as far as that run can
        tell (tile_oracle.device.timing.at_least_ms), need not run on the others."""

    def sample(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        """Times `count` runs; returns nanoseconds of each run by the device's clock.

        The runs use changed operands and a poisoned output. When runs are too short for the clock, the result
        has fewer values (at least one), each the mean of several runs. Raises KernelFailed.
        """

    def look(self, binary: Path, count: int) -> npt.NDArray[np.float64]:
        """Like `sample`, but without a long warm-up: for kernels that may turn out to be slow. `check` comes
        first, and its runs may be what was timed. Returns at least `count` values."""

    def verify(self, binary: Path) -> CheckResult:
        """Compares the output of the last run of this binary's latest `sample` or `look` with the exact
        result."""

    def require_right(self, binary: Path) -> None:
        """Raises KernelFailed when the timed runs left a wrong result."""
        result = self.verify(binary)
        if result.status != "ok":
            raise KernelFailed(result.detail, result.status, tainted=result.tainted)

    def clocks_differ(self, binary: Path) -> str | None:
        """Returns how the times of a kernel that was sampled differ between two clocks of the device; None:
        they agree, or the device has one clock."""
        return None

    def inputs(self) -> list[tuple[int, int]]:
        """Returns the addresses and sizes of the loaded problem's inputs in this process's memory, which no
        kernel may change."""
        return []

    def inputs_changed(self) -> bool:
        """Returns whether a kernel has changed inputs elsewhere. Slow: for wrong results only."""
        return False

    def idle(self) -> None:
        """Releases the device while there is nothing to do."""

    def state(self) -> DeviceState:
        """Clocks, temperature, power and throttling, where they can be read."""
        return DeviceState()
