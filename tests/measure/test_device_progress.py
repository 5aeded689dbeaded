"""The state of hundreds of devices in one line."""

from __future__ import annotations

from tests.measure.simulated_engine import result
from tile_oracle.measure.assignments import Opened
from tile_oracle.measure.device_progress import DevicesProgress
from tile_oracle.measure.dispatcher import Dispatcher, Task


def test_the_rate_is_that_of_the_last_minute() -> None:
    dispatcher = Dispatcher([Task("p", [f"k{k}" for k in range(1000)], 1.0)])
    progress = DevicesProgress()
    progress.plan(1000)
    progress.joined("d", Opened("H200", "driver", "host", 1))
    progress.update(dispatcher, 0.9, 0)
    assert progress.line == ""
    rates = ["", ", 10 pairs/s, 1:40 left", ", 3.33 pairs/s, 5:00 left", ", 1 pairs/s, 16:40 left"]
    for now, pairs, rate in zip((1.0, 11.0, 61.0, 111.0), (0, 100, 100, 50), rates, strict=True):
        progress.pairs += pairs
        progress.update(dispatcher, now, 0)
        assert progress.line.endswith(f"{progress.pairs} of 1,000 pairs{rate}")


def test_three_hundred_devices_fit_on_a_line() -> None:
    dispatcher = Dispatcher([Task(f"p{n}", [f"k{k}" for k in range(400)], 400.0) for n in range(296)])
    progress = DevicesProgress()
    progress.plan(300 * 400)
    for n in range(300):
        progress.joined(f"d{n}", Opened("H200", "driver", "host", n))
        dispatcher.joined(f"d{n}", "H200", 0.0)
    for n in range(3):
        dispatcher.gone(f"d{n}", 0.0, died=False)
        progress.set_aside(f"d{n}", "H200", "it is slow")
    dispatcher.gone("d3", 0.0)
    progress.gone("d3", "killed")
    for n in range(4, 8):
        dispatcher.gone(f"d{n}", 0.0)
        dispatcher.joined(f"d{n}", "H200", 0.0)
    orders = dispatcher.orders(0.0)
    assert len(orders) == 296
    progress.update(dispatcher, 100.0, 12)
    for order in orders[:148]:
        for kernel in order.kernels[:200]:  # type: ignore[union-attr]
            dispatcher.finished(order.device, order.number, kernel)  # type: ignore[union-attr]
            progress.pair(order.device, result())
    for now in (110.0, 110.5):  # at most once a second
        progress.update(dispatcher, now, 12)
    assert progress.line == (
        "296 devices, 100 % busy, 29,600 of 120,000 pairs, 2,960 pairs/s, 0:30 left, "
        "12 kernels to build, 3 set aside, 1 gone"
    )
