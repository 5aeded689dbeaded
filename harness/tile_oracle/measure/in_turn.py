"""Times kernels of earlier measurements again, interleaved in one worker, so that conditions are equal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tile_oracle.measure.answer import has_spoilt_its_worker, measurement_of, misbehaviour
from tile_oracle.measure.commands import Final, Turn
from tile_oracle.measure.leaders import final_passes, samples_a_pass
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.worker_link import Died, Lost, Refused, WorkerLink
from tile_oracle.problem import Problem


class InTurn:
    """Times kernels in a worker that the caller opens and closes."""

    def __init__(self, link: WorkerLink) -> None:
        self._link, self._target, self._settings = link, link.target, link.settings

    def measure(
        self, problem: Problem, leaders: list[Measurement], round_: int, keep_samples: bool
    ) -> Iterator[Measurement]:
        """Times the leaders' kernels interleaved; yields measurements of that round. If the worker dies in a
        kernel, the others continue in a new worker; if none can be started, the iteration ends."""
        groups = deque([leaders] if leaders else [])
        first: Measurement | None = None
        alone = False
        while groups:
            group = groups[0]
            if alone:
                self._link.drop()
            command, jobs = self._command(group, keep_samples)
            try:
                self._link.ready(problem)
                self._link.live_worker.run(command)
                while jobs:
                    answer = self._link.next_result(problem)
                    if misbehaviour(answer) is not None and len(command.runs) > 1:
                        # Nobody knows which of them it was: run each one again in its own worker.
                        groups, alone = deque([leader] for leader in group), True
                        break
                    leader = jobs.pop(answer["done"])
                    as_checked = {**answer, "check": leader.check, "check_points": leader.check_points}
                    if leader.is_censored and answer["status"] == "ok":  # it has not passed all checks
                        as_checked["at_least_ms"] = min(leader.at_least_ms, answer["latency_ms"])
                    final = measurement_of(problem, leader.kernel, as_checked)
                    group.remove(leader)
                    if has_spoilt_its_worker(answer) and not jobs:
                        self._link.drop()
                    yield replace(final, round=round_)
                else:
                    groups.popleft()
            except (Refused, Lost) as error:
                if isinstance(error, Lost):
                    self._link.lost = str(error)
                if first is not None and any(leader.kernel == first.kernel for leader in group):
                    yield first
                return
            except Died as died:
                self._link.suspect = True
                culprit = jobs.get(died.job_id) if died.job_id is not None else None
                if culprit is None:
                    continue
                if died.may_be_others and len(group) > 1:
                    # Another leader in the same worker may be the cause: run each one again in its own
                    # worker, this one first.
                    first = Measurement(problem, culprit.kernel, died.status, died.detail, round_)
                    group.sort(key=lambda leader: leader is not culprit)
                    groups, alone = deque([leader] for leader in group), True
                    continue
                group.remove(culprit)
                if not group:
                    groups.popleft()
                built = self._target.build(culprit.kernel).result()
                if built.binary is not None:
                    self._link.distrust(built.binary.path)
                yield Measurement(problem, culprit.kernel, died.status, died.detail, round_)

    def _command(
        self, leaders: Sequence[Measurement], keep_samples: bool
    ) -> tuple[Final, dict[int, Measurement]]:
        """Returns the command for the worker, and identity -> leader for its runs."""
        runs: list[Turn] = []
        jobs: dict[int, Measurement] = {}
        for leader in leaders:
            built = self._target.build(leader.kernel).result()
            if built.binary is None:
                continue
            identity = self._link.new_id()
            jobs[identity] = leader
            count = samples_a_pass(leader, self._settings)
            runs.append(Turn(identity, leader.kernel.name, str(built.binary.path), count))
        doubtful = [identity for identity, leader in jobs.items() if leader.status == "noisy"]
        passes = final_passes(leaders, self._settings)
        return Final(runs, passes, doubtful, keep_samples), jobs
