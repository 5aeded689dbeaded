"""Manages the worker processes of one device, one at a time: starts, commands, reads and replaces them.

A worker that dies while no kernel runs is replaced, and no kernel is blamed. After a death during a kernel, a
known-good kernel runs first, so that a lost device is detected at once and not blamed on every later kernel.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tile_oracle.errors import DeviceMissingError
from tile_oracle.measure.child import Child
from tile_oracle.measure.containment import Containment, containment_for
from tile_oracle.measure.messages import Conversation, checked
from tile_oracle.measure.protocol import ChannelClosed, ChannelGarbled, Message
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import Problem
from tile_oracle.record.attempts import Attempts
from tile_oracle.target.base import DeviceInfo, Target

_QUIET_LIMIT_S = 1800.0
"""Limit for a worker's wait for the device; after that its silence counts as a fault."""
MOST_UNEXPLAINED_DEATHS = 3
"""Successive deaths of the worker without a running kernel, after which the device counts as lost."""
_BUDGETS_AT_MOST = 4
"""Budgets that a noisy kernel may take: three for samples, and the warm-up."""
_LOOK_S = 2.0
"""Interval between checks of an idle worker, in seconds."""
_MOST_STOPPED_LOOKS = 5
"""Successive checks that find the worker stopped by a signal before it is replaced: 10 s."""
_OPEN_LIMIT_S = 120.0
_STOLEN_S = 2.0
"""How long an idle worker may appear to have missed a command, since one may be in flight."""
_PROBE = -1
_OWN_OR_OUTSIDE = ("killed by SIGKILL", "ended by ", "wrote into the pipe")
"""Deaths that no earlier kernel of the same worker can have caused."""
_numbers = itertools.count()


class Lost(Exception):
    """The device no longer responds."""


class Refused(Exception):
    """The device cannot take the problem."""


class Died(Exception):
    """The worker died or was killed: status and detail for the kernel that ran."""

    def __init__(self, status: str, detail: str, job_id: int | None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job_id = status, detail, job_id

    @property
    def may_be_others(self) -> bool:
        """Whether an earlier kernel of the same worker may have caused it."""
        return self.status == "crash" and not self.detail.startswith(_OWN_OR_OUTSIDE)


class WorkerLink:
    """The worker of one device, with the state of both. Not thread-safe; must be closed.

    suspect: a known-good kernel must run before the next one. lost: why the device no longer responds, or
    None. used: this worker has been given a kernel that is not known to be good. kernel_seconds: see
    Supervisor.
    """

    def __init__(
        self,
        target: Target,
        settings: SweepSettings,
        journals: Path | None,
        containment: Containment | None,
    ) -> None:
        """Takes the arguments of Supervisor."""
        self.target = target
        self.settings = settings
        self.device: DeviceInfo | None = None
        self.kernel_seconds = 0.0
        self.suspect = False
        self.lost: str | None = None
        self.used = False
        self.attempts = Attempts(journals.parent, f"{os.getpid()}-{next(_numbers)}") if journals else None
        self._containment = containment
        self._journals = journals
        self._child: Child | None = None
        self._loaded: Problem | None = None
        self._good: list[tuple[Problem, Path]] = []
        """The last two good binaries, latest first, each with the problem that it ran on."""
        self._unexplained = 0
        self._last_id = 0
        self._talk = Conversation()
        self._since = 0.0
        """Start of the running kernel, by this process's clock."""

    def new_id(self) -> int:
        """A new identity for a run."""
        self._last_id += 1
        return self._last_id

    @property
    def is_busy(self) -> bool:
        """Whether results of the worker are outstanding."""
        return self._talk.open

    def ensure_worker(self) -> None:
        """Starts a worker if there is none. Raises Lost."""
        if self.lost is not None:
            raise Lost(self.lost)
        if self._child is None:
            self._start()

    def open(self) -> DeviceInfo:
        """Starts the worker and opens the device. Raises DeviceMissingError when that fails."""
        if self._child is None:
            try:
                self._start()
            except Lost as error:
                raise DeviceMissingError(f"target {self.target.name} cannot be opened: {error}") from None
        assert self.device is not None
        return self.device

    def close(self) -> None:
        """Ends the worker, whatever it is doing."""
        if self._child is not None and not self._talk.open:
            self._child.quit()
        self.drop()
        if self.attempts is not None:
            self.attempts.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def _start(self) -> Child:
        self.drop()
        options = dict(self.target.device_options())
        try:
            containment = self._containment or containment_for(self.target.name, self._journals)
            child = self._child = Child(self._journals, containment)
        except OSError as error:
            raise Lost(f"no worker process can be started: {error.strerror}") from None
        try:
            child.channel.send(
                {
                    "do": "open",
                    "device_module": self.target.device_module,
                    "device_options": options,
                    "timing": asdict(self.settings.timing),
                    "cold_cache": self.settings.cold_cache,
                    "attempts": str(self.attempts.path) if self.attempts and self.attempts.path else "",
                }
            )
            self._talk.handed()
            answer = self._answer(_OPEN_LIMIT_S, "opened", "failed")
        except ChannelClosed:
            death = child.death()
            self.drop()
            raise Lost(f"the worker {death}") from None
        if answer is None or "opened" not in answer:
            self.drop()
            raise Lost(answer["failed"] if answer is not None else f"no answer within {_OPEN_LIMIT_S:g} s")
        self.device = DeviceInfo(**answer["opened"])
        return child

    def drop(self) -> None:
        """Kills the worker and forgets everything that was sent to it."""
        if self._child is not None:
            self._child.kill()
        self._child = self._loaded = None
        self._talk = Conversation()
        self.used = False

    def _answer(self, limit_s: float, *kinds: str) -> Message | None:
        """The worker's answer to a command that runs no kernel, or None after `limit_s`. Raises
        ChannelClosed."""
        assert self._child is not None
        deadline = time.monotonic() + limit_s
        while True:
            message = self._receive_while_idle(deadline - time.monotonic())
            if message is None:
                return None
            message = checked(message)
            if any(kind in message for kind in kinds):
                return message
            if "resting" not in message:
                raise ChannelGarbled
            self._talk.resting(message)

    def _receive_while_idle(self, limit_s: float) -> Message | None:
        """The next message of a worker that runs no kernel, or None after `limit_s`.

        Kills a worker that is stopped by a signal, since nothing else may ever continue it. Raises
        ChannelClosed.
        """
        assert self._child is not None
        deadline = time.monotonic() + limit_s
        # Count checks, not seconds: if this process was stopped too, both may have been continued together.
        stopped = 0
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            message = self._child.channel.receive(min(left_s, _LOOK_S))
            if message is not None or left_s <= _LOOK_S:
                return message
            stopped = stopped + 1 if self._child.stopped else 0
            if stopped >= _MOST_STOPPED_LOOKS:
                self._child.kill(f"was stopped for {stopped * _LOOK_S:g} s and has been killed")
                raise ChannelClosed

    def ready(self, problem: Problem) -> None:
        """Ensures a worker that has the problem loaded. Raises Refused or Lost."""
        if self.lost is not None:
            raise Lost(self.lost)
        if self._unexplained >= MOST_UNEXPLAINED_DEATHS:
            raise Lost(f"the worker died {self._unexplained} times in a row while no kernel ran")
        death = ""
        for _ in range(2):
            if self.suspect:
                self._probe()
            try:
                self._load(problem)
            except Died as died:
                self.suspect, death = True, died.detail
                continue
            return
        if not self._good:
            raise Lost(death)
        # Other problems ran well on this device, so this problem is the cause.
        raise Refused(death)

    def _load(self, problem: Problem) -> None:
        """Loads the problem. Raises Refused, Died, and Lost when no worker starts."""
        child = self._child or self._start()
        if self._loaded == problem:
            return
        self._loaded = None
        try:
            command = {"do": "load", "problem": problem.as_row(), "seed": self.settings.seed}
            if self.attempts is not None:
                self.attempts.note_problem(problem.id)
                command["careful"] = self.attempts.careful(problem.id)
            child.channel.send(command)
            self._talk.handed()
            if self.attempts is not None:
                self.attempts.sync()  # while the worker loads
            answer = self._answer(_QUIET_LIMIT_S, "loaded", "refused")
        except ChannelClosed as closed:
            died = self._death(closed)
            raise Died("crash", f"the worker {died.detail} while it prepared the problem", None) from None
        if answer is None:
            self.drop()
            raise Died("timeout", "the worker did not finish preparing the problem", None)
        if "refused" in answer:
            raise Refused(answer["refused"])
        self._loaded = problem

    def _probe(self) -> None:
        """Runs known-good kernels, each in a second worker if it fails in the first.

        The device is lost when all of them fail; a single failure may be the kernel's own fault. Raises Lost.
        """
        failure: str | None = None
        for good in tuple(self._good):
            failure = self._try_good(*good)
            if failure is not None:
                self.drop()
                failure = self._try_good(*good)
            if failure is None:
                break
            self.drop()
            self.distrust(good[1])
        if failure is not None:
            raise Lost(f"a kernel that was good before {failure}")
        self.suspect = False

    def trust(self, problem: Problem, binary: Path) -> None:
        self._good = [(problem, binary), *(good for good in self._good if good[1] != binary)][:2]

    def distrust(self, binary: Path) -> None:
        """Stops using a kernel that has failed to judge the device by, if there is another."""
        self._good = [good for good in self._good if good[1] != binary] or self._good

    def _try_good(self, problem: Problem, binary: Path) -> str | None:
        """How a known-good kernel fails now, or None."""
        try:
            self._load(problem)
            self.send({"do": "run", "id": _PROBE, "binary": str(binary), "samples": False}, [_PROBE])
            answer = self.next_result(problem)
            if answer["dirty"]:
                self.drop()
        except (Died, Refused) as error:
            return f"now fails: {error}"
        return (
            None if answer["status"] in ("ok", "noisy") else f"is now {answer['status']}: {answer['detail']}"
        )

    def send(self, command: Message, identities: Sequence[int]) -> None:
        """Sends the worker a command that it answers with results."""
        assert self._child is not None
        tokens = {identity: secrets.token_hex(8) for identity in identities}
        if command["do"] == "final":
            command = command | {"runs": [run | {"token": tokens[run["id"]]} for run in command["runs"]]}
        else:
            (command["token"],) = tokens.values()
        # A dead worker may have left messages to read, which also tell the kernel it died in. Its death
        # is noticed after the last of them.
        with suppress(ChannelClosed):
            self._child.channel.send(command)
        self._talk.handed()
        self._talk.expect(tokens, interleaved=command["do"] == "final")

    def next_result(self, problem: Problem) -> Message:
        """The result of the next finished kernel.

        Raises Died when the worker dies or a kernel times out, and Lost when the worker never starts a
        kernel.
        """
        assert self._child is not None
        limit = self.settings.timeout_s or (
            self.target.timeout_s(problem) + _BUDGETS_AT_MOST * self.settings.timing.budget_ms / 1e3
        )
        quiet = _QUIET_LIMIT_S
        while True:
            try:
                if self._talk.running is None:
                    message = self._receive_while_idle(quiet)
                else:
                    left = self._since + limit - time.monotonic()
                    message = self._child.channel.receive(max(0.0, left))
                if message is None:
                    raise self._silence(limit, missed=quiet < _QUIET_LIMIT_S)
                message = checked(message)
                quiet = _QUIET_LIMIT_S
                if "began" in message:
                    self._talk.began(message)
                    # By this process's clock: the worker may have been blocked on a full pipe.
                    self._since = time.monotonic()
                elif "done" in message:
                    self._talk.done(message)
                elif "settled" in message:
                    result = self._talk.settled(message)
                    self._unexplained = 0
                    self.kernel_seconds += result["kernel_seconds"]
                    return result
                elif "resting" in message:
                    if self._talk.resting(message):
                        quiet = _STOLEN_S
                else:
                    raise ChannelGarbled
            except ChannelClosed as closed:
                raise self._death(closed) from None

    def _silence(self, limit: float, *, missed: bool) -> Died | Lost:
        assert self._child is not None
        if self._child.ended:
            # A process that it started must hold its pipe open, or the channel would have closed.
            return self._death(ChannelClosed())
        if missed:
            return self._death(ChannelGarbled())
        running = self._talk.running
        if running is None:
            self.drop()
            return Lost(f"the worker waited {_QUIET_LIMIT_S:g} s for the device")
        died = Died("timeout", self._child.with_output(f"no result after {limit:g} s"), running)
        self.kernel_seconds += limit
        self.drop()
        return died

    def _death(self, closed: ChannelClosed) -> Died:
        assert self._child is not None
        job = self._talk.running
        if job is not None:
            self.kernel_seconds += time.monotonic() - self._since
        status = "crash"
        if isinstance(closed, ChannelGarbled):
            detail = self._child.with_output("wrote into the pipe between worker and harness")
        else:
            detail = self._child.death()
            if self._child.stopped_the_harness:
                status = "timeout"
        self.drop()
        self.suspect = True
        self._unexplained += job is None
        return Died(status, detail, job)
