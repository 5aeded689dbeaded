"""Has another process make what the host computes of the next problem, while a worker measures."""

from __future__ import annotations

import select
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tile_oracle.measure.commands import Load
from tile_oracle.problem import Problem
from tile_oracle.process.children import child_environment
from tile_oracle.process.cores import usable_cores

_FEWEST_CORES = 2
_LIMIT_S = 600.0


class DataAhead:
    """The process of one device, which starts when it is first asked. Must be closed.

    Where it fails or dies nothing is lost: the worker computes what is not there.
    """

    _folder: TemporaryDirectory[str]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: deque[Problem] = deque()
        """What it has not answered yet, in order."""
        self._made: dict[Problem, str] = {}
        self._useless = usable_cores() < _FEWEST_CORES

    def ask(self, problem: Problem, seed: int) -> None:
        """Has it make a problem's data, unless it was asked already."""
        if self._useless or problem in self._asked or problem in self._made:
            return
        for earlier in list(self._made)[:-1]:  # the last may be that of the problem that begins now
            if file := self._made.pop(earlier):
                Path(file).unlink(missing_ok=True)
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(Load(problem.as_row(), seed)) + b"\n")
            process.stdin.flush()
        except OSError:
            self._give_up()
        else:
            self._asked.append(problem)

    def is_making(self, problem: Problem) -> bool:
        """Returns whether the data of a problem are not there yet, but will be."""
        self._read(0.0)
        return problem in self._asked

    def take(self, problem: Problem) -> str:
        """Returns the file of a problem's data, for one worker, once it is there; "" for none."""
        while problem in self._asked:
            self._read(_LIMIT_S)
        return self._made.pop(problem, "")

    def close(self) -> None:
        """Ends the process, and removes what it has made."""
        process, self._process = self._process, None
        self._asked.clear()
        self._made.clear()
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            process.kill()
            process.wait()
            self._folder.cleanup()

    def _give_up(self) -> None:
        self._useless = True
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._folder = TemporaryDirectory(prefix="tile_oracle-ahead-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tile_oracle.device.data_maker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # what `select` does not see would wait in a buffer
            env=child_environment(TMPDIR=self._folder.name),
            start_new_session=True,  # Ctrl-C must reach only pytest
        )
        return self._process

    def _read(self, wait_s: float) -> None:
        """Takes the answers that are there; waits for the first. A process that does not answer is ended."""
        while self._asked and self._process is not None and self._process.stdout is not None:
            if not select.select([self._process.stdout], [], [], wait_s)[0]:
                if wait_s:
                    self._give_up()
                return
            line = self._process.stdout.readline()
            if not line.endswith(b"\n"):
                self._give_up()
                return
            self._made[self._asked.popleft()] = line.decode().rstrip("\n")
            wait_s = 0.0
