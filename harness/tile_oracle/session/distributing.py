"""-n of pytest-xdist: the number of devices that measure at once.

The suite's own tests only wait for results, so where nothing else is asked for they run in this process, and
-n starts that many devices. Beside them, a project's own tests run in pytest-xdist's workers, as pytest-xdist
deals them out; the devices belong to its controller, and `measure` in a worker asks for results through a
channel of execnet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.session.items import SUITE_ID
from tile_oracle.session.state import SessionState

if TYPE_CHECKING:
    from tile_oracle.session.asking import Answers


class DistributionHooks:
    """The hooks of pytest-xdist, in its controller."""

    def __init__(self, state: SessionState) -> None:
        self.config, self.session, self.state = state.config, state.session, state
        self._answers: Answers | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        from tile_oracle.record.owner import name_of_owner

        process: dict[str, Any] = {
            "run_folder": str(self.state.open_run().folder),
            "run_owner": name_of_owner(),
            "deadline": self.session.deadline,
        }
        if self.session.remeasures:
            from tile_oracle.session.asking import Answers
            from tile_oracle.session.live import LiveSession

            assert isinstance(self.session, LiveSession)
            self._answers = self._answers or Answers(self.session)
            process["channel"] = self._answers.channel_from(node.gateway)
        node.workerinput["tile_oracle"] = process

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        from tile_oracle.session.pair_id import pair_of

        if self.state.planned:
            return  # all workers collect the same tests
        self.state.planned = True
        tests = {f"{SUITE_ID}::test_problem[{problem.id}]": problem for problem in self.session.plan.problems}
        self.state.select_problems(tests[one] for one in ids if one in tests)
        asked = dict.fromkeys(map(pair_of, ids))
        self.state.plan_pairs((problem, kernel) for problem, kernel in asked if problem and kernel)
        self.session.select(
            pair for pair in self.session.plan.pairs() if (pair[0].id, pair[1].short_name) in asked
        )
        self.state.display.line(self.session.describe_run(self.state.open_run()))
        if self._answers is not None:
            try:
                self.session.build_ahead()
            except HarnessError as error:
                raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # A killed worker has no output.
        if (told := getattr(node, "workeroutput", {}).get("tile_oracle")) is None:
            return
        self.state.budget_spent |= told["budget_spent"]
        self.session.pytest_s += told["pytest_s"]
        self.state.device_missing |= told["device_missing"]
        self.state.worker_trouble |= told["trouble"]
        for note in told["notes"]:
            self.state.note(note)
