"""Looks up and stores the tuned kernels of one machine."""

from __future__ import annotations

from collections.abc import Callable

from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem
from tile_oracle.registry.machine import Machine
from tile_oracle.registry.measuring import PoolMeasurements
from tile_oracle.registry.rankers import Candidates
from tile_oracle.registry.tuned import Found, TunedEntry, TunedResults, now


class KeptKernels:
    """Finds and stores tuned kernels; the result of each problem is validated once."""

    def __init__(self, machine: Machine, results: TunedResults | None, say: Callable[[str], None]) -> None:
        """results: None finds and stores nothing. say: called with messages about stale results."""
        self._machine = machine
        self._results = results
        self._say = say
        self._found: dict[Problem, Found] = {}

    def find(self, problem: Problem, candidates: Candidates) -> Found:
        """Returns the problem's tuned kernel if there is a valid one."""
        if self._results is None or not self._results.knows(problem):
            return Found()
        found = self._found.get(problem)
        if found is None:
            with self._machine.turn:
                found = self._results.find(problem, self._machine.surroundings())
                if found.kernel is not None and found.kernel not in candidates.kernels:
                    found = Found(stale=f"the tuned kernel {found.kernel.name} is not in the pool")
                self._found[problem] = found
            if found.stale:
                self._say(f"{problem.id}: {found.stale}; it is not used")
        if found.kernel is not None and not self._machine.may_run(found.kernel, problem):
            return Found(stale="the tuned kernel failed")
        return found

    def keep(self, best: Measurement, measured: PoolMeasurements, how: str) -> bool:
        """Stores the best kernel; returns whether it is on disk. A noisy result is used but not stored.

        The caller holds the machine's turn. Raises TunedError if the file cannot be written.
        """
        if not best.ok:
            return False
        target = self._machine.target_to("keep results")
        binary = target.build(best.kernel).result().binary
        if self._results is None or binary is None:
            return False
        device = self._machine.device()
        entry = TunedEntry(
            problem=best.problem.id,
            kernel=best.kernel.name,
            latency_ms=best.latency_ms,
            tflops=best.tflops,
            kernels=measured.measured,
            target=target.name,
            arch=target.arch,
            device=device.name,
            driver=device.driver,
            toolchain=binary.toolchain,
            source_hash=self._machine.source_hash(best.kernel),
            how=how,
            time=now(),
        )
        self._results.add([entry])
        self._found.pop(best.problem, None)
        return True
