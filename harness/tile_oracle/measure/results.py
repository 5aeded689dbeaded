"""What a run has of its problems: results of earlier sessions, new ones, and which leaders are left.

The book of the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tile_oracle.errors import KernelError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.leaders import leaders_left, may_win_yet
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.row import from_known
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.twins import measured_picks, missing_copies, without_copies
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.run import RunLog
from tile_oracle.record.schema import ROUND_FINAL


class Results:
    """The measurements of a run by problem. Not thread-safe."""

    def __init__(self, settings: SweepSettings, recorded: RunLog | None = None) -> None:
        """settings: what makes a leader. recorded: the run, None if there are no earlier results."""
        self._settings, self._recorded = settings, recorded
        self._swept: dict[str, dict[str, Measurement]] = defaultdict(dict)
        self._finals: dict[str, dict[tuple[str, int], Measurement]] = defaultdict(dict)

    def resume(self, problem: Problem) -> None:
        """Takes what earlier sessions and sibling processes have recorded. Raises RecordError."""
        for row in self._recorded.known(problem.id) if self._recorded is not None else ():
            # A lost device may be back, so its pairs are measured again.
            if row["status"] != "device_lost":
                one = from_known(problem, parse_kernel_name(row["kernel"]), row)
                if one.round >= ROUND_FINAL:
                    self._finals[problem.id].setdefault((one.kernel.name, one.round), one)
                else:
                    self._swept[problem.id].setdefault(one.kernel.name, one)

    def take(self, one: Measurement) -> None:
        """Takes a new measurement."""
        problem, kernel = one.problem.id, one.kernel.name
        if one.round >= ROUND_FINAL:
            self._finals[problem][kernel, one.round] = replace(one, sample_ms=())
        else:
            self._swept[problem][kernel] = one

    def find(self, problem: Problem, kernel: Kernel) -> Measurement | None:
        """Returns the result of a pair's sweep, None without one.

        Raises KernelError when the kernel is of another operation, direction, dtype or rank.
        """
        if not kernel.matches(problem):
            raise KernelError(
                f"kernel {kernel.name} is not for {problem.id}: "
                f"{operation_named(problem.op).kind_words} must be equal"
            )
        return self.swept(problem.id).get(kernel.name)

    def swept(self, problem: str) -> Mapping[str, Measurement]:
        """Returns the results of a problem's sweep, by kernel name."""
        return self._swept.get(problem, {})

    def of(self, problem: str) -> list[Measurement]:
        """Returns the measurements of a problem, of all rounds."""
        return [*self.swept(problem).values(), *self._finals.get(problem, {}).values()]

    def missing(self, problem: str, kernels: Iterable[Kernel]) -> list[Kernel]:
        """Returns the kernels without a result."""
        swept = self.swept(problem)
        return [kernel for kernel in kernels if kernel.name not in swept]

    def leaders_left(self, problem: str, picks: Collection[Kernel] = ()) -> bool:
        """Returns whether leaders or picks of a problem are to be measured again, or copies of them are
        missing."""
        known = self.of(problem)
        own, copies = without_copies(known)
        wanted = measured_picks(picks, own, copies)
        left = leaders_left(own, wanted, self._settings) or may_win_yet(own, self._settings)
        return any(missing_copies(known, copies)) or bool(left)


def not_run_again(problem: Problem, kernel: Kernel, died: str) -> Measurement:
    """Returns the result of a kernel that too many did not survive. died: who died, and when."""
    return Measurement(problem, kernel, "crash", f"{died}: it is not run again")
