"""The state of hundreds of devices in a few words."""

from __future__ import annotations

from tile_oracle.measure.assignments import Opened
from tile_oracle.measure.device_progress import DevicesProgress


def test_three_hundred_devices_fit_on_a_line() -> None:
    progress = DevicesProgress()
    assert progress.line() == "0 devices"
    for n in range(300):
        progress.joined(f"d{n}", Opened("H200", "host"))
    for n in range(3):
        progress.set_aside(f"d{n}", "", "it is slow")
    for n in range(3, 8):
        progress.gone(f"d{n}", "killed")
    for n in range(4, 8):
        progress.joined(f"d{n}", Opened("H200", "host"))
    assert progress.line() == "296 devices, 3 set aside, 1 gone"
    assert progress.notes()[:1] == ["d0 (H200) is set aside: it is slow"]
    assert progress.notes()[3:] == ["d3 (H200) is gone: killed"]
