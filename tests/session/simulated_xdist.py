"""pytest-xdist's own controller (xdist.dsession.DSession) with simulated workers, which die when told to.

A simulated worker does what xdist.remote does, one step at a time: it holds one test back until it knows the
next or its shutdown, and what it says comes to the controller in the order in which it was said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from queue import Queue
from types import SimpleNamespace
from typing import Any

from xdist.dsession import DSession
from xdist.remote import Producer

SHUTDOWN = None

Collect = Callable[[str], Sequence[str]]
"""The name of a worker -> the tests that it collects."""


class SimulatedWorker:
    """Both ends: what xdist's controller calls (WorkerController), and the process at the other end."""

    def __init__(self, machine: SimulatedXdist, name: str, tests: Sequence[str]) -> None:
        self.gateway = SimpleNamespace(id=name, spec=SimpleNamespace(id=name))
        self.workerinfo: dict[str, Any] = {}
        self.workeroutput = {"exitstatus": 0, "shouldfail": False, "shouldstop": False}
        self.alive = True
        self.told_to_end = False
        self._machine = machine
        self._tests = tests
        self._inbox: deque[int | None] = deque()
        self._life = self._live()

    def __repr__(self) -> str:
        return self.gateway.id

    # ---- the controller's end ----

    @property
    def shutting_down(self) -> bool:
        return self.told_to_end

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        if not self.alive:
            raise OSError("cannot send (already closed?)")
        assert not self.told_to_end, "a worker that was told to end runs no further test"
        self._inbox.extend(indices)

    def shutdown(self) -> None:
        self.told_to_end = True
        self._inbox.append(SHUTDOWN)

    # ---- the process ----

    def step(self) -> bool:
        """Takes the next step; False if there is nothing to do now, or at all."""
        return self.alive and next(self._life, False)

    def die(self) -> None:
        if self.alive:
            self.alive = False
            self._say("errordown", error="killed")

    def _say(self, event: str, **facts: Any) -> None:
        self._machine.controller.queue.put((event, {"node": self, **facts}))

    def _next(self) -> Iterator[bool]:
        while not self._inbox:
            yield False
        return self._inbox.popleft()  # type: ignore[return-value]

    def _live(self) -> Iterator[bool]:
        self._say("workerready", workerinfo={})
        yield True
        self._say("collectionfinish", ids=list(self._tests))
        yield True
        following = yield from self._next()
        while following is not SHUTDOWN:
            test = following
            following = yield from self._next()
            name = self._tests[test]
            location = ("", None, "")
            self._say("logstart", nodeid=name, location=location)
            if name in self._machine.deadly:
                self.die()
            yield True
            self._machine.ran.append(name)
            self._say("logfinish", nodeid=name, location=location)
            yield True
            self._say("runtest_protocol_complete", item_index=test, duration=0.0)
            yield True
        self.alive = False
        self._say("workerfinished")
        yield True


class SimulatedXdist:
    """One session. ran: the finished tests, in order. crashed: tests reported as crashed. deadly: tests that
    kill their worker."""

    def __init__(self, workers: int, collect: Collect, make: Any, most_restarts: int | None = None) -> None:
        """make: config, log -> scheduler. most_restarts: --max-worker-restart."""
        self.ran: list[str] = []
        self.crashed: list[str] = []
        self.errors: list[str] = []
        self.deadly: set[str] = set()
        self.all_workers: list[SimulatedWorker] = []
        self._collect = collect
        self._names = (f"gw{number}" for number in count())
        config = SimpleNamespace(
            option=SimpleNamespace(debug=False, verbose=0, maxworkerrestart=None, numprocesses=workers),
            getvalue={"maxfail": 0, "tx": [f"{workers}*popen"]}.__getitem__,
            pluginmanager=SimpleNamespace(getplugin=lambda name: None),
            hook=self,
        )
        controller = self.controller = DSession(config)  # type: ignore[arg-type]
        controller._max_worker_restart = most_restarts
        controller._session = SimpleNamespace(testscollected=0)  # type: ignore[assignment]
        controller.nodemanager = SimpleNamespace(  # type: ignore[assignment]
            group=SimpleNamespace(allocate_id=lambda spec: None), setup_node=self._start
        )
        controller.shouldstop = False
        controller.queue = Queue()
        self.scheduler = make(config, Producer("simulated", enabled=False))
        controller.sched = self.scheduler
        controller._active_nodes.update(self._start(None, None) for _ in range(workers))  # type: ignore[arg-type]

    def _start(self, spec: Any, putevent: Any) -> SimulatedWorker:
        name = next(self._names)
        self.all_workers.append(SimulatedWorker(self, name, self._collect(name)))
        return self.all_workers[-1]

    def __getattr__(self, name: str) -> Any:
        """Hooks without effect here."""
        if not name.startswith("pytest_"):
            raise AttributeError(name)
        return lambda **facts: None

    # ---- hooks ----

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.scheduler.begun(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self.scheduler.ended(nodeid)

    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        self.crashed.append(crashitem)

    def pytest_collectreport(self, report: Any) -> None:
        self.errors.append(report.longrepr)

    # ---- time ----

    @property
    def living(self) -> list[SimulatedWorker]:
        return [worker for worker in self.all_workers if worker.alive]

    @property
    def ended(self) -> bool:
        return self.controller.session_finished

    def hear(self) -> bool:
        """The controller takes one event; False when there is none."""
        if self.ended or self.controller.queue.empty():
            return False
        self.controller.loop_once()
        return True

    def go_on(self) -> bool:
        """Lets every worker take one step; False if none can: a hang, unless the session has ended."""
        heard = self.hear()
        stepped = [worker.step() for worker in self.living]
        return heard or any(stepped)
