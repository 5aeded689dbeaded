"""The memory that a real control group of this machine leaves, where this user may make one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import run_python

LIMIT_BYTES = 300 << 20
_LIMITS = {"memory.max": "", "memory.limit_in_bytes": "memory"}

PROGRAM = """
import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
Path(sys.argv[1], "cgroup.procs").write_text("0")
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.targets.cpu_info import memory_available_bytes
print(memory_available_bytes())
class Arguments(ctypes.Structure):
    _fields_ = [("workspace", ctypes.c_void_p)]
library = SimpleNamespace(launch=1, code=SimpleNamespace(to_workspace_bytes=lambda arguments: 1 << 30))
try:
    CpuDevice()._attach_workspace(library, Arguments(), flush=True)
except MemoryError as error:
    print(error)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit, below this process's own; removed at the end."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for limit, controller in _LIMITS.items():
            if controllers != controller:
                continue
            made = Path("/sys/fs/cgroup", controller, path.lstrip("/"), f"tile-oracle-test-{os.getpid()}")
            try:
                made.mkdir()
            except OSError:
                continue
            try:
                with suppress(OSError):
                    (made / limit).write_text(str(LIMIT_BYTES))
                    yield made
                    return
            finally:
                made.rmdir()
    pytest.skip("this user may make no control group with a limit of memory")


def test_a_workspace_larger_than_the_control_group_is_refused(group: Path) -> None:
    ended = run_python("-c", PROGRAM, str(group))
    assert ended.returncode == 0, ended.stderr
    left, refused = ended.stdout.splitlines()
    assert 0 < int(left) <= LIMIT_BYTES
    assert refused.startswith("cannot allocate 1,073,741,824 bytes: 0.")
    assert refused.endswith("GiB of memory are free")
