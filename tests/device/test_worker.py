"""The worker audits the whole of an interleaved timing, not only its last run."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from tile_oracle.device.audit import Audit
from tile_oracle.device.base import CheckResult, Device
from tile_oracle.device.worker import Worker
from tile_oracle.measure.commands import Final, Turn
from tile_oracle.measure.protocol import Channel


class LeakingDevice(Device):
    """A device whose kernel opens a file in its first timed run, and closes it at the test's end."""

    kernel_seconds = timed_ms = 0.0
    opened: int | None = None

    def verify(self, binary: Path) -> CheckResult:
        return CheckResult("ok")

    def sample(self, binary: Path, count: int) -> np.ndarray:
        if self.opened is None and binary.name == "leaks.so":
            self.opened = os.open(os.devnull, os.O_RDONLY)
        return np.full(count, 1000.0)


@pytest.mark.parametrize("name", ["leaks.so", "good.so"])
def test_what_an_early_pass_leaves_behind_is_reported(name: str) -> None:
    ours, theirs = socket.socketpair()
    parent, channel = Channel(ours.fileno(), ours.fileno()), Channel(theirs.fileno(), theirs.fileno())
    worker, device = Worker(channel), LeakingDevice()
    worker._device = device
    worker._audit = Audit(tuple, theirs.fileno(), strict=True)
    worker._final(Final([Turn(1, "k", f"/{name}", 3, token="t")], 3, []))
    messages = []
    while (message := parent.receive(0.0)) is not None:
        messages.append(message)
    assert [next(iter(message)) for message in messages] == ["began"] * 3 + ["done", "settled"]
    leaked = ["1 descriptors leaked"] if name == "leaks.so" else []
    # Other processes of the tests' parent may count as left behind.
    assert [change for change in messages[-1]["dirty"] if "descriptors" in change] == leaked
    if device.opened is not None:
        os.close(device.opened)
