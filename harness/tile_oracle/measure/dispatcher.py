"""Which device measures what: a state machine without clocks, threads or devices of its own.

Work comes in parts: some or all kernels of one problem, once they are built. The part that a device has is
its assignment. It has one at a time. The part of a device that dies goes on elsewhere, without the pairs that
it has finished. An idle device takes over half of the kernels that a straggler has left. A problem's leaders
are measured again by one device: by the one that swept it, or, if several did, by one of them once all
kernels have been swept.

A pair counts when its first result arrives; later results of the same pair are refused. So nothing is lost
and nothing is doubled, however many devices have tried a pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

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
    weight: expected time in any unit. after_stop: it is given to a device although the others are not any
    more. unbuilt: the kernels that cannot run before `Dispatcher.built` names them.
    """

    problem: str
    kernels: Sequence[str]
    weight: float = 1.0
    after_stop: bool = False
    unbuilt: Collection[str] = ()


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


@dataclass
class _Problem:
    name: str
    order: int
    weight_a_pair: float
    unbuilt: set[str]
    after_stop: bool
    open_parts: int = 0
    fresh: bool = True
    """Not begun."""
    complete: bool = False

    @property
    def is_swept(self) -> bool:
        return not (self.open_parts or self.unbuilt)


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


class Dispatcher:
    """Feed it with what happens, ask it for `orders`. Times are seconds on any steady clock."""

    def __init__(self, *, in_order: bool = False, split_s: float = 3.0, ahead: bool = True) -> None:
        """in_order: problems begin in the order of the tasks, not the longest first. split_s: a straggler
        keeps its kernels if they take less than this, in seconds. ahead: a problem begins with some of its
        binaries although another waits for some, too."""
        self._in_order, self._split_s, self._ahead = in_order, split_s, ahead
        self._problems: dict[str, _Problem] = {}
        self._assignments: dict[int, _Assignment] = {}
        self._queue: list[tuple[_Priority, int, _Part]] = []
        """A heap of parts that wait for a device, the most urgent first."""
        self._growing: dict[str, _Part] = {}
        """Problem -> what is built of it, while that is less than what is not."""
        self.usable: dict[str, str] = {}
        """The devices that get work, each with the problem whose data it has."""
        self._upcoming: dict[str, str] = {}
        """What devices were told to expect."""
        self._idle: dict[str, None] = {}
        """Those without an assignment."""
        self._numbers = 0
        self._problems_left = 0
        self._stopped = False
        self._due: list[Order] = []
        self.rests = False
        """Whether the last orders left all devices without work, and no problem was added since."""
        self.without_finals: list[str] = []
        """Problems whose leaders were given up, because devices died while they were measured again."""

    # ---- what is known ----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do; what no device is given any more does not count."""
        if not self._stopped:
            return self._problems_left == 0
        there = self._problems.values()
        return not self._assignments and all(one.complete or not one.after_stop for one in there)

    @property
    def has_work(self) -> bool:
        """Whether there is something that is measured or could be."""
        return bool(self._queue or self._growing or self._assignments)

    def has_measured(self, problem: str) -> bool:
        """Returns whether nothing of a problem is left to do, or a device will do any more."""
        one = self._problems[problem]
        return one.complete or (self._stopped and not self._is_at(one))

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
        unbuilt = kernels.keys() & set(task.unbuilt)
        weight = task.weight / max(1, len(kernels))
        one = _Problem(task.problem, len(self._problems), weight, unbuilt, task.after_stop)
        one.fresh = not task.after_stop
        self._problems[task.problem], self.rests = one, False
        self._problems_left += 1
        self._grow(one, [name for name in kernels if name not in unbuilt])

    def built(self, problem: str, kernel: str) -> None:
        """A kernel can run now, or is known not to build."""
        one = self._problems[problem]
        if kernel in one.unbuilt:
            one.unbuilt.remove(kernel)
            self._grow(one, [kernel])

    def forget(self, problem: str) -> bool:
        """Leaves out a problem unless a device is at it. Returns whether it does."""
        one = self._problems[problem]
        if one.complete or self._is_at(one):
            return False
        self._growing.pop(problem, None)
        one.unbuilt.clear()
        self._complete(one)
        return True

    def joined(self, device: str) -> None:
        """A device is there, new or again."""
        if device in self.usable:
            self.gone(device)
        self.usable[device], self._idle[device] = "", None

    def gone(self, device: str, *, died: bool = True) -> None:
        """A device is not there any more, or may not measure any more. died: its kernels may be the cause."""
        if device not in self.usable:
            return
        del self.usable[device]
        for assignment in [held for held in self._assignments.values() if held.device == device]:
            self._release(assignment)
            self._go_on(assignment.part, died=died)
        self._idle.pop(device, None)

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
            self._go_on(part, died=not (assignment.done or self._stopped))
            return False
        part.problem.open_parts -= 1
        if assignment.finals:
            self._complete(part.problem)
            return True
        if part.problem.is_swept:
            self._wait(_Part(part.problem, {}))
        return False

    def stop(self) -> None:
        """Leaves what no device has, and takes back what devices have and have not begun."""
        at = [] if self._stopped else self._assignments.values()
        self._stopped = True
        self._due += [
            Withdraw(one.device, one.number, tuple(one.part.remaining))
            for one in at
            if self._is_left(one.part.problem)
        ]

    # ---- what to do -------------------------------------------------------------------------------------

    def orders(self, now: float) -> list[Order]:
        """Returns what has to be done now. Every order is returned once."""
        orders, self._due = self._due, []
        for device in [*self._idle]:
            if (part := self._next(device)) is not None:
                orders.append(self._assign(device, part, now))
            elif (victim := self._straggler(now)) is not None:
                orders += self._split(victim, device, now)
            elif not self._growing:
                break
        self.rests = not self._assignments
        return orders

    def _next(self, device: str) -> _Part | None:
        """Returns the most urgent part that waits."""
        queue = self._queue
        while queue and self._is_left(queue[0][2].problem):
            heappop(queue)
        if queue and self._may_run(queue[0][2].problem):
            return self._taken(self._upcoming.get(device, ""))
        return self._growing_part(self.usable[device])

    def _taken(self, expected: str) -> _Part:
        """Takes the most urgent part; if that is of a problem that no device has begun, the one that the
        device expects."""
        queue = self._queue
        for place, (_, _, part) in enumerate(queue if queue[0][2].problem.fresh else ()):
            if part.problem.name == expected and part.problem.fresh and self._may_run(part.problem):
                del queue[place]
                heapify(queue)
                return part
        return heappop(queue)[2]

    def upcoming(self, device: str) -> str:
        """Returns the problem that a device probably begins next, "" for none; another one for each device,
        which gets it if it is still there."""
        others = {name for one, name in self._upcoming.items() if one != device and one in self.usable}
        waiting = (part.problem for _, _, part in sorted(self._queue))
        fresh = (one.name for one in waiting if one.fresh and one.name not in others)
        self._upcoming[device] = next(fresh, "")
        return self._upcoming[device]

    def _may_run(self, problem: _Problem) -> bool:
        if self._is_left(problem):
            return False
        may_begin = not problem.fresh or self._ahead or not problem.unbuilt
        return may_begin or all(one.fresh or not one.unbuilt for one in self._problems.values())

    def _is_left(self, problem: _Problem) -> bool:
        """Whether a problem was forgotten, or no device is given it any more."""
        return problem.complete or (self._stopped and not problem.after_stop)

    def _is_at(self, problem: _Problem) -> bool:
        """Whether a device has a part of a problem."""
        return any(held.part.problem is problem for held in self._assignments.values())

    def _growing_part(self, has_data: str) -> _Part | None:
        """Returns what is built of a problem, for a device that has its data, or whose data nothing needs.

        Other problems wait until half of what they lack is built, since their data take time, too.
        """
        held = self._problems.get(has_data)
        name = has_data if held is not None and held.unbuilt else next(iter(self._growing), "")
        part = self._growing.get(name)
        if part is None or not self._may_run(part.problem):
            return None
        part.problem.open_parts += 1
        return self._growing.pop(name)

    def _assign(self, device: str, part: _Part, now: float) -> Assign:
        problem = part.problem
        problem.fresh = False
        self.usable[device] = problem.name
        finals = problem.open_parts == 1 and not problem.unbuilt
        assignment = _Assignment(self._number(), part, device, finals, now)
        self._assignments[assignment.number] = assignment
        self._idle.pop(device, None)
        return Assign(device, assignment.number, problem.name, tuple(part.remaining), finals)

    def _straggler(self, now: float) -> _Assignment | None:
        """Returns the assignment that will take longest, if an idle device should help."""
        longest, found = self._split_s, None
        for one in () if self._stopped else self._assignments.values():
            left = len(one.part.remaining)
            if left < _LEAST_TO_SPLIT:
                continue
            seconds = (now - one.begun_s) / max(1, one.done) * left
            if seconds > longest:
                longest, found = seconds, one
        return found

    def _split(self, victim: _Assignment, device: str, now: float) -> list[Order]:
        part = victim.part
        names = list(part.remaining)
        taken = names[len(names) - len(names) // 2 :]
        for name in taken:
            del part.remaining[name]
        victim.finals = False
        part.problem.open_parts += 1
        order = self._assign(device, _Part(part.problem, dict.fromkeys(taken)), now)
        return [Withdraw(victim.device, victim.number, tuple(taken)), order]

    # ---- parts ------------------------------------------------------------------------------------------

    def _go_on(self, part: _Part, *, died: bool) -> None:
        """Queues the rest of a part whose device is gone."""
        part.problem.open_parts -= 1
        if not died:
            self._wait(part)
            return
        part.deaths += 1
        if not part.remaining:
            if part.deaths >= _MOST_DEATHS_OF_FINALS and part.problem.is_swept:
                self.without_finals.append(part.problem.name)
                self._complete(part.problem)
                return
            self._wait(part)
        elif len(part.remaining) == 1:
            part.alone += 1
            if part.alone >= DEATHS_TO_BLAME:
                self._blame(part)
            else:
                self._wait(part)
        elif part.deaths < DEATHS_TO_ISOLATE:
            self._wait(part)
        else:
            names = list(part.remaining)
            for name in names[:ISOLATED_AT_ONCE]:
                self._wait(_Part(part.problem, {name: None}))
            if rest := names[ISOLATED_AT_ONCE:]:
                self._wait(_Part(part.problem, dict.fromkeys(rest)))

    def _blame(self, part: _Part) -> None:
        (kernel,) = part.remaining
        self._due.append(Blame(part.problem.name, kernel, part.alone))
        part.remaining.clear()
        if part.problem.is_swept:
            self._wait(_Part(part.problem, {}))

    def _grow(self, problem: _Problem, built: Iterable[str]) -> None:
        """Queues what is built of a problem once it is as much as what is not."""
        part = self._growing.pop(problem.name, None) or _Part(problem, {})
        part.remaining |= dict.fromkeys(built)
        if len(part.remaining) >= len(problem.unbuilt):
            self._wait(part)
        elif part.remaining:
            self._growing[problem.name] = part

    def _wait(self, part: _Part) -> None:
        problem = part.problem
        problem.open_parts += 1
        weight = problem.weight_a_pair * len(part.remaining)
        priority = (int(problem.fresh), problem.order if self._in_order else -weight, problem.order)
        heappush(self._queue, (priority, self._number(), part))

    def _release(self, assignment: _Assignment) -> None:
        del self._assignments[assignment.number]
        self._idle[assignment.device] = None

    def _complete(self, problem: _Problem) -> None:
        problem.complete = True
        self._problems_left -= 1

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
