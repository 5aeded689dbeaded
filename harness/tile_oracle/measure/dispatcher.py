"""Which device measures what: a state machine without clocks, threads or devices of its own.

Work comes in parts: some or all kernels of one problem. The part that a device has is its assignment. It has
one at a time. The part of a device that dies goes on elsewhere,
without the pairs that it has finished. An idle device takes over half of the kernels that a straggler has
left. A problem's leaders are measured again by one device: by the one that swept it, or, if several did, by
one of them once all kernels have been swept.

A pair counts when its first result arrives; later results of the same pair are refused. So nothing is lost
and nothing is doubled, however many devices have tried a pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

DEATHS_TO_ISOLATE = 2
"""Deaths of devices at one part after which its next kernels run one by one."""
DEATHS_TO_BLAME = 2
"""Deaths of devices while a kernel ran alone after which it is not run again."""
ISOLATED_AT_ONCE = 9
"""Kernels that may have been running when a device died: those that a worker is sent in advance, and one."""
_LEAST_TO_SPLIT = 4
_MOST_DEATHS_OF_FINALS = 3

_Priority = tuple[int, float, int]


@dataclass(frozen=True)
class Task:
    """A problem that is to be measured. kernels: those without a result; empty if only the leaders are left.
    weight: expected time in any unit.

    again_of: a problem whose leaders are measured once more under the name `problem`: by the device that
    measured it, while that is there, and else by one of its kind.
    """

    problem: str
    kernels: Sequence[str]
    weight: float = 1.0
    again_of: str = ""


@dataclass(frozen=True)
class Assign:
    """An order: the device measures these kernels and, with `finals`, the problem's leaders again."""

    device: str
    number: int
    problem: str
    kernels: tuple[str, ...]
    finals: bool


@dataclass(frozen=True)
class Withdraw:
    """An order: the device leaves these kernels of its assignment, and the leaders, to others."""

    device: str
    number: int
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Blame:
    """A kernel that is not run again, because `deaths` devices died while it ran alone."""

    problem: str
    kernel: str
    deaths: int


Order = Assign | Withdraw | Blame


@dataclass(frozen=True)
class Patience:
    """Time limits in seconds.

    split_s: a straggler keeps its kernels if they take less than this. kind_s: a problem waits this long for
    a device of the kind that began it, and then goes to another kind.
    """

    split_s: float = 3.0
    kind_s: float = 60.0


@dataclass
class _Problem:
    name: str
    order: int
    weight_a_pair: float
    open_parts: int = 0
    kind: str | None = None
    home: str = ""
    near: str = ""
    """The device that its parts wait for."""
    fresh: bool = True
    """Not begun, so that it may be left out when no problem begins any more."""
    complete: bool = False


@dataclass
class _Part:
    problem: _Problem
    remaining: dict[str, None]
    deaths: int = 0
    alone: int = 0
    """Deaths while its only kernel ran."""


@dataclass
class _Assignment:
    number: int
    part: _Part
    device: str
    finals: bool
    begun_s: float
    done: int = 0


@dataclass
class _Device:
    name: str
    kind: str
    usable: bool = True


_Queue = list[tuple[_Priority, int, _Part]]
"""A heap of parts that wait for a device, the most urgent first."""


class Dispatcher:
    """Feed it with what happens, ask it for `orders`. Times are seconds on any steady clock."""

    def __init__(
        self, tasks: Iterable[Task], *, in_order: bool = False, patience: Patience | None = None
    ) -> None:
        """in_order: problems begin in the order of the tasks, not the longest first."""
        self._patience = patience or Patience()
        self._in_order = in_order
        self._problems: dict[str, _Problem] = {}
        self._devices: dict[str, _Device] = {}
        self._assignments: dict[int, _Assignment] = {}
        self._queues: dict[str | None, _Queue] = {None: []}
        self._near: dict[str, _Queue] = {}
        """Device -> parts that wait for it."""
        self._idle: dict[str, _Device] = {}
        """The usable devices without an assignment."""
        self._usable: Counter[str] = Counter()
        """Kind -> number of its usable devices."""
        self._kind_seen_s: dict[str, float] = {}
        """Kind -> when its last usable device was gone."""
        self._numbers = 0
        self._problems_left = 0
        self._begins_new = True
        self._blamed: list[Blame] = []
        self.without_finals: list[str] = []
        """Problems whose leaders were given up, because devices died while they were measured again."""
        for task in tasks:
            self.add(task)

    # ---- what is known ----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do; problems that may not begin any more do not count."""
        if self._begins_new:
            return self._problems_left == 0
        return all(one.complete or one.fresh for one in self._problems.values())

    @property
    def problems_left(self) -> int:
        return self._problems_left

    @property
    def first_kind(self) -> str:
        """The kind of the device that joined first; "" before any has."""
        return next((one.kind for one in self._devices.values()), "")

    def usable(self) -> list[str]:
        """Returns the devices that get work."""
        return [one.name for one in self._devices.values() if one.usable]

    def takes_finals(self, device: str, number: int) -> bool:
        """Returns whether results of the leaders are expected from this assignment."""
        found = self._assignments.get(number)
        return found is not None and found.device == device and found.finals

    # ---- what happens -----------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        """A problem more. Raises ValueError for one that is known."""
        if task.problem in self._problems:
            raise ValueError(f"{task.problem} is there already")
        kernels = dict.fromkeys(task.kernels)
        one = _Problem(task.problem, len(self._problems), task.weight / max(1, len(kernels)))
        self._problems[task.problem] = one
        self._problems_left += 1
        if task.again_of:
            one.fresh = False
            if (before := self._problems.get(task.again_of)) is not None:
                one.kind = before.kind
                home = self._devices.get(before.home)
                one.near = before.home if home is not None and home.usable else ""
        self._queue(_Part(one, kernels))

    def forget(self, problem: str) -> bool:
        """Leaves out a problem unless a device is at it. Returns whether it does."""
        one = self._problems[problem]
        if one.complete or any(held.part.problem is one for held in self._assignments.values()):
            return False
        self._complete(one)
        return True

    def joined(self, device: str, kind: str, now: float) -> None:
        """A device is there, new or again."""
        there = self._devices.get(device)
        if there is not None and there.usable:
            self.gone(device, now)
        if there is None:
            there = self._devices[device] = _Device(device, kind)
        there.kind, there.usable = kind, True
        self._idle[device] = there
        self._usable[kind] += 1

    def gone(self, device: str, now: float, *, died: bool = True) -> None:
        """A device is not there any more, or may not measure any more. died: its kernels may be the cause."""
        one = self._devices.get(device)
        if one is None or not one.usable:
            return
        one.usable = False
        self._usable[one.kind] -= 1
        self._kind_seen_s[one.kind] = now
        for assignment in [held for held in self._assignments.values() if held.device == device]:
            self._release(assignment)
            self._go_on(assignment.part, died=died)
        self._idle.pop(device, None)
        for _, _, part in self._near.pop(device, []):
            part.problem.near = ""
            part.problem.open_parts -= 1
            self._queue(part)

    def finished(self, device: str, number: int, kernel: str) -> bool:
        """A kernel of an assignment has a result. Returns whether it is the pair's first."""
        assignment = self._assignments.get(number)
        if assignment is None or assignment.device != device or kernel not in assignment.part.remaining:
            return False
        del assignment.part.remaining[kernel]
        assignment.done += 1
        return True

    def ended(self, device: str, number: int) -> bool:
        """An assignment has ended. Returns whether its results of the leaders count."""
        assignment = self._assignments.get(number)
        if assignment is None or assignment.device != device:
            return False
        self._release(assignment)
        part = assignment.part
        if part.remaining:
            # Without a result for every kernel nothing is known about the rest.
            self._go_on(part, died=not assignment.done)
            return False
        part.problem.open_parts -= 1
        if assignment.finals:
            self._complete(part.problem)
            return True
        if part.problem.open_parts == 0:
            self._queue(_Part(part.problem, {}))
        return False

    def stop_new(self) -> None:
        """No problem begins any more; those that have begun are finished."""
        self._begins_new = False

    # ---- what to do -------------------------------------------------------------------------------------

    def orders(self, now: float) -> list[Order]:
        """Returns what has to be done now. Every order is returned once."""
        orders: list[Order] = list(self._blamed)
        self._blamed.clear()
        self._unpin(now)
        no_straggler: set[str] = set()
        for device in [*self._idle.values()]:
            part = self._next(device)
            if part is not None:
                orders.append(self._assign(device, part, now))
            elif device.kind not in no_straggler:
                victim = self._straggler(device.kind, now)
                if victim is not None:
                    orders += self._split(victim, device, now)
                else:
                    no_straggler.add(device.kind)
        return orders

    def _next(self, device: _Device) -> _Part | None:
        """Returns the most urgent part that waits for the device, its kind, or any device."""
        own = (self._near.get(device.name), self._queues.get(device.kind), self._queues[None])
        queues = [queue for queue in own if queue]
        for queue in queues:
            while queue and queue[0][2].problem.complete:
                heappop(queue)  # it was forgotten
        heads = [one for one in queues if one and (self._begins_new or not one[0][2].problem.fresh)]
        return heappop(min(heads, key=lambda one: one[0][0]))[2] if heads else None

    def _assign(self, device: _Device, part: _Part, now: float) -> Assign:
        problem = part.problem
        problem.kind, problem.home, problem.near, problem.fresh = device.kind, device.name, "", False
        finals = problem.open_parts == 1
        assignment = _Assignment(self._number(), part, device.name, finals, now)
        self._assignments[assignment.number] = assignment
        self._idle.pop(device.name, None)
        return Assign(device.name, assignment.number, problem.name, tuple(part.remaining), finals)

    def _straggler(self, kind: str, now: float) -> _Assignment | None:
        """Returns the assignment of this kind that will take longest, if an idle device should help."""
        longest, found = self._patience.split_s, None
        for one in self._assignments.values():
            left = len(one.part.remaining)
            if left < _LEAST_TO_SPLIT or self._devices[one.device].kind != kind:
                continue
            seconds = (now - one.begun_s) / max(1, one.done) * left
            if seconds > longest:
                longest, found = seconds, one
        return found

    def _split(self, victim: _Assignment, device: _Device, now: float) -> list[Order]:
        part = victim.part
        names = list(part.remaining)
        taken = names[len(names) - len(names) // 2 :]
        for name in taken:
            del part.remaining[name]
        victim.finals = False
        part.problem.open_parts += 1
        home = part.problem.home
        order = self._assign(device, _Part(part.problem, dict.fromkeys(taken)), now)
        part.problem.home = home
        return [Withdraw(victim.device, victim.number, tuple(taken)), order]

    # ---- parts ------------------------------------------------------------------------------------------

    def _go_on(self, part: _Part, *, died: bool) -> None:
        """Queues the rest of a part whose device is gone."""
        part.problem.open_parts -= 1
        if not died:
            self._queue(part)
            return
        part.deaths += 1
        if not part.remaining:
            if part.deaths >= _MOST_DEATHS_OF_FINALS and part.problem.open_parts == 0:
                self.without_finals.append(part.problem.name)
                self._complete(part.problem)
                return
            self._queue(part)
        elif len(part.remaining) == 1:
            part.alone += 1
            if part.alone >= DEATHS_TO_BLAME:
                self._blame(part)
            else:
                self._queue(part)
        elif part.deaths < DEATHS_TO_ISOLATE:
            self._queue(part)
        else:
            names = list(part.remaining)
            for name in names[:ISOLATED_AT_ONCE]:
                self._queue(_Part(part.problem, {name: None}))
            if rest := names[ISOLATED_AT_ONCE:]:
                self._queue(_Part(part.problem, dict.fromkeys(rest)))

    def _blame(self, part: _Part) -> None:
        (kernel,) = part.remaining
        self._blamed.append(Blame(part.problem.name, kernel, part.alone))
        part.remaining.clear()
        if part.problem.open_parts == 0:
            self._queue(_Part(part.problem, {}))

    def _queue(self, part: _Part) -> None:
        problem = part.problem
        problem.open_parts += 1
        weight = problem.weight_a_pair * len(part.remaining)
        priority = (int(problem.fresh), problem.order if self._in_order else -weight, problem.order)
        queues: dict[Any, _Queue] = self._near if problem.near else self._queues
        heappush(queues.setdefault(problem.near or problem.kind, []), (priority, self._number(), part))

    def _unpin(self, now: float) -> None:
        """Lets another kind finish what waits for a kind that has been gone for too long."""
        for kind, queue in self._queues.items():
            if kind is None or not queue or self._usable[kind]:
                continue
            if now - self._kind_seen_s[kind] <= self._patience.kind_s:
                continue
            others = sorted(other for other, count in self._usable.items() if count)
            while others and queue:
                priority, number, part = heappop(queue)
                part.problem.kind = others[0]
                heappush(self._queues.setdefault(others[0], []), (priority, number, part))
            if others:
                break  # the dictionary may have changed; the rest follows with the next orders

    def _release(self, assignment: _Assignment) -> None:
        del self._assignments[assignment.number]
        self._idle[assignment.device] = self._devices[assignment.device]

    def _complete(self, problem: _Problem) -> None:
        problem.complete = True
        self._problems_left -= 1

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
