"""The runtimes' code against libraries that record every call: names, order and arguments, for HIP and CUDA.

The libraries are built here, from tests/shims/recorder.c; device memory is the host's and kernels do nothing.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.shims import recording
from tile_oracle.device import gpu_timer
from tile_oracle.device.base import KernelFailed, ProblemRefused
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.gpu_timer import GpuTimer
from tile_oracle.device.gpu_work import GUARD_BYTES
from tile_oracle.device.loaded_run import Launches
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.device.runtime.driver import (
    Arguments,
    Driver,
    Geometry,
    Launch,
    RuntimeFailure,
    RuntimeMissing,
)
from tile_oracle.device.runtime.hip import open_hip
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

PROBLEM = GroupedConvProblem("forward", "bf16", 2, 2, 64, 64, 1, 8, 8, 3, 3, pad_h=1, pad_w=1)
INFO = "1,128,0,0,0,64,64,64,1"


@pytest.fixture(scope="module", params=["hip", "cuda"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recorder(api: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(recording.build_recorder(tmp_path_factory.mktemp(api), cuda=api == "cuda"))


@pytest.fixture
def library(recorder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy for each test: the loader gives a library of another name its own state."""
    copy = tmp_path / recorder.name
    copy.write_bytes(recorder.read_bytes())
    monkeypatch.setenv("RECORD_TO", str(tmp_path / "record"))
    monkeypatch.setenv("RECORD_INFO", INFO)
    for name in ("RECORD_FAIL", "RECORD_ELAPSED_MS", "RECORD_ARCH", "RECORD_PCI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return copy


@pytest.fixture
def driver(api: str, library: Path) -> Driver:
    return open_hip(library=str(library)) if api == "hip" else open_cuda(library=str(library))


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[tuple[str, ...]]]:
    """The calls since the last request."""
    seen = 0

    def new() -> list[tuple[str, ...]]:
        nonlocal seen
        everything = recording.read_record(tmp_path / "record")
        fresh, seen = everything[seen:], len(everything)
        return list(fresh)

    return new


Calls = Callable[[], list[tuple[str, ...]]]


LAUNCH = "hipModuleLaunchKernel"
"""What the recorder notes, for CUDA, too."""


# ---- the runtime ---------------------------------------------------------------------------------


def test_opening_makes_a_stream_and_tells_the_properties_of_the_device(
    api: str, driver: Driver, calls: Calls
) -> None:
    current = ["hipSetDevice"] if api == "hip" else ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
    opened = ["hipInit", "hipDeviceGet", *current, "hipStreamCreateWithFlags"]
    assert [call[0] for call in calls()] == opened
    found = driver.properties()
    assert found.name == "a recorder"
    assert found.identity == "0000:ab:00.0"
    assert found.arch == ("gfx950" if api == "hip" else "sm_90")
    assert found.compute_units == (0 if api == "hip" else 132)
    assert found.driver == ("HIP 6.4.43484" if api == "hip" else "CUDA 13.0") or found.driver.startswith(
        "NVIDIA "
    )


def test_memory_goes_there_and_back(driver: Driver, calls: Calls) -> None:
    calls()
    address = driver.allocate(1000)
    driver.set_bytes(address, 0x5A, 1000)
    driver.copy_in(address + 10, b"hello")
    assert driver.copy_out(address + 8, 9) == b"ZZhelloZZ"
    driver.free(address)
    pointer, stream = hex(address), hex(driver.stream)
    assert calls() == [
        ("hipMalloc", "1000"),
        ("hipMemsetD8Async", pointer, "90", "1000", stream),
        ("hipMemcpyHtoDAsync", hex(address + 10), "5", stream),
        ("hipMemcpyDtoHAsync", hex(address + 8), "9", stream),
        ("hipStreamSynchronize", stream),
        ("hipFree", pointer),
    ]


def test_a_launch_passes_geometry_stream_and_arguments(driver: Driver, calls: Calls) -> None:
    module = driver.load_module(b"CODE")
    function = driver.function(module, "to_conv")
    calls()
    value = ctypes.c_void_p(0xABCDE)
    driver.launch(Launch(function, Geometry((5, 6, 7), (64, 2, 1), 4096), Arguments(value)))
    ((name, *arguments),) = calls()
    assert name == LAUNCH
    assert arguments == [hex(function), "5,6,7", "64,2,1", "4096", hex(driver.stream), "0xabcde", "0"]


def test_a_graph_holds_the_launches_in_order(driver: Driver, calls: Calls) -> None:
    launches = [
        Launch(number, Geometry((number, 1, 1), (64, 1, 1)), Arguments(ctypes.c_int(0))) for number in (1, 2)
    ]
    calls()
    graph = driver.capture(launches, 2)
    driver.launch_graph(graph)
    driver.destroy_graph(graph)
    made = calls()
    assert [call[0] for call in made] == [
        *("hipStreamBeginCapture", *[LAUNCH] * 4, "hipStreamEndCapture", "hipGraphInstantiateWithFlags"),
        *("hipGraphDestroy", "hipGraphLaunch", "hipGraphExecDestroy"),
    ]
    assert [call[1] for call in made[1:5]] == ["0x1", "0x2", "0x1", "0x2"]
    assert made[0][1:] == (hex(driver.stream), "1")
    assert made[-2][1:] == (hex(graph), hex(driver.stream))


def test_events_give_the_time_between_neighbours(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "0.25")
    events = [driver.make_event() for _ in range(4)]
    assert driver.elapsed_ns(events) == pytest.approx([250_000.0] * 3)


@pytest.mark.parametrize("lds_bytes", [16 << 10, 48 << 10, 160 << 10])
def test_lds_is_requested_where_required(api: str, driver: Driver, calls: Calls, lds_bytes: int) -> None:
    """Always: LDS that the kernel declares counts too, so 48 KiB in a launch can exceed the default of an
    H200."""
    calls()
    driver.allow_lds(0x77, lds_bytes)
    assert calls() == ([("cuFuncSetAttribute", "0x77", "8", str(lds_bytes))] if api == "cuda" else [])


def test_a_failure_has_the_librarys_own_name(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"(hipMalloc|cuMemAlloc_v2): .*(ILLEGAL_ADDRESS|IllegalAddress) \(700\)"
    monkeypatch.setenv("RECORD_FAIL", "hipMalloc:700")
    with pytest.raises(RuntimeFailure, match=said) as caught:
        driver.allocate(1)
    assert caught.value.sticky
    monkeypatch.setenv("RECORD_FAIL", "hipMalloc:2")
    with pytest.raises(RuntimeFailure) as caught:
        driver.allocate(1)
    assert not caught.value.sticky
    monkeypatch.setenv("RECORD_FAIL", "hipMalloc:12345")
    with pytest.raises(RuntimeFailure, match="an unknown error"):
        driver.allocate(1)


def test_missing_functions_are_reported(api: str, tmp_path: Path) -> None:
    open_ = open_hip if api == "hip" else open_cuda
    with pytest.raises(RuntimeMissing, match=r"cannot be loaded: .*; install (ROCm|NVIDIA's driver)"):
        open_(library=str(tmp_path / "none.so"))
    with pytest.raises(RuntimeMissing, match=r"has no (hip|cu).*: a newer driver is needed"):
        open_(library="libc.so.6")


# ---- the device --------------------------------------------------------------------------------------


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.bin"
    path.write_bytes(b"CODE")
    return path


@pytest.fixture
def device(driver: Driver, binary: Path) -> Iterator[GpuDevice]:
    device = GpuDevice(driver, binary, 256)
    yield device
    device.idle()


def of(made: list[tuple[str, ...]], *names: str) -> list[tuple[str, ...]]:
    """The calls of these functions."""
    return [call for call in made if call[0] in names]


def test_a_check_poisons_launches_compares_and_waits_once(
    device: GpuDevice, binary: Path, calls: Calls
) -> None:
    device.load(PROBLEM, 1)
    calls()
    result = device.check(binary)
    assert (result.status, result.kind, result.points) == ("ok", "full", 2 * 8 * 8 * 64)
    made = [call for call in calls() if "Module" not in call[0] or "Launch" in call[0]]
    kinds = [call[0] for call in made]
    at = kinds.index(LAUNCH)
    poison = next(call for call in made[:at] if "MemsetD8" in call[0])
    assert poison[2:4] == ("255", str(2 * 2 * 8 * 8 * 64))
    assert sum("StreamSynchronize" in kind for kind in kinds[at:]) == 1
    last = len(kinds) - 1 - kinds[::-1].index(LAUNCH)
    assert "MemcpyDtoH" in kinds[last + 1]
    assert "StreamSynchronize" in kinds[last + 2]
    # 128 rows in two tiles of 64.
    assert made[at][2:5] == ("2,1,1", "128,1,1", "0")
    assert len(of(made, LAUNCH)) == 3 * 3, "the kernel, the guard zones, the comparison, of each set of data"


def test_a_new_problem_frees_the_old_ones_memory(device: GpuDevice, calls: Calls) -> None:
    device.load(PROBLEM, 1)
    device.load(PROBLEM, 2)
    made = calls()
    assert len(of(made, "hipMalloc")) == 1 + 11 + 11
    assert len(of(made, "hipFree")) == 11, "the verdict's memory is kept"


def test_a_long_kernel_is_timed_run_by_run(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "0.5")
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    device.sample(binary, 1)
    calls()
    assert device.sample(binary, 5).tolist() == pytest.approx([500_000.0] * 5)
    kinds = [call[0] for call in calls()]
    letters = {LAUNCH: "l", "hipEventRecord": "r"}
    timed = "".join(letters.get(kind, "") for kind in kinds)
    # Both operands and the result change, the runs follow each other, and one drawn at random is compared.
    assert re.fullmatch("lll r((lr)*) ll (r((lr)+))?".replace(" ", ""), timed)
    assert timed.count("l") == 3 + 5 + 2
    assert sum("Synchronize" in kind for kind in kinds) in (1, 2)


def test_a_long_kernels_check_runs_are_its_quick_look(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "2")
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    calls()
    assert device.look(binary, 1).tolist() == [2e6, 2e6, 2e6]
    assert device.timed_ms == pytest.approx(6)
    assert of(calls(), LAUNCH) == []


def test_a_kernel_that_has_lost_by_its_first_run_does_not_run_on_the_other_data(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "2")
    proven_ms = (2 - 0.05) / 1.25  # by a first run of 2 ms that the host starts at once
    device.load(PROBLEM, 1)
    first = device.check(binary, 0.1)
    assert first.lost_in_ms is None, "the driver may have loaded it in this run"
    calls()
    right = device.check(binary, proven_ms * 1.001)
    every = 3 * len(device._require().sets)
    assert (right.status, right.lost_in_ms, len(of(calls(), LAUNCH))) == ("ok", None, every)
    lost = device.check(binary, proven_ms * 0.8)
    assert (lost.status, lost.kind, lost.points) == ("ok", "full", right.points)
    assert lost.lost_in_ms == pytest.approx(2)
    assert proven_ms * 0.8 < lost.at_least_ms < proven_ms
    assert device.timed_ms == pytest.approx(2)
    assert len(of(calls(), LAUNCH)) == 3, "the kernel, the guard zones, the comparison"


def test_a_host_that_starts_a_kernel_late_does_not_make_it_lose(
    device: GpuDevice, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "40")
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    launch_all = device._driver.launch_all

    def late(launches: Launches) -> None:
        time.sleep(0.038)
        launch_all(launches)

    monkeypatch.setattr(device._driver, "launch_all", late)
    assert device.check(binary, 2.0).lost_in_ms is None, "38 of the 40 ms may be the host's"
    assert device.check(binary, 1.0).at_least_ms <= (40 - 38 - 0.05) / 1.25


@pytest.mark.parametrize(
    ("checked_us", "taken_us"),
    [
        ([2000, 2080], [2000, 2080]),
        ([2080, 2000, 2050], [2080, 2000, 2050]),
        ([2000, 2200], [2000]),  # other operands may have other times
        ([2200, 2000], [2200]),
        ([2600, 2000], []),  # the first run was disturbed
        ([990, 990], []),  # too short
    ],
)
def test_check_runs_are_samples_only_if_they_agree(checked_us: list[int], taken_us: list[int]) -> None:
    timer = GpuTimer(cast(Driver, None), 0)
    assert timer.of_checks([1e3 * one for one in checked_us]) == [1e3 * one for one in taken_us]
    assert timer.timed_ms == pytest.approx(sum(taken_us) / 1e3)


def test_a_short_kernel_is_timed_from_a_graph(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "0.016")
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    samples = device.sample(binary, 3)
    kinds = [call[0] for call in calls()]
    # Eight runs took 16 microseconds: as many take 250.
    assert samples.tolist() == pytest.approx([16_000 / 125] * 3)
    assert len(device.sample(binary, 40)) == 8, "as many graphs as a median needs"
    assert len(device.sample(binary, 10_000)) == 80
    assert sum("GraphInstantiate" in kind for kind in kinds) == 2
    assert sum("GraphExecDestroy" in kind for kind in kinds) == 1
    device.load(PROBLEM, 2)
    assert sum("GraphExecDestroy" in call[0] for call in calls()) == 1


def test_cold_caches_are_flushed_before_each_run_and_outside_its_time(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ELAPSED_MS", "0.016")
    device.cold_cache = True
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    device.sample(binary, 1)
    calls()
    before = device.timed_ms
    assert device.sample(binary, 3).tolist() == pytest.approx([16_000.0] * 3)
    assert device.timed_ms - before == pytest.approx(3 * 0.016)
    made = calls()
    letters = {"hipMemsetD8Async": "f", LAUNCH: "l", "hipEventRecord": "r"}
    assert not any("Graph" in call[0] for call in made)
    made = of(made, *letters)
    order = "".join(letters[call[0]] for call in made)
    # New data, a poisoned output, the runs, and the comparison of one drawn at random.
    assert re.fullmatch("lllf(frlr)+ll(frlr)*", order)
    assert order.count("frlr") == 3
    assert {int(call[3]) for call in of(made[4:], "hipMemsetD8Async")} == {64 << 20}


def test_the_drivers_facts_about_a_kernel(
    api: str, device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_INFO", "1,128,4096,0,0,64,64,64,1")
    device.load(PROBLEM, 1)
    monkeypatch.setenv("RECORD_FAIL", "cuFuncGetAttribute:1")
    assert device.check(binary).facts == {}
    monkeypatch.delenv("RECORD_FAIL")
    calls()
    facts = device.check(binary).facts
    if api == "hip":
        assert facts == {}, "the code object says it"
        return
    assert facts == {
        "lds_bytes": 256 + 4096,
        "scratch_bytes": 10,
        "spills": 3,
        "vgprs": 168,
        "workgroups_per_cu": 3,
        "waves_per_cu": 12,
    }
    (asked,) = [call for call in calls() if "Occupancy" in call[0]]
    assert asked[2:] == ("128", "4096")
    assert device.check(binary).facts == facts
    assert not [call for call in calls() if "Occupancy" in call[0]], "they are asked for once"


def test_many_samples_are_taken_in_parts(
    device: GpuDevice, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_timer, "_MOST_EVENTS", 5)
    monkeypatch.setenv("RECORD_ELAPSED_MS", "0.5")
    device.load(PROBLEM, 1)
    assert len(device.sample(binary, 11)) == 11
    assert np.all(device.sample(binary, 4) > 0)


def test_two_stages_have_a_workspace_of_their_own(
    device: GpuDevice, binary: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_INFO", "1,128,0,1,2,64,64,64,1")
    problem = GroupedConvProblem("bwd_weight", "bf16", 2, 2, 64, 64, 1, 8, 8, 3, 3, pad_h=1, pad_w=1)
    device.load(problem, 1)
    calls()
    assert device.check(binary).status == "ok"
    made = calls()
    sizes = [int(call[1]) for call in of(made, "hipMalloc")]
    assert sizes == [4 * 2 * 64 * 9 * 64 + 2 * GUARD_BYTES]  # 128 products, in two pieces of 64
    grids = [call[2] for call in of(made, LAUNCH)]
    assert grids[:2] == ["9,1,2", f"{64 * 9 * 64 // 256},1,1"]
    assert len(grids) == 3 * 5, "two stages, two pairs of guard zones, the comparison, of each set of data"


@pytest.mark.parametrize(
    ("fails", "status", "detail"),
    [
        ("hipModuleLoadData:200", "build_error", "cannot be loaded"),
        ("hipModuleGetFunction:500", "build_error", "cannot be loaded"),
        (f"{LAUNCH}:1", "unsupported", "cannot be launched with 128 threads"),
    ],
)
def test_failures_that_leave_the_device_usable_are_verdicts(
    device: GpuDevice, binary: Path, fails: str, status: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.load(PROBLEM, 1)
    monkeypatch.setenv("RECORD_FAIL", fails)
    result = device.check(binary)
    assert result.status == status
    assert detail in result.detail
    monkeypatch.delenv("RECORD_FAIL")
    assert device.check(binary).status == "ok"


def test_a_failure_while_timing_is_reported(
    device: GpuDevice, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.load(PROBLEM, 1)
    assert device.check(binary).status == "ok"
    monkeypatch.setenv("RECORD_FAIL", "hipEventRecord:1")
    with pytest.raises(KernelFailed, match="failed when it was timed"):
        device.sample(binary, 1)


def test_a_problem_that_does_not_fit_is_refused(device: GpuDevice) -> None:
    with pytest.raises(ProblemRefused, match="GiB of device memory"):
        device.load(GroupedConvProblem("forward", "bf16", 2, 64, 512, 512, 1, 112, 112, 3, 3), 1)
