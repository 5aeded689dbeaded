"""One session spread over the workers of pytest-xdist."""

from __future__ import annotations

from typing import Any

import pytest

from tile_oracle.session.state import SessionState
from tile_oracle.session.suite_names import replayed_problems


class DistributionHooks:
    """The hooks of pytest-xdist, in its controller."""

    def __init__(self, state: SessionState) -> None:
        self.config, self.session, self.state = state.config, state.session, state

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from tile_oracle.session.expected_time import expected_times
        from tile_oracle.session.scheduler import ProblemScheduling

        # With a budget, the first problems of the set are measured first.
        by_time = self.session.deadline is None
        self.state.scheduler = ProblemScheduling(
            config, log, (lambda counts: expected_times(counts, self.session.run)) if by_time else None
        )
        return self.state.scheduler

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        from tile_oracle.record.owner import name_of_owner
        from tile_oracle.session.build_counts import CHANNEL

        node.workerinput["tile_oracle_run"] = str(self.state.open_run().folder)
        node.workerinput["tile_oracle_owner"] = name_of_owner()
        node.workerinput["tile_oracle_deadline"] = self.session.deadline
        node.workerinput[CHANNEL] = self.state.build_counts.channel_from(node.gateway)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        from tile_oracle.session.pair_id import pair_of

        if self.state.planned:
            return  # all workers collect the same tests
        self.state.planned = True
        if replayed := replayed_problems(ids):
            named = {problem.id: problem for problem in self.session.plan.problems}
            self.state.select_problems(named[problem] for problem in replayed if problem in named)
        pairs = dict.fromkeys(map(pair_of, ids))
        self.state.plan_pairs((problem, kernel) for problem, kernel in pairs if problem and kernel)
        self.state.display.line(self.session.describe_run(self.state.open_run()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # A killed worker has no output.
        output = getattr(node, "workeroutput", {})
        self.state.budget_spent |= output.get("tile_oracle_budget_spent", False)
        self.session.pytest_s += output.get("tile_oracle_pytest_s", 0.0)
        self.state.device_missing |= output.get("tile_oracle_device_missing", False)
        self.state.worker_trouble |= output.get("tile_oracle_trouble", False)
        for note in output.get("tile_oracle_notes", ()):
            self.state.notes.setdefault(note)
