"""The processes that compile with Triton: they end with the session that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PARENT = """
import sys
from pathlib import Path
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.compiling.triton.child_process import child_command

unit, work = sys.argv[1:]
CompilerProcesses().run(child_command("compile_unit", unit, work, "archive"), Path(work), 300.0)
"""


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_compiler_ends_when_its_session_is_killed(tmp_path: Path) -> None:
    unit = tmp_path / "unit.json"
    os.mkfifo(unit)  # reading it never ends
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(unit), str(tmp_path)])
    try:
        # Opening a FIFO for writing succeeds only when a reader is there: the compiler's process.
        deadline = time.monotonic() + 60
        while True:
            try:
                writer = os.open(unit, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                assert time.monotonic() < deadline, "the compiler never read its unit"
                time.sleep(0.05)
        (child,) = _children(parent.pid)
        assert not _is_over(child)
        os.kill(parent.pid, signal.SIGKILL)
        while not _is_over(child):
            assert time.monotonic() < deadline, "the compiler outlived its session"
            time.sleep(0.05)
        os.close(writer)
    finally:
        parent.kill()
        parent.wait()
