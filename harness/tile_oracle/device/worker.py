"""The worker: a long-lived process that owns one device and runs kernels on it.

tile_oracle.measure.supervisor starts it as `python -m tile_oracle.device.worker READ_FD WRITE_FD`. It
receives commands and streams results. It announces each kernel before it runs it, so that a crash is blamed
on the right kernel. It never outlives its parent: when the parent's end of the pipe closes, a watching thread
ends the process, whatever a kernel is doing.
"""

from __future__ import annotations

import importlib
import math
import os
import resource
import select
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.arch.time_bound import impossible
from tile_oracle.device.audit import Audit
from tile_oracle.device.base import Device, KernelFailed, ProblemRefused
from tile_oracle.device.timing import CENSORED, Timing, summarise, time_kernel
from tile_oracle.measure.commands import Command, Final, Load, Open, Quit, Run, command_in
from tile_oracle.measure.guardian import CONTAINED
from tile_oracle.measure.protocol import Channel, ChannelClosed, Message, OwnChannel
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import Problem, problem_from_row
from tile_oracle.record.attempts import AttemptSlot

_IDLE_SECONDS = 0.25


class Worker:
    """Answers commands until told to quit. The first one opens the device."""

    _device: Device
    _audit: Audit

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._is_open = False
        self._problem: Problem | None = None
        self._plan, self._samples = TimingPlan(), False
        self._best_ms: float | None = None
        """The fastest median on the loaded problem so far."""
        self._slot: AttemptSlot | None = None
        self._binaries: dict[str, Path] = {}
        self._commands = 0

    def serve(self) -> None:
        rested = True
        while True:
            message = self._channel.receive(_IDLE_SECONDS)
            if message is None:
                if self._is_open:
                    self._device.idle()
                if not rested:
                    # A kernel may have read commands from the channel, so the parent compares the count.
                    self._channel.send({"resting": self._commands})
                    rested = True
                continue
            command = command_in(message)
            if isinstance(command, Quit):
                return
            self._commands += 1
            self._obey(command)
            rested = False

    def _obey(self, command: Command) -> None:
        match command:
            case Open():
                self._open(command)
            case Load():
                self._load(command)
            case Run():
                self._run(command)
            case Final():
                self._final(command)

    def absolve(self) -> None:
        """Clears the attempt when the parent died and no kernel of this process can be the cause."""
        if self._slot is not None:
            self._slot.end()

    def _open(self, command: Open) -> None:
        self._plan, self._samples = command.timing, command.samples
        try:
            module = importlib.import_module(command.device_module)
            self._device = module.open_device(**command.device_options)
            self._device.cold_cache = command.cold_cache
        except Exception as error:  # any error of a driver must reach the user as a message
            self._channel.send({"failed": f"{type(error).__name__}: {error}"})
            return
        info = self._device.info
        self._audit = Audit(self._device.inputs, self._channel.read_fd, strict=self._device.adds_nothing)
        self._device.after_load = self._audit.note_library
        self._is_open = True
        if command.attempts:
            self._slot = AttemptSlot(Path(command.attempts))
        self._channel.send({"opened": {"name": info.name, "driver": info.driver}})

    def _load(self, command: Load) -> None:
        problem = problem_from_row(command.problem)
        try:
            self._device.load(problem, command.seed, command.made)
        except (ProblemRefused, MemoryError) as error:
            self._channel.send({"refused": str(error) or "not enough memory"})
            return
        self._problem, self._best_ms = problem, None
        # It is kept, and imports what it needs now: a kernel may take the files away.
        self._device.limits.least_ms(problem)
        self._audit.note_inputs()
        if self._slot is not None:
            self._slot.load(problem.id, careful=command.careful)
        self._channel.send({"loaded": problem.id})

    def _run(self, command: Run) -> None:
        device, binary = self._device, self._binary(command.binary)
        self._begin(command.id, command.kernel)
        before, timed_before = device.kernel_seconds, device.timed_ms
        check = device.check(binary, command.lost_ms)
        answer: Message = {
            "done": command.id,
            "status": check.status,
            "detail": check.detail,
            "check": check.kind,
            "check_points": check.points,
            "tainted": check.tainted,
            "again": check.again,
            "facts": dict(check.facts),
        }
        check_s = device.kernel_seconds - before
        if check.lost_in_ms is not None:
            once = replace(summarise(np.array([check.lost_in_ms])), sampling=CENSORED)
            answer |= _timing_message(once, self._samples)
            answer |= {"busy_ms": check.lost_in_ms, "state": device.state().as_row()}
            answer["at_least_ms"] = check.at_least_ms
        elif check.status == "ok":
            try:
                timing, noisy = time_kernel(
                    lambda count: device.sample(binary, count),
                    self._plan,
                    lambda count: device.look(binary, count),
                    _least(self._best_ms, command.best_ms),
                )
                device.require_right(binary)
                refuse_impossible(device, self._problem, timing)
            except KernelFailed as error:
                answer |= error.as_answer()
            else:
                answer |= _timing_message(timing, self._samples)
                answer |= {"busy_ms": device.timed_ms - timed_before, "state": device.state().as_row()}
                if not noisy:
                    self._best_ms = _least(self._best_ms, timing.median_ms)
                else:
                    answer["status"] = "noisy"
                    answer["detail"] = _noise(timing)
        spent_s = device.kernel_seconds - before
        # Of a long kernel, check runs are samples: they are in busy_ms, and took no time after the check.
        samples_s = max(0.0, answer.get("busy_ms", 0.0) / 1e3 - (spent_s - check_s))
        answer["check_ms"] = 1e3 * max(0.0, check_s - samples_s)
        self._finish(answer | {"kernel_seconds": spent_s}, command.token)

    def _final(self, command: Final) -> None:
        """Times the leaders interleaved, in several passes, so that drift affects all of them alike."""
        device = self._device
        runs = command.runs
        samples: dict[int, list[np.ndarray]] = {run.id: [] for run in runs}
        seconds, busy_ms = dict.fromkeys(samples, 0.0), dict.fromkeys(samples, 0.0)
        failed: dict[int, Message] = {}
        device.claim()
        self._audit.begin()
        for number in range(command.passes):
            # Every other pass runs backwards, so that no kernel always follows the same neighbour.
            for run in runs if number % 2 == 0 else reversed(runs):
                identity = run.id
                if identity in failed:
                    continue
                self._announce(identity, run.kernel)
                before, timed_before = device.kernel_seconds, device.timed_ms
                binary = self._binary(run.binary)
                try:
                    taken = device.sample(binary, run.count + 1)
                    if number in (0, command.passes - 1):
                        device.require_right(binary)
                    samples[identity].append(taken[1:])  # the first run warms the caches after the neighbour
                except KernelFailed as error:
                    failed[identity] = error.as_answer()
                seconds[identity] += device.kernel_seconds - before
                busy_ms[identity] += device.timed_ms - timed_before
        sound = [run for run in runs if run.id not in failed]
        if sound:  # one of the leaders, since it takes some milliseconds
            differ = device.clocks_differ(self._binary(sound[0].binary))
            if differ is not None:
                failed[sound[0].id] = {"status": "noisy", "detail": differ, "tainted": False}
        state = device.state().as_row()
        tokens = {run.id: run.token for run in runs}
        for identity, taken_in_passes in samples.items():
            answer: Message = {"done": identity, "kernel_seconds": seconds[identity]}
            if identity in failed:
                answer |= failed[identity]
            else:
                timing = summarise(np.concatenate(taken_in_passes) / 1e6)
                noisy = self._is_noisy(timing, doubtful=identity in command.doubtful)
                answer |= {
                    "status": "noisy" if noisy else "ok",
                    "detail": _noise(timing) if noisy else "",
                    "busy_ms": busy_ms[identity],
                    "state": state,
                    **_timing_message(timing, self._samples),
                }
            self._finish(answer, tokens[identity])

    def _is_noisy(self, timing: Timing, *, doubtful: bool) -> bool:
        """doubtful: the kernel was noisy in the sweep. Too few samples to judge then count as noisy."""
        return timing.precision > self._plan.noisy_above or (doubtful and math.isnan(timing.precision))

    def _binary(self, text: str) -> Path:
        """Returns the path of a binary; the same object each time, since making and comparing paths takes
        long."""
        path = self._binaries.get(text)
        if path is None:
            path = self._binaries[text] = Path(text)
        return path

    def _begin(self, identity: int, kernel: str) -> None:
        self._device.claim()  # first, so that waiting for another session does not count as kernel time
        self._audit.begin()
        self._announce(identity, kernel)

    def _announce(self, identity: int, kernel: str) -> None:
        """Notes, and says, that the kernel runs next."""
        if self._slot is not None:
            self._slot.begin(kernel)
        self._channel.send({"began": identity})

    def _finish(self, answer: Message, token: str) -> None:
        """Audits this process, and sends the result with its confirmation."""
        report = self._audit.end(thorough=answer["status"] in ("wrong", "flaky", "build_error"))
        changes = report.changes
        if answer["status"] in ("wrong", "flaky") and "inputs" not in changes:
            # The memory of a GPU is out of the audit's reach.
            changes += ("inputs",) if self._device.inputs_changed() else ()
        if self._slot is not None:
            self._slot.end()
        settled = {"settled": token, "dirty": changes, "unfair": report.unfair, "processes": report.processes}
        self._channel.send(answer, settled)


def refuse_impossible(device: Device, problem: Problem | None, timing: Timing) -> None:
    """Raises KernelFailed for a median below the device's lower bound."""
    why = None if problem is None else impossible(problem, device.limits, timing.median_ms)
    if why is not None:
        raise KernelFailed(why)


def _noise(timing: Timing) -> str:
    return f"the median is known only to {100 * timing.precision:.0f} %"


def _least(first: float | None, second: float | None) -> float | None:
    """Returns the smaller of two values, of which there may be none."""
    known = [value for value in (first, second) if value is not None]
    return min(known, default=None)


def _timing_message(timing: Timing, with_samples: bool) -> dict[str, Any]:
    message: dict[str, Any] = {
        "latency_ms": timing.median_ms,
        "latency_min_ms": timing.min_ms,
        "spread": timing.spread,
        "samples": len(timing.sample_ms),
        "precision": None if math.isnan(timing.half_width) else timing.half_width,
        "sampling": timing.sampling,
    }
    if with_samples:
        message["sample_ms"] = [round(value, 7) for value in timing.sample_ms]
    return message


def _watch_parent(read_fd: int, worker: Worker) -> None:
    """Ends this process when the parent is gone."""
    poll = select.poll()
    poll.register(read_fd, 0)  # an empty event mask still reports a hang-up
    poll.poll()
    if os.environ.get(CONTAINED):
        worker.absolve()
    os._exit(0)


def _leave_no_core() -> None:
    """Disables core files. Crashes are expected here. The core file of a process with a GPU can be as large
    as the GPU's memory, and the parent would learn of the crash only after it was written."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def main(arguments: list[str]) -> int:
    """Arguments: READ_FD WRITE_FD. Serves until told to quit."""
    read_fd, write_fd = int(arguments[0]), int(arguments[1])
    _leave_no_core()
    worker = Worker(OwnChannel(read_fd, write_fd))
    threading.Thread(target=_watch_parent, args=(read_fd, worker), daemon=True).start()
    with suppress(ChannelClosed):
        worker.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
