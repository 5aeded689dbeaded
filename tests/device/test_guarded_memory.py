"""Guarded memory detects stray accesses: at a guard page at once, in the slack afterwards."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.device.guarded_memory import GuardedBuffer, holding

PAGE = mmap.PAGESIZE

READ, WRITE = 0, 1


def touch(size: int, *, flush: bool, offset: int, how: int, read_only: bool = False) -> int:
    """The exit status of a process that touches one byte (negative: its signal)."""
    if not (child := os.fork()):
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        buffer = (
            holding(np.ones(size, np.uint8), flush=flush) if read_only else GuardedBuffer(size, flush=flush)
        )
        at = buffer.address + offset
        ctypes.string_at(at, 1) if how == READ else ctypes.memset(at, 1, 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("size", "offset", "how", "read_only"),
    [
        (100, 100, WRITE, False),
        (100, 100, READ, False),
        (PAGE, PAGE, WRITE, False),
        (PAGE, -1, READ, False),
        (3 * PAGE + 8, 3 * PAGE + 8, READ, True),
        (100, 0, WRITE, True),
        (100, 99, WRITE, True),
    ],
)
def test_forbidden_accesses_fault(size: int, offset: int, how: int, read_only: bool) -> None:
    assert touch(size, flush=True, offset=offset, how=how, read_only=read_only) == -signal.SIGSEGV


def test_accesses_inside_and_in_the_slack_do_not_fault() -> None:
    assert touch(100, flush=True, offset=99, how=WRITE) == 0
    assert touch(100, flush=True, offset=-1, how=WRITE) == 0
    assert touch(100, flush=True, offset=0, how=READ, read_only=True) == 0


@given(size=st.integers(1, 3 * PAGE + 1), flush=st.booleans())
def test_a_buffer_lies_where_it_says(size: int, flush: bool) -> None:
    buffer = GuardedBuffer(size, flush=flush)
    assert (buffer.address + size) % PAGE == 0 if flush else buffer.address % 64 == 0
    buffer.fill(0xAB)
    view = buffer.view(np.uint8, (size,))
    assert (view == 0xAB).all()
    view[...] = 1  # all data, no slack
    assert buffer.slack_is(0xAB)
    assert not buffer.slack_is(1) or size % PAGE == 0


@given(size=st.integers(1, 2 * PAGE - 1).filter(lambda n: n % PAGE), flush=st.booleans(), data=st.data())
def test_one_stray_byte_in_the_slack_is_detected(size: int, flush: bool, data: st.DataObject) -> None:
    buffer = GuardedBuffer(size, flush=flush)
    buffer.fill(0xFF)
    slack = -size % PAGE
    distance = data.draw(st.integers(1, slack))
    at = buffer.address - distance if flush else buffer.address + size + distance - 1
    ctypes.memset(at, 0xFE, 1)
    assert not buffer.slack_is(0xFF)


@pytest.mark.parametrize("size", [2**62, 2**63, 2**70])
def test_too_large_a_buffer_is_a_memory_error(size: int) -> None:
    with pytest.raises(MemoryError, match=f"cannot allocate {size:,} bytes"):
        GuardedBuffer(size, flush=True)


def test_memory_is_freed() -> None:
    def mapped_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    before = mapped_pages()
    for _ in range(50):
        holding(np.zeros(1 << 20, np.uint8), flush=True)
    assert mapped_pages() - before < 10 * (1 << 20) // PAGE
