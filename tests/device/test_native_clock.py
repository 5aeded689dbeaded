"""The CPU's clock: its machine code matches its source, and its loop does what it says."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.device import native_clock
from tile_oracle.device.factors import Axes
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.native_clock import CODE, ClockCode, NativeClock, Turns
from tile_oracle.device.turns import STATES, OperandTurns, sign_turning, signs
from tile_oracle.errors import TargetError

COMPILER_OPTIONS = (
    *("-O2", "-fomit-frame-pointer", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fPIC", "-ffreestanding", "-mno-red-zone"),
)
"""Options for ziglang's `zig cc -target MACHINE-linux-musl`."""
SOURCE = Path(__file__).with_name("clock.c")


@pytest.mark.parametrize("machine", sorted(CODE))
def test_the_code_is_what_the_source_compiles_to(machine: str, tmp_path: Path) -> None:
    zig = f"{zig_folder()}/zig"
    target = ("-target", f"{machine}-linux-musl")
    for command in (
        (zig, "cc", *target, *COMPILER_OPTIONS, "-c", str(SOURCE), "-o", "clock.o"),
        (zig, "objcopy", "-O", "binary", "--only-section=.text", "clock.o", "clock.bin"),
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "clock.bin").read_bytes() == CODE[machine]


@pytest.fixture
def clock() -> NativeClock:
    return NativeClock()


def test_a_processor_without_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_clock, "CODE", {"s390x": b""})
    with pytest.raises(TargetError, match="runs are timed on s390x only: this is "):
        NativeClock()


def buffer_of(values: npt.NDArray[np.float32]) -> GuardedBuffer:
    buffer = GuardedBuffer(values.nbytes, flush=False)
    buffer.view(values.dtype, values.shape)[...] = values
    return buffer


def test_runs_see_changed_operands_and_must_write_watched_bytes(clock: NativeClock) -> None:
    """Both loops: each run has its own signs of rows and columns, and one run's output is kept."""
    values = np.arange(1, 16, dtype=np.float32).reshape(3, 5)
    operand, out = buffer_of(values), GuardedBuffer(16, flush=False)
    axes = Axes((1, 1, 3, 5), (0, 0, 1, 0), (0, 0, 0, 1))
    vectors = [(0, signs(np.random.default_rng(1), 3)), (1, signs(np.random.default_rng(2), 5))]
    turning = sign_turning(operand, 4, axes, vectors)
    turns = OperandTurns([turning], 2, STATES, out, 4, seed=7)
    seen: list[npt.NDArray[np.float32]] = []

    def kernel(_: int | None) -> int:
        seen.append(operand.view(np.float32, (3, 5)).copy())
        if len(seen) != 3:
            out.view(np.float32, (4,))[:] = len(seen)
        return 0

    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(kernel)
    address = ctypes.cast(launch, ctypes.c_void_p).value or 0
    for number in (0, 1):
        drawn = turns.draw(5, keep=True)
        runs = clock.time(address, 0, 5, drawn)
        turns.ran()
        assert (runs.returned, drawn.begun, runs.nanoseconds.shape) == (0, 5, (5,))
        assert (runs.nanoseconds > 0).all()
        assert (runs.untouched > 0) == (number == 0), "the third run wrote nothing"
        kept = 5 * number + drawn.kept_run
        negative = [
            one[state : state + size] ^ one[:size]
            for (_, one), state, size in zip(vectors, turns.kept_states, (3, 5), strict=True)
        ]
        factors = [np.where(one, -1, 1) for one in negative]
        assert (seen[kept] == values * factors[0][:, None] * factors[1]).all()
        written = turns.kept.view(np.float32)
        assert (written == kept + 1).all() or kept == 2
    assert (np.abs(seen) == values).all()
    assert len({one.tobytes() for one in seen}) > 5


def test_operands_stay_known_when_a_kernel_fails(clock: NativeClock) -> None:
    values = np.ones(40, np.float32)
    operand, out = buffer_of(values), GuardedBuffer(16, flush=False)
    vector = signs(np.random.default_rng(1), 40)
    nothing = (1, np.zeros(STATES + 1, np.bool_))
    turning = sign_turning(
        operand, 4, Axes((1, 1, 1, 40), (0, 0, 0, 1), (0, 0, 0, 0)), [(0, vector), nothing]
    )
    turns = OperandTurns([turning], 2, STATES, out, 4, seed=7)
    calls: list[int] = []
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda _: calls.append(1) or len(calls) // 2)
    address = ctypes.cast(launch, ctypes.c_void_p).value or 0
    drawn = turns.draw(9, keep=True)
    runs = clock.time(address, 0, 9, drawn)
    turns.ran()
    assert (runs.returned, drawn.begun, len(calls)) == (1, 2, 2)
    turns.stay()
    state = int(turns.kept_states[0])
    wanted = np.where(vector[state : state + 40] ^ vector[:40], -1, 1)
    assert (operand.view(np.float32, (40,)) == wanted).all()


def test_a_library_that_exports_a_clock_replaces_nothing(clock: NativeClock, tmp_path: Path) -> None:
    """Loaded for all to see, as if it had been preloaded."""
    zig = f"{zig_folder()}/zig"
    (tmp_path / "fake.c").write_text(
        "int clock_gettime(int clock, long *now) { now[0] = now[1] = 0; return 0; }\n"
        "int launch(const void *args) { for (volatile int i = 0; i < 1000; ++i) {} return 0; }\n"
    )
    subprocess.run([zig, "cc", "-shared", "-fPIC", "fake.c", "-o", "fake.so"], cwd=tmp_path, check=True)
    fake = ctypes.CDLL(str(tmp_path / "fake.so"), mode=ctypes.RTLD_GLOBAL)
    launch = ctypes.cast(fake.launch, ctypes.c_void_p).value or 0
    assert (clock.time(launch, 0, 5, Turns(kept_run=-1)).nanoseconds > 0).all()
    assert not clock.changed()


def test_changed_code_is_noticed() -> None:
    code = ctypes.create_string_buffer(b"\x90" * 40)
    watched = ClockCode(native_clock.NOW, [(ctypes.addressof(code), 40)])
    assert not watched.changed()
    code[39] = b"\xc3"
    assert watched.changed()
    code[39] = b"\x90"
    assert not watched.changed()
