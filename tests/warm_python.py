"""`python -m MODULE ...` in forked processes with the imports already done.

Most of the time of a short pytest session is imports. A server, one for each process that runs tests, imports
what sessions need and forks for each of them. The fork has what a new process would have: arguments, working
directory, environment, streams and a session (setsid) of its own; it ends as Python ends.

Tests of signals, of process trees and of imports need a process that was executed: they use
tests.pytest_project.Project.start. So do sessions whose environment the interpreter itself reads.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn, TextIO

_READ_AT_START = ("PYTHON", "LD_", "OMP_", "OPENBLAS_", "MALLOC_", "ARROW_")
"""Prefixes of variables that are read once, when the interpreter or a library is loaded."""
_HEAVY = ("lightgbm", "pandas.core.reshape.reshape", "pyarrow.pandas_compat", "pyarrow.parquet", "pytest")
_PACKAGES = ("session", "report", "record", "commands")
"""Packages of tile_oracle that sessions and commands import whole."""


# ---- for tests ---------------------------------------------------------------------------------------


def can_run_warm(more: Mapping[str, str]) -> bool:
    """Whether a fork means the same as a new process with `more` in its environment."""
    return not any(name.startswith(_READ_AT_START) for name in more)


def run_warm(
    module: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments`; waits until all that have its output open have ended.

    together: stderr goes where stdout goes.
    Raises subprocess.TimeoutExpired, after its process group was killed.
    """
    pipes = [os.pipe() for _ in ("status", "stdout", "stderr")]
    theirs = [end for _, end in pipes]
    request = json.dumps([module, list(arguments), str(cwd), dict(env), together])
    try:
        socket.send_fds(_server(), [request.encode()], theirs)
    finally:
        for end in theirs:
            os.close(end)
    ends = [end for end, _ in pipes]
    read = {end: bytearray() for end in ends}
    _read_on(read, time.monotonic() + timeout_s)
    in_time = b" " in read[ends[0]].strip()
    if not in_time and read[ends[0]]:
        with suppress(ProcessLookupError):
            os.killpg(int(read[ends[0]]), signal.SIGKILL)
        _read_on(read, time.monotonic() + 300)
    for end in ends:
        os.close(end)
    status, stdout, stderr = read.values()
    if not in_time:
        raise subprocess.TimeoutExpired([module, *arguments], timeout_s, bytes(stdout), bytes(stderr))
    code = os.waitstatus_to_exitcode(int(status.split()[1]))
    return subprocess.CompletedProcess([module, *arguments], code, _text(stdout), _text(stderr))


def _read_on(read: dict[int, bytearray], until: float) -> None:
    """Add what comes from each to its end, or to that moment of time.monotonic()."""
    with selectors.DefaultSelector() as selector:
        for end in read:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if data := os.read(key.fd, 1 << 16):
                    read[key.fd] += data
                else:
                    selector.unregister(key.fd)


def _text(output: bytearray) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


@cache
def _server() -> socket.socket:
    """Where its requests go. It ends when this process does, which closes the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.run(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # A library that starts threads when it is imported leaves them out of forks.
            env=os.environ | {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
            check=True,
        )
    return ours


# ---- the server --------------------------------------------------------------------------------------


def _import_all() -> None:
    for name in _HEAVY:
        # A machine that only measures has no LightGBM: what needs it says so itself.
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    # A session without tests imports the plugins in the way of pytest, which rewrites their assertions.
    with tempfile.TemporaryDirectory() as empty:
        (Path(empty) / "pytest.ini").write_text("[pytest]\n")
        sys.modules["pytest"].main(
            ["-qqq", "--collect-only", "-pno:cacheprovider", "--rootdir", empty, empty]
        )
    for name in _PACKAGES:
        package = importlib.import_module(f"tile_oracle.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            with suppress(ModuleNotFoundError):
                importlib.import_module(module.name)
    for operation in pkgutil.iter_modules(importlib.import_module("tile_oracle.operations").__path__):
        with suppress(ModuleNotFoundError):
            importlib.import_module(f"tile_oracle.operations.{operation.name}.descriptor")
    # Each process would compile the templates of the report anew.
    report = sys.modules["tile_oracle.report.html"]
    templates = sys.modules["tile_oracle.pages.render"]._environment(report.PAGE, report.anchor)
    for name in templates.list_templates(["html"]):
        templates.get_template(name)


def _serve(requests: socket.socket) -> None:
    """Fork for every request. Returns in the forks, as new processes; ends when the socket is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, ends, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _tell_its_end(*ends)
            return _begin(*json.loads(message), *ends)
        for end in ends:
            os.close(end)


def _tell_its_end(status: int, *output: int) -> None:
    """Fork once more and return in the fork; the parent writes the fork's process id and how it ended."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        return
    for end in output:
        os.close(end)
    os.write(status, f"{pid} ".encode())
    _, how = os.waitpid(pid, 0)
    os.write(status, str(how).encode())
    os._exit(0)


def _begin(
    module: str, arguments: list[str], cwd: str, environment: dict[str, str], together: bool, *ends: int
) -> NoReturn:
    """What the interpreter does before it runs `-m module`, and the run."""
    _, stdout, stderr = ends
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, end in enumerate((nothing, stdout, stdout if together else stderr)):
        os.dup2(end, number)
    for end in (nothing, *ends):
        os.close(end)
    # The parent's streams may be files, and believe that they can seek.
    sys.stdout = sys.__stdout__ = _like(sys.stdout, 1)
    sys.stderr = sys.__stderr__ = _like(sys.stderr, 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None
    sys.path[0] = cwd
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _like(stream: TextIO, number: int) -> TextIO:
    """A stream to the descriptor, with the encoding and the buffering of another one."""
    assert isinstance(stream, io.TextIOWrapper)
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


if __name__ == "__main__":
    # A child of the process that runs tests would be among those that tests count.
    if os.fork():
        os._exit(0)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        sys.path[0] = ""
        _import_all()
        gc.freeze()
        _serve(requests)
