"""Triton's kernels are compiled in forks of a process that has imported Triton and the file."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path

import pytest

from tests.compiling.triton.conftest import COPY, HEAD
from tests.processes import wait_until
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.fork_server import ForkServer
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.compiling.source import source_suffix
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER
from tile_oracle.compiling.triton.kernel_source import TritonSource, TritonToolchain, find_triton, open_triton
from tile_oracle.compiling.triton.serve_forks import ID_BYTES

ARCH = "sm_90"


def compiled(source: TritonSource, folder: Path) -> list[bytes]:
    with Builder(ARCH, "auto", folder, jobs=2, runs_here=False, source=source) as builder:
        found = [builder.need(kernel) for kernel in source.description.units]
    assert all(one.binary is not None for one in found), [one.detail for one in found]
    return [one.binary.path.read_bytes() for one in found if one.binary is not None]


def processes_of(folder: str) -> list[str]:
    """The command lines of the processes that run in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(path.readlink()).startswith(folder):
                found.append(path.parent.joinpath("cmdline").read_text())
        except OSError:
            continue
    return found


def test_a_fork_compiles_what_a_process_of_its_own_does(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_triton(ARCH, str(copy_file))
    forked = compiled(source, tmp_path / "forked")
    monkeypatch.setattr(TritonToolchain, "server", lambda self: ())
    assert forked == compiled(source, tmp_path / "alone")


def test_a_file_that_starts_threads_is_compiled_without_forks(copy_file: Path, tmp_path: Path) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    copy_file.write_text(thread + HEAD + COPY)
    assert compiled(open_triton(ARCH, str(copy_file)), tmp_path / "cache")


class LateSocket(socket.socket):
    """A socket that reads nothing before everything has been sent."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self.gettimeout() is not None:  # the process id
            first = len(super().recv(2 * ID_BYTES, socket.MSG_PEEK))
            wait_until(lambda: len(super(LateSocket, self).recv(2 * ID_BYTES, socket.MSG_PEEK)) > first)
        return super().recv(size, flags)


def test_an_exit_status_that_overtakes_the_reader_is_not_a_part_of_the_process_id(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = socket.socketpair

    def late_pair(*kind: int) -> tuple[socket.socket, socket.socket]:
        ours, theirs = pair(*kind)
        return (ours if kind else LateSocket(fileno=ours.detach())), theirs

    monkeypatch.setattr("tile_oracle.compiling.fork_server.socket.socketpair", late_pair)
    assert compiled(open_triton(ARCH, str(copy_file)), tmp_path / "cache")


def test_a_fork_is_stopped_alone_and_all_end_with_the_server(copy_file: Path, tmp_path: Path) -> None:
    source = open_triton(ARCH, str(copy_file))
    toolchain = find_triton("auto", ARCH)
    unit, output = "kernel" + source_suffix(ARCH), "kernel" + toolchain.suffix
    server = ForkServer(toolchain.server(), source.headers.write, 100.0)
    start = partial(server.start, toolchain.forked(unit, output))
    work = tmp_path / "work"
    work.mkdir()
    source.headers.write(work / INCLUDE_FOLDER)
    (work / unit).write_text(source.unit(next(iter(source.description.units))))
    nothing = ("false",)  # what would be run where no fork is had

    os.mkfifo(work / output)  # nobody reads it: the compiler does not end by itself
    stopped = CompilerProcesses().run(nothing, work, 0.01, start)
    assert "was stopped after" in stopped.log

    (work / output).unlink()
    assert CompilerProcesses().run(nothing, work, 100.0, start).ok
    assert (work / output).stat().st_size

    (work / output).unlink()
    os.mkfifo(work / output)
    with (work / "log").open("wb") as log:
        forked = start(work, log)
    assert forked is not None
    server.close()
    forked.wait_until_ended()
    assert forked.reap() == -9
    wait_until(lambda: not processes_of(str(work)))
