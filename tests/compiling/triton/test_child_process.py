"""The processes that compile with Triton: they end with the session that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import has_ended, wait_until

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


def _opened(fifo: Path) -> int | None:
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads it yet
        return None


def test_a_compiler_ends_when_its_session_is_killed(tmp_path: Path) -> None:
    unit = tmp_path / "unit.json"
    os.mkfifo(unit)  # reading it never ends
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(unit), str(tmp_path)])
    try:
        # Opening a FIFO for writing succeeds only when a reader is there: the compiler's process.
        writer = wait_until(lambda: _opened(unit))
        (child,) = _children(parent.pid)
        assert not has_ended(child)
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: has_ended(child))
        os.close(writer)
    finally:
        parent.kill()
        parent.wait()
