"""The emulated GPU behind HIP's and CUDA's functions refuses what a driver refuses, and a fault is for good.

In a process of its own: kernels find the emulator by name, and this one may have another.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.kernels.emulated_gpu.machine import VISIBLE, EmulatedMachine
from tests.processes import run_python

SCRIPT = """
import sys
from ctypes import byref, c_void_p
from tile_oracle.device.runtime.driver import RuntimeFailure
if sys.argv[1] == "gfx950":
    from tile_oracle.device.runtime.hip import open_hip as open_driver
else:
    from tile_oracle.device.runtime.cuda import open_cuda as open_driver

def refused(call, *arguments):
    try:
        call(*arguments)
    except RuntimeFailure as failure:
        return failure.code
    return 0

driver = open_driver()
found = driver.properties()
assert found.arch == sys.argv[1], found
assert found.identity == "0000:e1:00.0", found
assert refused(open_driver, 1) == 101

there = driver.free_memory_bytes()
memory = driver.allocate(1000)
driver.set_bytes(memory, 7, 1000)
assert driver.copy_out(memory + 990, 10) == bytes([7]) * 10
assert refused(driver.copy_out, memory + 990, 11) == 1
assert refused(driver.copy_in, memory - 1, b"12") == 1
assert refused(driver.set_bytes, memory, 0, 1001) == 1
assert refused(driver.allocate, there) == 2
driver.free(memory)
assert refused(driver.free, memory) == 1
assert driver.free_memory_bytes() == there

for image in (b"no image", b"\\x7fELF" + bytes(60), b"//\\n.version 8.0"):
    assert refused(driver.load_module, image) in (200, 209)
assert refused(driver.launch_graph, 4711) == 400
early, late = driver.make_event(), driver.make_event()
driver.record(early)
assert refused(driver.elapsed_ns, [early, late]) == 400

# A capture that anything but a launch disturbs comes to nothing, and the stream goes on.
driver.call("capture_begin", driver.stream, 1)
assert refused(driver.allocate, 10) == 900
assert refused(driver.call, "capture_end", driver.stream, byref(c_void_p())) == 901
driver.synchronize()
print("all as it should be")
"""


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_requests_that_a_driver_refuses(
    emulated_machine: Callable[[str], EmulatedMachine], arch: str
) -> None:
    environment = {**os.environ, **emulated_machine(arch).environment(gpus=2), VISIBLE[arch]: "1"}
    done = run_python("-c", SCRIPT, arch, env=environment)
    assert done.stdout == "all as it should be\n", done.stderr
