"""The scheduler for pytest-xdist: all tests of a problem run on one worker.

So inputs are made once, and leaders are compared within one process. xdist 3.x imposes rules on a scheduler
that its interface does not show:

- A worker starts a test only when it knows the next one or was told to shut down. A worker with one test and
  neither waits forever, so each must have two tests, or its shutdown, at any time.
- After its shutdown a worker takes no further test. When the other workers are shut down already, the tests
  of a worker that dies go to the replacement that xdist starts.
- Tests are named by their place in the collection, which is the same on all workers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any, NoReturn

import pytest

from tile_oracle.measure.dispatcher import Dispatcher, Patience, Task
from tile_oracle.session.pair_id import pair_of

_TO_SEND_MORE = 8
"""A worker that has fewer tests than this gets more tests of its unit."""
_SENT_AT_MOST = 16
"""Tests that a worker has at once. Few, so that -x and Ctrl-C need not wait for the rest of a long unit."""
_TO_SEND_NEXT_UNIT = 3
"""A worker that has fewer tests than this gets its next unit: one test runs, one waits, one is in transit."""

_KIND = "worker"
"""Workers are all of one kind for the Dispatcher."""

ExpectedTimes = Callable[[Mapping[str, int]], Mapping[str, float]]
"""Problem id -> number of its tests, to problem id -> expected time of all of them, in any unit of time."""


@dataclass
class _Worker:
    """The tests of a worker.

    collected: whether it has reported its collection, and the collection is right. sent: tests sent and not
    finished, in the order in which the worker runs them. unsent: the rest of its newest part.
    """

    collected: bool = False
    sent: deque[int] = field(default_factory=deque)
    unsent: deque[int] = field(default_factory=deque)


class ProblemScheduling:
    """xdist's side of the Dispatcher, which assigns units: the tests of a problem, or any other test alone.

    Implements xdist.scheduler.Scheduling. A unit's tests stay on one worker, in order. When a worker dies,
    the unfinished tests of its units go to another, except for the test that had begun: it may have killed
    the worker, and xdist reports it as failed. A test that was sent but not begun is blamed only when a
    second worker dies before it begins the test, so that the session always ends.
    """

    def __init__(self, config: pytest.Config, log: Any, expected_times: ExpectedTimes | None = None) -> None:
        """expected_times: units that take long go first; None: units keep the order of the collection."""
        from xdist.workermanage import parse_tx_spec_config

        self.config = config
        self._log = log
        self._expected_times = expected_times
        self._first_workers = len(parse_tx_spec_config(config))
        self._workers: dict[Any, _Worker] = {}
        self._tests: list[str] = []
        self._first: tuple[str, list[str]] | None = None
        """The name of the first worker that reported its collection, and its tests."""
        self._differs = False
        self._dispatcher = Dispatcher(
            (), in_order=expected_times is None, patience=Patience(split_s=math.inf)
        )
        """Its devices are workers, its kernels the numbers of tests."""
        self._part_of: dict[int, int] = {}
        """Test -> number of the assignment with which a worker has it."""
        self._repeats = count(1)
        self._dealt = False
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._unbegun_deaths: set[int] = set()

    # ---- interface of xdist -----------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        return list(self._workers)

    @property
    def collection_is_completed(self) -> bool:
        """Whether tests can be assigned: all initial workers have collected."""
        collected = sum(worker.collected for worker in self._workers.values())
        return self._dealt or self._differs or collected >= self._first_workers

    @property
    def tests_finished(self) -> bool:
        """Whether all remaining tests are assigned, so that workers only need their shutdown."""
        return (
            (self._dealt or self._differs)
            and not self._waiting
            and all(len(worker.sent) < 2 and not worker.unsent for worker in self._workers.values())
        )

    @property
    def has_pending(self) -> bool:
        return self._dealt and self.unfinished > 0

    @property
    def unfinished(self) -> int:
        """The number of tests that were neither run nor reported as the cause of a worker's death."""
        if not self._dealt:
            return len(self._first[1]) if self._first is not None else 0
        if self._differs:
            return sum(len(worker.sent) for worker in self._workers.values())
        return self._dispatcher.pairs_left

    def add_node(self, node: Any) -> None:
        self._workers[node] = _Worker()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take a worker's collection. If it differs from the others', the session ends with an error, because
        test numbers would be ambiguous."""
        if self._first is None:
            self._first = (node.gateway.id, list(collection))
        if collection != self._first[1]:
            self._refuse(node, collection)
            return
        self._workers[node].collected = True
        self._dispatcher.joined(node.gateway.id, _KIND, 0.0)

    def schedule(self) -> None:
        """Assign tests: first to all workers, later to new ones."""
        if self._differs:
            return
        if not self._dealt:
            self._make_units()
            # Every worker gets a unit before any gets a second.
            for node, worker in self._workers.items():
                if worker.collected and not node.shutting_down:
                    self._take_part(node)
        self._feed_all()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        worker = self._workers.get(node)
        if worker is None:
            return  # it was already removed
        if worker.sent and worker.sent[0] == item_index:
            worker.sent.popleft()
        else:
            with suppress(ValueError):
                worker.sent.remove(item_index)
        self._finished(node, item_index)
        self._feed(node)

    def mark_test_pending(self, item: str) -> None:
        """Runs a test that killed a worker again, for a hook `pytest_handlecrashitem`."""
        self._dispatcher.add(Task(f"{item}, again {next(self._repeats)}", [str(self._tests.index(item))]))
        self._feed_all()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> NoReturn:
        raise NotImplementedError("nothing is ever stolen from a worker")

    def remove_node(self, node: Any) -> str | None:
        """Remove a worker that died or has finished; its unfinished tests go to others.

        Returns the test that killed it. Raises KeyError for a worker that was never added.
        """
        worker = self._workers[node]
        if worker.sent and self._tests[worker.sent[0]] in self._ended:
            self._finished(node, worker.sent.popleft())
        crashed = self._blamed(worker)
        if crashed is not None:
            self._finished(node, worker.sent.popleft())
        del self._workers[node]
        self._dispatcher.gone(node.gateway.id, 0.0, died=False)
        self._feed_all()
        return None if crashed is None else self._tests[crashed]

    # ---- called by the plugin ---------------------------------------------------------------------------

    def begun(self, nodeid: str) -> None:
        """A worker has begun a test."""
        self._begun.add(nodeid)

    def ended(self, nodeid: str) -> None:
        """A worker has ended a test and sent all of its reports. `mark_test_complete` follows, unless the
        worker dies in between."""
        self._ended.add(nodeid)

    # ---- units ------------------------------------------------------------------------------------------

    def _make_units(self) -> None:
        assert self._first is not None
        self._dealt = True
        self._tests = self._first[1]
        units: dict[str, list[str]] = {}
        problems: dict[str, int] = {}
        for test, nodeid in enumerate(self._tests):
            problem = pair_of(nodeid)[0]
            units.setdefault(problem or nodeid, []).append(str(test))
            if problem:
                problems[problem] = problems.get(problem, 0) + 1
        expected = self._expected_times(problems) if self._expected_times is not None else {}
        for name, tests in units.items():
            self._dispatcher.add(Task(name, tests, expected.get(name, 0.0)))

    @property
    def _waiting(self) -> bool:
        return not self._differs and self._dispatcher.waiting

    def _take_part(self, node: Any) -> None:
        order = self._dispatcher.ahead(node.gateway.id, 0.0) if self._waiting else None
        if order is not None:
            tests = [int(test) for test in order.kernels]
            self._workers[node].unsent.extend(tests)
            self._part_of |= dict.fromkeys(tests, order.number)

    def _finished(self, node: Any, test: int) -> None:
        """A test has run or is blamed; `worker.sent` does not have it any more."""
        self._begun.discard(self._tests[test])
        self._ended.discard(self._tests[test])
        worker, number = self._workers[node], self._part_of[test]
        self._dispatcher.finished(node.gateway.id, number, str(test))
        if all(self._part_of[other] != number for other in chain(worker.sent, islice(worker.unsent, 1))):
            self._dispatcher.ended(node.gateway.id, number, 0.0)

    # ---- workers ----------------------------------------------------------------------------------------

    def _feed_all(self) -> None:
        for node in self.nodes:
            self._feed(node)

    def _feed(self, node: Any) -> None:
        """Send a worker enough tests to continue without a pause; at the end, its shutdown."""
        worker = self._workers[node]
        if not worker.collected or not self._dealt or node.shutting_down:
            return
        tests: list[int] = []
        if len(worker.sent) < _TO_SEND_MORE:
            while len(worker.sent) + len(tests) < _SENT_AT_MOST:
                if not worker.unsent and len(worker.sent) + len(tests) < _TO_SEND_NEXT_UNIT:
                    self._take_part(node)
                if not worker.unsent:
                    break
                tests.append(worker.unsent.popleft())
        worker.sent.extend(tests)
        # A worker that has just died cannot be reached; the event of its death will follow.
        with suppress(OSError):
            if tests:
                node.send_runtest_some(tests)
            if not worker.unsent and not self._waiting:
                node.shutdown()

    def _blamed(self, worker: _Worker) -> int | None:
        """The test that killed a worker, if any."""
        if not worker.sent:
            return None
        first = worker.sent[0]
        if self._tests[first] in self._begun or first in self._unbegun_deaths:
            return first
        self._unbegun_deaths.add(first)
        return None

    def _refuse(self, node: Any, collection: Sequence[str]) -> None:
        assert self._first is not None
        name, tests = self._first
        place = next(
            (i for i, (one, other) in enumerate(zip(tests, collection, strict=False)) if one != other),
            min(len(tests), len(collection)),
        )

        def at(listed: Sequence[str]) -> str:
            return listed[place] if place < len(listed) else "no test"

        message = (
            f"{node.gateway.id} collected {len(collection):,} tests and {name} {len(tests):,}; the first "
            f"that differs is number {place + 1:,}: {at(collection)} and {at(tests)}. All workers must "
            "collect the same tests in the same order: parameters of tests must not depend on time or chance"
        )
        self._log(message)
        report = pytest.CollectReport(node.gateway.id, "failed", message, result=[])
        self.config.hook.pytest_collectreport(report=report)
        self._differs = True
        for worker in self._workers.values():
            worker.unsent.clear()
