"""The CPU's clock: its machine code matches its source, and both loops do the same."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tile_oracle.build.toolchain import find_toolchain
from tile_oracle.device import native_clock
from tile_oracle.device.clock_code import ClockCode
from tile_oracle.device.native_clock import CODE, COMPILER_OPTIONS, SOURCE, NativeClock, Watch


@pytest.mark.parametrize("machine", sorted(CODE))
def test_the_code_is_what_the_source_compiles_to(machine: str, tmp_path: Path) -> None:
    zig = str(find_toolchain("ziglang").folder / "zig")
    (tmp_path / "clock.c").write_text(SOURCE)
    target = ("-target", f"{machine}-linux-musl")
    for command in (
        (zig, "cc", *target, *COMPILER_OPTIONS, "-c", "clock.c", "-o", "clock.o"),
        (zig, "objcopy", "-O", "binary", "--only-section=.text", "clock.o", "clock.bin"),
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "clock.bin").read_bytes() == CODE[machine]


@pytest.fixture(params=["native", "python"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> NativeClock:
    if request.param == "python":
        monkeypatch.setattr(native_clock, "CODE", {})
    return NativeClock()


def test_runs_see_flipped_signs_and_must_write_watched_bytes(clock: NativeClock) -> None:
    operand, out = np.array([1.0, 2.0, 3.0], np.float32), np.zeros(4, np.float32)
    seen: list[list[float]] = []

    def kernel(_: int | None) -> int:
        seen.append(operand.tolist())
        if len(seen) != 3:
            out[:] = len(seen)
        return 0

    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(kernel)
    address = ctypes.cast(launch, ctypes.c_void_p).value or 0
    signs = np.array([operand.ctypes.data + 3, operand.ctypes.data + 11], np.uint64)
    watched = np.array([out.ctypes.data + 3, out.ctypes.data + 15], np.uint64)
    runs = clock.time(address, 0, 5, Watch(signs, watched))
    assert runs.returned == 0
    assert runs.nanoseconds.shape == (5,)
    assert (runs.nanoseconds > 0).all()
    assert runs.untouched == 2, "the third run wrote nothing"
    assert seen == [[-1, 2, 3], [1, 2, -3], [-1, 2, 3], [1, 2, -3], [1, 2, 3]]
    assert operand.tolist() == [1, 2, 3]


def test_a_kernel_that_fails_ends_the_runs(clock: NativeClock) -> None:
    calls = []
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda _: calls.append(1) or len(calls) // 2)
    address = ctypes.cast(launch, ctypes.c_void_p).value or 0
    nothing = np.zeros(0, np.uint64)
    runs = clock.time(address, 0, 9, Watch(nothing, nothing))
    assert (runs.returned, len(calls)) == (1, 2)


def test_a_library_that_exports_a_clock_replaces_nothing(clock: NativeClock, tmp_path: Path) -> None:
    """Loaded for all to see, as if it had been preloaded."""
    zig = str(find_toolchain("ziglang").folder / "zig")
    (tmp_path / "fake.c").write_text(
        "int clock_gettime(int clock, long *now) { now[0] = now[1] = 0; return 0; }\n"
        "int launch(const void *args) { for (volatile int i = 0; i < 1000; ++i) {} return 0; }\n"
    )
    subprocess.run([zig, "cc", "-shared", "-fPIC", "fake.c", "-o", "fake.so"], cwd=tmp_path, check=True)
    fake = ctypes.CDLL(str(tmp_path / "fake.so"), mode=ctypes.RTLD_GLOBAL)
    launch = ctypes.cast(fake.launch, ctypes.c_void_p).value or 0
    nothing = np.zeros(0, np.uint64)
    assert (clock.time(launch, 0, 5, Watch(nothing, nothing)).nanoseconds > 0).all()
    assert not clock.changed()


def test_changed_code_is_noticed() -> None:
    code = ctypes.create_string_buffer(b"\x90" * 40)
    watched = ClockCode(native_clock.NOW, [(ctypes.addressof(code), 40)])
    assert not watched.changed()
    code[39] = b"\xc3"
    assert watched.changed()
    code[39] = b"\x90"
    assert not watched.changed()
