"""Compiles units in forks of a process that has imported Triton and the user's file. `main` is the program of
a tile_oracle.compiling.fork_server.

FOLDER has the user's files. Standard input is a socket of requests. Each is JSON, [arguments of compile_unit
but the folder, work folder, environment], with two open files: the log, and a socket for the process id and,
later, the exit status. Half of the time that a kernel takes in a process of its own are imports.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tile_oracle.compiling.triton import compile_unit
from tile_oracle.errors import HarnessError

_PR_SET_PDEATHSIG = 1
# What the reader takes at once. After a shorter id it might take the exit status, too, as more digits.
ID_BYTES = 32


def main(files_of_user: str) -> int:
    """Forks until the socket is closed, which it is when the parent ends. Returns 1 where the user's file has
    started threads, which a fork lacks."""
    folder, server = Path(files_of_user).resolve(), socket.socket(fileno=0)
    _die_with_parent(0)  # that is the thread of the parent that has started this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(server, 1 << 20, 2)
        if not message:
            return 0
        arguments, work, environment = json.loads(message)
        _import(folder, Path(work, arguments[0]))
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
            return 1
        if os.fork() == 0:
            _watch(folder, arguments, work, environment, *files)
        for file in files:
            os.close(file)


def _import(folder: Path, unit: Path) -> None:
    """Imports the compiler and the user's file. What goes wrong, goes wrong in the fork again, and is told
    there."""
    with suppress(HarnessError):
        told = json.loads(unit.read_text("utf-8"))
        os.environ.update(told.get("environment", {}))
        compile_unit.target(told["arch"])
        compile_unit.declarations_in(folder / told["file"])


def _watch(
    folder: Path, arguments: list[str], work: str, environment: dict[str, str], log: int, answer: int
) -> NoReturn:
    """Forks the compiler and says when it has ended. Its id stays taken until that was read."""
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _die_with_parent()
        os.close(answer)
        os._exit(_compile(folder, arguments, work, environment, log))
    with suppress(OSError):  # the fork may have done it
        os.setpgid(pid, pid)
    end = socket.socket(fileno=answer)
    end.send(str(pid).encode().ljust(ID_BYTES))
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    end.send(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode())
    end.recv(1)
    os._exit(0)


def _compile(folder: Path, arguments: list[str], work: str, environment: dict[str, str], log: int) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(work)
    os.environ.clear()
    # Triton takes the home folder when it is imported.
    os.environ.update(environment | compile_unit.SETTINGS | {"TRITON_HOME": work})
    tempfile.tempdir = None
    try:
        unit, archive, *assembly = arguments
        return compile_unit.main(unit, str(folder), archive, *assembly)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _die_with_parent(by: int = signal.SIGKILL) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
