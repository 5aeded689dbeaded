"""A forked process behaves like a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import LONGEST_S, has_ended
from tests.pytest_project import heed_ctrl_c
from tests.warm_python import can_run_warm, run_warm

PROBE = """
import os, signal, sys
print(__name__, sys.argv, os.getcwd(), sys.path, os.environ.get("OF_A_TEST"), os.environ.get("HOME"))
print(os.getpid() == os.getsid(0) == os.getpgid(0), len(os.listdir("/proc/self/fd")), repr(sys.stdin.read()))
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGTERM))
print("to stderr", file=sys.stderr)
exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(7)", "1 / 0", "os.kill(os.getpid(), signal.SIGINT)", "os.kill(os.getpid(), 9)"]
)
def test_a_fork_is_like_a_new_process(end: str, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    environment = {k: v for k, v in os.environ.items() if k != "HOME"} | {
        "OF_A_TEST": "é",
        "PYTHONUNBUFFERED": "1",
    }
    new = subprocess.run(
        [sys.executable, "-m", "probe", end],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
        check=False,
    )
    fork = run_warm("probe", [end], cwd=tmp_path, env=environment, timeout_s=LONGEST_S)
    assert (fork.returncode, fork.stdout) == (new.returncode, new.stdout)
    assert fork.stderr.splitlines()[:1] + fork.stderr.splitlines()[-1:] == [
        *new.stderr.splitlines()[:1],
        *new.stderr.splitlines()[-1:],
    ]


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        "import os\nprint(os.getpid(), flush=True)\nos.read(os.pipe()[0], 1)\n"
    )
    printed, timeout_s = b"", 1.0
    while not printed:  # it has begun
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            run_warm("waits", [], cwd=tmp_path, env=os.environ, timeout_s=timeout_s)
        printed, timeout_s = raised.value.stdout, 2 * timeout_s
    assert has_ended(int(printed))


def test_settings_of_the_interpreter_need_a_new_process() -> None:
    assert can_run_warm({"EVIL_GPU_HEADERS": "/tmp"})
    assert not can_run_warm({"PYTHONPATH": "/tmp"})
    assert not can_run_warm({"LD_PRELOAD": "/tmp/x.so"})
