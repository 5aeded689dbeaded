"""The harness's own work on a GPU, and its checks there, on an emulated device: no GPU is needed.

GpuDevice makes inputs and the expected result with kernels/gpu/device_work.hpp, launches a kernel and has its
result compared, all as on a GPU. What its reference computes is held against exact arithmetic of the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.emulated_gpu.compiler import WORK_LAUNCHERS
from tests.kernels.emulated_gpu.device import LAUNCHERS, EmulatedGpu
from tests.kernels.emulated_gpu.driver import EmulatedDriver
from tests.samples import sampled
from tile_oracle.compiling.source import device_work_source, source_for
from tile_oracle.device import gpu_work
from tile_oracle.device.base import KernelFailed
from tile_oracle.device.check_data import dense, mantissa
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.gpu_work import Buffer, DeviceWork, operand_bytes
from tile_oracle.device.not_finite import not_finite
from tile_oracle.device.reference import exact_output
from tile_oracle.device.runtime.driver import Launch
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.kernel import parse_gemm_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

PROBLEMS = (
    *(
        GroupedConvProblem.from_id(f"{direction}-{rest}")
        for direction in ("forward", "bwd_data", "bwd_weight")
        for rest in (
            "bf16-n2-g3-c9-k21-i6x5-f3x2-s2x1-p1x0-d1x2",
            "fp16-n1-c5-k3-i4x3x5-f2x1x3-p1x0x1",
            "fp32-n1-c8-k4-i7x5-f3x3-p1",
        )
    ),
    *(
        GemmProblem(dtype, layout, 5, 7, 9)
        for dtype in ("bf16", "fp8", "fp32")
        for layout in ("rcr", "rrr", "crr", "ccr")
    ),
    # So deep that a whole block computes one value.
    GemmProblem("fp16", "rcr", 3, 2, 5000),
    GemmProblem("fp8", "rcr", 2, 3, 4099),
)


LAST_STEP_LEFT_OUT = {"pipeline.hpp": ("g.last_step - g.first_step)", "g.last_step - g.first_step - 1)")}


COMPV3 = parse_kernel_name("grouped_conv_forward_fp16_2d_64x64x64_compv3_intrawave")
Opener = Callable[..., Any]


@pytest.fixture
def open_work(gpu: EmulatedGpu, tmp_path: Path) -> Opener:
    """A driver, and the harness's own work there, by default as a DeviceWork."""

    def make(arch: str, driver: type[EmulatedDriver] = EmulatedDriver, of: Any = DeviceWork) -> Any:
        opened = driver(gpu, arch, tmp_path)
        return opened, of(opened, gpu.library(device_work_source(arch) + WORK_LAUNCHERS, arch))

    return make


@pytest.fixture
def open_device(gpu: EmulatedGpu, open_work: Opener) -> Iterator[Opener]:
    """A driver, its device with a problem, and the binary of a kernel for it."""
    devices: list[GpuDevice] = []

    def make(
        problem: Problem,
        arch: str = "sm_90",
        kernel: Kernel = COMPV3,
        driver: type[EmulatedDriver] = EmulatedDriver,
    ) -> tuple[EmulatedDriver, GpuDevice, Path]:
        opened, device = open_work(arch, driver, GpuDevice)
        devices.append(device)
        device.load(problem, 3)
        return opened, device, gpu.library(source_for(kernel, arch) + LAUNCHERS, arch)

    yield make
    for device in devices:
        device.idle()


def values(driver: EmulatedDriver, address: int, shape: tuple[int, ...], dtype: str) -> Array:
    data = driver.copy_out(address, math.prod(shape) * STORAGE[dtype].itemsize)
    return decode(np.frombuffer(data, STORAGE[dtype]).reshape(shape), dtype)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_inputs_and_reference_of_the_device(open_work: Opener, problem: Problem) -> None:
    driver, work = open_work("gfx950" if problem.dtype == "bf16" else "sm_90")
    shapes, dtypes = problem.operand_shapes, (problem.dtype, problem.dtype, problem.result_dtype)
    a, b, c = (
        driver.allocate(math.prod(shape) * STORAGE[dtype].itemsize)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    for pattern in (*mantissa(problem), not_finite(problem), dense(problem)):
        work.fill(problem, pattern, 7, a, b)
        first, second = (
            values(driver, address, shape, problem.dtype) / pattern.scale
            for address, shape in ((a, shapes[0]), (b, shapes[1]))
        )
        bounds = pattern.first[1], max(pattern.second[1], pattern.cancelling + 1)
        for operand, most in zip((first, second), bounds, strict=True):
            assert np.abs(operand).max() <= most
            assert (operand == np.round(operand)).all()
            assert len(np.unique(operand)) > 1
        work.reference(problem, a, b, c)
        exact = exact_output(problem, first.astype(np.int32), second.astype(np.int32))
        expected = encode(exact * np.float32(pattern.result_scale), problem.result_dtype)
        got = driver.copy_out(c, expected.nbytes)
        wanted_values = decode(expected, problem.result_dtype).ravel()
        assert (decode(np.frombuffer(got, expected.dtype), problem.result_dtype) == wanted_values).all()

    wanted = driver.allocate(expected.nbytes)
    driver.copy_in(wanted, expected.tobytes())
    assert work.compare(problem, c, wanted).wrong == 0
    spoilt = bytearray(expected.tobytes())
    spoilt[-expected.itemsize :] = b"\xff" * expected.itemsize
    driver.copy_in(c, bytes(spoilt))
    verdict = work.compare(problem, c, wanted)
    assert (verdict.wrong, verdict.first, verdict.unwritten, verdict.nan) == (1, expected.size - 1, 1, 0)

    # A sample of the result, and the effect of factors.
    sizes = operand_bytes(problem)
    few = math.ceil(expected.size / 3)
    sample = driver.allocate(few * expected.itemsize)
    work.reference(problem, a, b, sample, few)
    work.reference(problem, a, b, c)
    none = Buffer(driver, expected.nbytes)
    driver.copy_in(none.address, driver.copy_out(c, expected.nbytes))
    assert work.find(problem, none, None, sample, few).verdict.wrong == 0
    before = [driver.copy_out(address, size) for address, size in zip((a, b, c), sizes, strict=True)]
    work.scale(problem, 5, (a, b))
    work.reference(problem, a, b, wanted)
    assert work.compare(problem, c, wanted).wrong > 0
    work.reference(problem, a, b, c)
    for launch in work.negations(problem, 6, (a, b, c)):
        driver.launch(launch)
    for address, size, was in zip((a, b, c), sizes, before, strict=True):
        assert driver.copy_out(address, size) != was
    work.reference(problem, a, b, wanted)
    assert work.compare(problem, c, wanted).wrong == 0


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32"])
@pytest.mark.parametrize("layout", ["rcr", "crr"])
def test_neighbours_are_negated_together_as_one_by_one(open_work: Opener, dtype: str, layout: str) -> None:
    """Where 16 bytes lie in one row at an aligned address they are changed at once, otherwise one by one."""
    driver, work = open_work("sm_90")
    problem = GemmProblem(dtype, layout, 5, 43, 37)
    size = STORAGE[dtype].itemsize
    count = max(math.prod(shape) for shape in problem.operand_shapes)
    changed = []
    for skew in (0, 4):
        addresses = [Buffer(driver, count * STORAGE["fp32"].itemsize, 0, skew).address for _ in range(3)]
        for launch in (
            *work.negations(problem, 6, addresses),
            work.negation(problem, 7, addresses[0], count - 1),
        ):
            driver.launch(launch)
        changed.append([driver.copy_out(address, count * size) for address in addresses])
    assert changed[0] == changed[1]
    assert all(0.3 * count < np.count_nonzero(np.frombuffer(one, np.uint8)) for one in changed[0][:2])


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem("bf16", "rcr", 130, 150, 40),
        GemmProblem("fp16", "rrr", 260, 7, 33),
        GemmProblem("bf16", "crr", 129, 128, 17),
        GemmProblem("fp16", "ccr", 1, 300, 5),
    ],
    ids=lambda problem: problem.id,
)
def test_the_reference_by_tiles_is_that_by_definition(
    open_work: Opener, arch: str, problem: GemmProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, work = open_work(arch)
    sizes = operand_bytes(problem)
    a, b, by_definition = (driver.allocate(size) for size in sizes)
    by_tiles = Buffer(driver, sizes[2])
    work.fill(problem, dense(problem), 3, a, b)
    work.reference(problem, a, b, by_definition)
    monkeypatch.setattr(gpu_work, "_FEW_VALUES", 0)
    by_tiles.poison()
    work.reference(problem, a, b, by_tiles.address)
    assert driver.copy_out(by_tiles.address, sizes[2]) == driver.copy_out(by_definition, sizes[2])
    assert work.find(problem, by_tiles, None, by_definition).beside_output == 0


def not_finite_values_agree(driver: EmulatedDriver, device: GpuDevice, problem: Problem) -> bool:
    """Whether the set with infinities and NaN has what the host computes from its operands."""
    checked = device._require().sets[-1]
    assert isinstance(checked.expected, int)
    first, second, wanted = (
        values(driver, address, shape, dtype)
        for address, shape, dtype in zip(
            (*(one.address for one in checked.inputs), checked.expected),
            problem.operand_shapes,
            (problem.dtype, problem.dtype, problem.result_dtype),
            strict=True,
        )
    )
    with np.errstate(invalid="ignore"):
        exact = decode(
            encode(exact_output(problem, first, second), problem.result_dtype), problem.result_dtype
        )
    few = ~np.isfinite(wanted)
    assert few.any()
    return np.array_equal(wanted[few], exact[few], equal_nan=True) and bool(np.isfinite(exact[~few]).all())


CHECKED = """
gfx950 bwd_weight_bf16_2d_64x64x64_mem_intrawave_2s bwd_weight-bf16-n2-c9-k21-i6x5-f3x2-p1x0
sm_90 forward_fp16_2d_64x64x64_compv3_intrawave forward-fp16-n2-c16-k8-i7x9-f3x3-p1
gfx950 bwd_data_fp32_2d_64x64x64_compv4_intrawave_dsb_v4x4x4 bwd_data-fp32-n2-c16-k8-i7x9-f3x3-s2-p1
gfx950 gemm_fp32_crr_mem_default_interwave_True_True_True_True_64x64x32_2x2x1_16x16x4 \
    gemm-fp32-crr-m130-n70-k66
gfx950 gemm_fp8_rcr_compv3_cshuffle_intrawave_True_True_True_True_64x64x128_2x2x1_16x16x32 \
    gemm-fp8-rcr-m130-n70-k66
sm_90 gemm_bf16_ccr_comp_async_default_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x16 \
    gemm-bf16-ccr-m33-n70-k130
sm_90 forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8_gm2 forward-bf16-n1-g4-c32-k32-i5x6-f3x3-p1
gfx950 bwd_data_bf16_2d_64x64x64_compv3_intrawave_v8x8x8_gm4 bwd_data-bf16-n1-g4-c32-k32-i5x6-f3x3-p1
"""
"""Architecture, kernel and problem. The last two merge groups, with zeros between them."""


@pytest.mark.parametrize(
    ("arch", "kernel", "problem"),
    sampled([tuple(line.split()) for line in CHECKED.strip().splitlines()], every=2),
)
def test_a_kernel_is_checked_as_on_a_gpu(
    gpu: EmulatedGpu, open_device: Opener, arch: str, kernel: str, problem: str
) -> None:
    what: Problem
    which: Kernel
    if problem.startswith("gemm"):
        what, which = GemmProblem.from_id(problem), parse_gemm_name(kernel)
    else:
        what, which = GroupedConvProblem.from_id(problem), parse_kernel_name(f"grouped_conv_{kernel}")
    driver, device, binary = open_device(what, arch, which)
    right = device.check(binary)
    assert (right.status, right.detail, right.kind) == ("ok", "", "full")
    assert right.points == math.prod(what.operand_shapes[2])
    assert not_finite_values_agree(driver, device, what)
    wrong = device.check(gpu.library(source_for(which, arch) + LAUNCHERS, arch, LAST_STEP_LEFT_OUT))
    assert wrong.status == "wrong"
    assert "values wrong, at (" in wrong.detail


class CheatingDriver(EmulatedDriver):
    """Kernels that behave differently when they are timed. graphs: executable graphs that exist."""

    timed = False
    cheat = ""
    _conv_runs = 0
    _changed = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.graphs: dict[int, tuple[Launch, ...]] = {}

    def launch(self, launch: Launch) -> None:
        name = self._kernels[launch.function][1]
        self._changed |= name == "to_negate"
        if self.timed and name == "to_conv":
            self._conv_runs += 1
            if self.cheat == "skips" and self._conv_runs > 5:
                self._now_ns += self.launch_ns(name)
                return
        super().launch(launch)
        if name == "to_conv":
            self._changed = False

    def capture(self, launches: Sequence[Any], count: int) -> int:
        number = next(self._numbers)
        self.graphs[number] = tuple(launches) * count
        return number

    def launch_graph(self, executable: int) -> None:
        for launch in self.graphs[executable]:
            self.launch(launch)

    def destroy_graph(self, executable: int) -> None:
        del self.graphs[executable]

    def launch_ns(self, name: str) -> float:
        """A kernel that caches its result is slow only when an operand has changed."""
        cached = self.cheat == "caches" and name == "to_conv" and not self._changed
        if self.cheat == "pauses" and name == "to_conv" and self._conv_runs == 1:
            return 10_000_000.0
        return 50_000.0 if cached else super().launch_ns(name)


@pytest.mark.parametrize(
    ("cheat", "detail"),
    [("", ""), ("pauses", ""), ("skips", "when it was timed, "), ("caches", "reuses an earlier result")],
)
def test_timed_runs_are_verified(open_device: Opener, cheat: str, detail: str) -> None:
    problem = GroupedConvProblem.from_id("forward-fp16-n2-c16-k8-i7x9-f3x3-p1")
    driver, device, binary = open_device(problem, driver=CheatingDriver)
    assert device.check(binary).status == "ok"
    driver.timed, driver.cheat = True, cheat
    if cheat == "caches":
        with pytest.raises(KernelFailed, match=detail):
            device.sample(binary, 3)
        return
    rounds = 5
    operands: tuple[set[bytes], ...] = (set(), set())
    for _ in range(rounds):
        taken = device.sample(binary, 2)
        assert taken.tolist() == [300_000.0] * 2
        for seen, operand in zip(operands, device._require().sets[0].inputs, strict=True):
            seen.add(driver.copy_out(operand.address, operand.size_bytes))
    assert [len(seen) for seen in operands] == [rounds] * 2, "both operands change before every round"
    result = device.verify(binary)
    assert result.status == ("wrong" if detail else "ok")
    assert detail in result.detail
    assert ("left" in result.detail) == (cheat == "skips")


SMALL = GroupedConvProblem.from_id("forward-fp16-n1-c8-k8-i4x4-f1x1")


class ShortKernels(CheatingDriver):
    """Kernels of any length."""

    conv_ns = 50_000.0

    def launch_ns(self, name: str) -> float:
        cached = self.cheat == "caches" and self.timed and not self._changed and self._conv_runs > 1
        return (100.0 if cached else self.conv_ns) if name == "to_conv" else 1_000.0


def look_often(device: GpuDevice, binary: Path) -> None:
    for _ in range(7):
        device.look(binary, 1)


@pytest.mark.parametrize("conv_ns", [50_000.0, 300_000.0, 2_000_000.0])
@pytest.mark.parametrize("cheat", ["", "skips", "caches"])
def test_a_quick_look_is_short_and_verified(open_device: Opener, conv_ns: float, cheat: str) -> None:
    driver, device, binary = open_device(SMALL, driver=ShortKernels)
    driver.conv_ns = conv_ns
    assert device.check(binary).status == "ok"
    driver.timed, driver.cheat = True, cheat
    before = device.timed_ms
    if cheat == "caches" and conv_ns < 1_000_000:
        # It is as fast as a contender when nothing changes: the full procedure finds out.
        with pytest.raises(KernelFailed, match="reuses an earlier result"):
            device.look(binary, 1)
        return
    taken = device.look(binary, 1)
    assert taken.tolist() == pytest.approx(
        [conv_ns] * (3 if conv_ns > 1e6 else 2)
    )  # of a long one: the check runs
    assert device.timed_ms - before <= max(0.61, 3.1 * conv_ns / 1e6)
    assert len(driver.graphs) == (conv_ns < 250_000)
    if cheat == "skips":
        with pytest.raises(KernelFailed, match=r"when it was timed, .* unwritten") as failed:
            look_often(device, binary)
        assert failed.value.status == "wrong"
        return
    assert device.verify(binary).status == "ok"
    device.load(GroupedConvProblem.from_id("forward-fp16-n1-c8-k8-i5x5-f1x1"), 3)
    assert not driver.graphs, "graphs end with their problem"


class SlowHost(ShortKernels):
    """The device waits for each single run of a kernel."""

    conv_ns, wait_ns = 5_000.0, 20_000.0
    _in_graph = False

    def launch_ns(self, name: str) -> float:
        waits = name == "to_conv" and not self._in_graph
        return super().launch_ns(name) + (self.wait_ns if waits else 0.0)

    def launch_graph(self, executable: int) -> None:
        self._in_graph = True
        super().launch_graph(executable)
        self._in_graph = False


def test_looks_learn_how_much_longer_single_runs_take(open_device: Opener) -> None:
    """Graphs become long enough for events not to show, although a run seems to take 25 microseconds."""
    driver, device, binary = open_device(SMALL, driver=SlowHost)
    lengths = []
    for _ in range(4):
        assert device.check(binary).status == "ok"
        assert device.look(binary, 1).tolist() == pytest.approx([5_000.0] * 2)
        (graph,) = driver.graphs.values()
        lengths.append(len(graph))
    assert lengths[0] == 8
    assert lengths[-1] == 30, "150 microseconds"


@pytest.mark.parametrize("wait_ns", [30_000.0, 90_000.0, 190_000.0])
@pytest.mark.parametrize("cheat", ["", "caches"])
def test_launches_that_come_late_are_no_earlier_result(
    open_device: Opener, wait_ns: float, cheat: str
) -> None:
    """A library on a busy host may take a hundred microseconds for each launch."""
    driver, device, binary = open_device(SMALL, driver=SlowHost)
    assert device.check(binary).status == "ok"
    driver.timed, driver.cheat, driver.wait_ns = True, cheat, wait_ns
    if not cheat:
        assert device.sample(binary, 3).tolist() == pytest.approx([5_000.0] * 3)
        assert device.verify(binary).status == "ok"
        return
    driver.conv_ns = 40_000.0
    with pytest.raises(KernelFailed, match="reuses an earlier result"):
        device.sample(binary, 3)


@pytest.mark.parametrize(
    ("factor", "said"), [(1.0, False), (1.01, False), (0.5, True), (1.2, True), (0.0, False)]
)
def test_two_clocks_that_differ_are_reported(
    open_device: Opener, factor: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, device, binary = open_device(SMALL, driver=ShortKernels)
    assert device.clocks_differ(binary) is None, "nothing was timed"
    assert device.check(binary).status == "ok"
    driver.timed = True
    device.sample(binary, 3)
    stamps: list[float] = []
    monkeypatch.setattr(device._work, "stamp", lambda number: stamps.append(driver._now_ns))
    monkeypatch.setattr(device._work, "between_stamps_ns", lambda: factor * (stamps[1] - stamps[0]))
    found = device.clocks_differ(binary)
    assert (found is not None) == said
    if found is not None:
        assert found == "its runs took 1,000.0 us by the device's events and " + (
            "500.0 us by its timer" if factor < 1 else "1,200.0 us by its timer"
        )


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
@pytest.mark.parametrize("operand", [0, 1])
def test_changed_inputs_are_noticed(open_device: Opener, arch: str, operand: int) -> None:
    problem = GroupedConvProblem.from_id("forward-fp16-n2-c16-k8-i7x9-f3x3-p1")
    driver, device, binary = open_device(problem, arch)
    assert device.check(binary).status == "ok"
    assert not device.inputs_changed()
    device._require().renew()
    assert not device.inputs_changed(), "the harness's own changes are none"
    for checked in device._require().sets:
        place = checked.inputs[operand].address + checked.inputs[operand].size_bytes // 4 * 2
        before = driver.copy_out(place, 2)
        driver.copy_in(place, bytes([before[0], before[1] ^ 0x40]))
        assert device.inputs_changed()
        driver.copy_in(place, before)
        assert not device.inputs_changed()
