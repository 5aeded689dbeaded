"""Which pairs become tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.process.collector import paused_collector
from tile_oracle.session.items import (
    MEASURING,
    REPLAY_SUITE,
    SUITE,
    SUITE_ID,
    is_fixture_of_ours,
    is_ours,
    is_replay,
    pair_of_item,
    params_of,
)
from tile_oracle.session.state import SessionState


class SuiteModule(pytest.Module):
    """A file of the suite. Its tests have the same names whatever a project calls its own."""

    state: SessionState

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """pytest asks after it has collected the tests that were named."""
        return [] if self.state.beside and self.state.others_measure else super().collect()

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith("test_")


class CollectionHooks:
    """Collection and parametrization of tests that ask for problems and kernels."""

    def __init__(self, state: SessionState) -> None:
        self.config, self.session, self.state = state.config, state.session, state

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Makes tens of thousands of items, all of which survive."""
        with paused_collector():
            return (yield)

    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        if module_path not in (SUITE, REPLAY_SUITE):
            return None
        module: pytest.Module = SuiteModule.from_parent(parent, path=module_path, nodeid=SUITE_ID)
        assert isinstance(module, SuiteModule)
        module.state = self.state
        return module

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        from tile_oracle.session.pair_id import pair_id

        own = [one for one in metafunc.fixturenames if is_fixture_of_ours(metafunc, one)]
        if metafunc.definition.path not in (SUITE, REPLAY_SUITE):
            self.state.others_measure |= any(one in MEASURING for one in own)
        elif hidden := [one for one in own if not is_ours(metafunc, one)]:
            raise pytest.Collector.CollectError(
                f"a conftest or plugin hides the fixture {hidden[0]}: rename it"
            )
        names = [name for name in ("problem", "kernel") if is_ours(metafunc, name)]
        plan = self.session.plan
        # Indirect: the values pass through the fixtures, so that a project can override these.
        if names == ["problem", "kernel"]:
            pairs = list(plan.pairs())
            metafunc.parametrize(names, pairs, ids=[pair_id(*pair) for pair in pairs], indirect=True)
        elif names == ["problem"]:
            of_suite = metafunc.definition.path == REPLAY_SUITE
            problems = [problem for problem in plan.problems if not of_suite or plan.asked(problem)]
            metafunc.parametrize("problem", problems, ids=[one.id for one in problems], indirect=True)
        elif names == ["kernel"]:
            metafunc.parametrize("kernel", plan.all_kernels, ids=lambda one: one.name, indirect=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Applies --shard, and in a replay -k to pairs: there a test covers all kernels of a problem."""
        self._keep_shard(items)
        self._order_as_devices(items)
        self._first_kernels_first(items)
        if not items or not all(map(is_replay, items)) or not self.state.pairs_by_name.chooses:
            return
        self._deselect(items, lambda item: not self.state.pairs_by_name.kernels(params_of(item)["problem"]))
        # Applied here: pytest would match the expression against problem tests, whose names have no kernel.
        self.config.option.keyword = ""

    def _order_as_devices(self, items: list[pytest.Item]) -> None:
        """Runs the suite's tests in the order in which devices begin their problems, so that the terminal
        shows what is finished. With a budget, both keep the order of the set."""
        if self.session.in_turn or not self.state.only_suite or self.session.deadline is not None:
            return
        from tile_oracle.session.time_left import expected_times

        problems = [getattr(params_of(item).get("problem"), "id", "") for item in items]
        times = expected_times(Counter(filter(None, problems)))
        order = sorted(range(len(items)), key=lambda place: -times.get(problems[place], 0.0))
        items[:] = [items[place] for place in order]

    def _first_kernels_first(self, items: list[pytest.Item]) -> None:
        """With --first, runs the tests of those kernels before all others."""
        try:
            first = self.session.choose_first()
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None
        if first is not None:
            items.sort(key=lambda item: not first.has(pair_of_item(item)))
            later = (item.nodeid for item in items if not first.has(pair_of_item(item)))
            self.state.first_later = next(later, "")

    def _keep_shard(self, items: list[pytest.Item]) -> None:
        """Deselects the tests of other parts' problems. Tests without a problem stay in every part."""
        if self.session.options.shard is None:
            return
        from tile_oracle.session.time_left import expected_times

        plan = self.session.plan
        counts = {problem.id: len(plan.kernels(problem)) for problem in plan.problems}
        others = counts.keys() - self.session.options.shard.problems(expected_times(counts))
        self._deselect(items, lambda item: getattr(params_of(item).get("problem"), "id", None) in others)

    def _deselect(self, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]) -> None:
        gone = {id(item): item for item in items if is_left_out(item)}
        if gone:
            self.config.hook.pytest_deselected(items=[*gone.values()])
            items[:] = [item for item in items if id(item) not in gone]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.config.getoption("collectonly") or self.state.is_controller:
            return
        self.state.select_problems(params_of(item)["problem"] for item in session.items if is_replay(item))
        if self.state.selected:
            self.state.open_run()
        pairs = dict.fromkeys(pair for item in session.items if (pair := pair_of_item(item)) is not None)
        self.session.select(pairs)
        self.state.plan_pairs((problem.id, kernel.short_name) for problem, kernel in pairs)
        if any(name in getattr(item, "fixturenames", ()) for item in session.items for name in MEASURING):
            self.state.open_run()
            try:
                self.session.build_ahead()
            except HarnessError as error:
                raise pytest.UsageError(str(error)) from None

    def pytest_report_collectionfinish(self) -> str | None:
        run = self.session.run
        quiet = self.config.get_verbosity() < 0
        if self.config.getoption("collectonly") and not quiet and self.session.is_judged:
            return f"reported after them: {', '.join(self.state.verdict_ids())}"
        return None if run is None or quiet else self.session.describe_run(run)
