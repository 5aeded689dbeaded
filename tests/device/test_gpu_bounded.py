"""Results with error bounds on an emulated GPU: kernels on rows are checked and timed as on a GPU.

The kernels here are Python functions on the emulated device's memory, which is this process's.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.emulated_gpu.compiler import WORK_LAUNCHERS
from tests.kernels.emulated_gpu.device import EmulatedGpu
from tests.kernels.emulated_gpu.driver import EmulatedDriver
from tile_oracle.compiling.source import device_work_source
from tile_oracle.device import gpu, gpu_bounded
from tile_oracle.device.bounded_rows import Repeated
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.loaded_run import Launches, Run
from tile_oracle.device.runtime.driver import Launch, LibraryLaunch
from tile_oracle.operation.on_device import on_gpu
from tile_oracle.operations.attention import on_device
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.fused_moe.problem import FusedMoeProblem
from tile_oracle.operations.rms_norm.problem import EPSILON, RmsNormProblem
from tile_oracle.operations.softmax.problem import SoftmaxProblem
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

EXPERTS = FusedMoeProblem("bf16", "down", 600, 5, 2, 24, 40, zipf=100)
TYPES = {"fused_moe": [STORAGE["bf16"]] * 2 + [np.dtype(np.int32), np.dtype(np.float32)]}
"""Operation -> the types of its operands, where they are not all those of the problem."""
Compute = Callable[[list[Array]], Array]
"""Operands in fp64 -> the result."""


class CallingDriver(EmulatedDriver):
    """Also runs functions of Python, each of which takes 300 microseconds."""

    def launch(self, launch: Launch | LibraryLaunch) -> None:
        if isinstance(launch, Launch):
            super().launch(launch)
        else:
            launch.start(0)
            self._now_ns += 300_000.0


class PythonKernel:
    """See tile_oracle.device.loaded_kernel.LoadedKernel."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute

    def plan(self, problem: Problem) -> Run:
        def launches(*addresses: int) -> Launches:
            *operands, out, _ = addresses

            def start(stream: int) -> int:
                dtype = STORAGE[problem.dtype]
                types = TYPES.get(problem.op, [dtype] * len(operands))
                stored = [
                    np.frombuffer(ctypes.string_at(at, int(np.prod(shape)) * of.itemsize), of).reshape(shape)
                    for at, shape, of in zip(operands, problem.operand_shapes, types, strict=False)
                ]
                values = [
                    decode(one, problem.dtype).astype(np.float64) if one.dtype == dtype else one
                    for one in stored
                ]
                result = self.compute(values)
                data = encode(result, problem.dtype).tobytes()
                ctypes.memmove(out, data, len(data))
                return 0

            return (LibraryLaunch("python", start),)

        return Run(0, "nothing", launches)

    def facts(self) -> Mapping[str, int]:
        return {}

    def unload(self) -> None:
        """Has nothing to free."""


def softmax(operands: list[Array]) -> Array:
    terms = np.exp(operands[0] - operands[0].max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


@np.errstate(invalid="ignore")
def rms_norm(operands: list[Array]) -> Array:
    """Some rows hold infinities, whose results are NaN."""
    x, w = operands
    return np.asarray(x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * w)


def attention(operands: list[Array]) -> Array:
    q, k, v = operands
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
    scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[3])
    return softmax([scores.reshape(-1, scores.shape[3])]).reshape(scores.shape) @ v


def another_head(operands: list[Array]) -> Array:
    return attention([*operands[:2], np.roll(operands[2], 1, axis=1)])


def experts(operands: list[Array], size: int = 16) -> Array:
    """By the lists for blocks of so many rows."""
    a, b, routing, weights = operands
    count_at, experts_at, pairs_at = EXPERTS.lists[size]
    out = np.full((EXPERTS.pairs, EXPERTS.N), np.nan)
    for block in range(routing[count_at] // size):
        pairs = routing[pairs_at + block * size : pairs_at + (block + 1) * size]
        pairs = pairs[pairs < EXPERTS.pairs]
        out[pairs] = a.reshape(-1, EXPERTS.K)[pairs] @ b[routing[experts_at + block]].T
    return np.asarray(out * weights.reshape(-1, 1)).reshape(EXPERTS.tokens, -1)


def experts_256(operands: list[Array]) -> Array:
    return experts(operands, 256)


def experts_without_weights(operands: list[Array]) -> Array:
    return experts([*operands[:3], np.ones_like(operands[3])])


def product_of_columns(operands: list[Array]) -> Array:
    a, b, d = operands
    return np.swapaxes(a, 1, 2) @ b + d


def first_product(operands: list[Array]) -> Array:
    a, b, d = operands
    return np.swapaxes(a, 1, 2) @ b[:1] + d


def neighbour(operands: list[Array]) -> Array:
    return np.roll(softmax(operands), 1, axis=0)


def not_a_number(operands: list[Array]) -> Array:
    result = softmax(operands)
    result[-1, -1] = np.inf - np.inf
    return result


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedGpu:
    return EmulatedGpu(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def device(emulated: EmulatedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuDevice]:
    """A device whose binaries are named after the functions above."""
    library = emulated.library(device_work_source("sm_90") + WORK_LAUNCHERS, "sm_90")
    opened = GpuDevice(CallingDriver(emulated, "sm_90", tmp_path), library)
    monkeypatch.setattr(gpu, "load_kernel", lambda driver, path, units: PythonKernel(globals()[path.name]))
    yield opened
    opened.idle()


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (SoftmaxProblem("bf16", 300, 70), "softmax"),
        (SoftmaxProblem("fp32", 5, 1000), "softmax"),
        (RmsNormProblem("fp16", 70, 33), "rms_norm"),
        (AttentionProblem("bf16", 3, 6, 3, 5, 40, 64), "attention"),
        (AttentionProblem("fp16", 1, 2, 2, 70, 33, 128), "attention"),
        (EXPERTS, "experts"),
        (EXPERTS, "experts_256"),
        (FusedGemmProblem("bf16", "crr", "residual", 30, 40, 50, 3), "product_of_columns"),
        (FusedGemmProblem("fp16", "crr", "residual", 300, 20, 7), "product_of_columns"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_a_right_kernel_is_checked_and_timed(device: GpuDevice, problem: Problem, kernel: str) -> None:
    device.load(problem, 3)
    checked = device.check(Path(kernel))
    assert (checked.status, checked.detail) == ("ok", "")
    assert checked.points == np.prod(problem.operand_shapes[-1])
    for _ in range(3):
        assert device.sample(Path(kernel), 2).tolist() == [300_000.0] * 2
    assert device.verify(Path(kernel)).status == "ok"
    assert not device.inputs_changed()


@pytest.mark.parametrize(
    ("problem", "kernel", "said"),
    [
        (SoftmaxProblem("bf16", 300, 70), "neighbour", r"right is \S+ to \S+"),
        (EXPERTS, "experts_without_weights", r"values wrong|right is \S+ to \S+"),
        (SoftmaxProblem("bf16", 300, 70), "not_a_number", "1 of 21,000 values are NaN"),
        (
            AttentionProblem("bf16", 3, 6, 3, 5, 40, 64),
            "another_head",
            r"at \(0, 0, 0, 0\) got \S+, right is",
        ),
        (
            FusedGemmProblem("bf16", "crr", "residual", 30, 40, 50, 3),
            "first_product",
            r"at \(1, 0, 0\) got \S+, right is",
        ),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_a_wrong_kernel_is_found(device: GpuDevice, problem: Problem, kernel: str, said: str) -> None:
    device.load(problem, 3)
    checked = device.check(Path(kernel))
    assert checked.status == "wrong"
    assert re.search(said, checked.detail), checked.detail


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (SoftmaxProblem("bf16", 300, 70), softmax),
        (FusedGemmProblem("bf16", "crr", "residual", 30, 40, 50, 3), product_of_columns),
    ],
    ids=["by rows", "by columns"],
)
def test_an_earlier_result_is_wrong_when_it_was_timed(
    device: GpuDevice, monkeypatch: pytest.MonkeyPatch, problem: Problem, kernel: Compute
) -> None:
    device.load(problem, 3)
    results: list[Array] = []

    def first_result(operands: list[Array]) -> Array:
        results.append(kernel(operands))
        return results[0]

    monkeypatch.setitem(globals(), "first_result", first_result)
    device.sample(Path("first_result"), 2)
    result = device.verify(Path("first_result"))
    assert result.status == "wrong"
    assert result.detail.startswith("when it was timed, ")


def test_operands_repeat_on_the_device(device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_bounded, "_MADE_VALUES", 7 * 64)
    monkeypatch.setattr(on_device, "_MOST_VALUES", 11 * 64)
    problem = AttentionProblem("bf16", 3, 6, 3, 5, 40, 64)
    device.load(problem, 3)
    assert device.check(Path("attention")).status == "ok"
    k = device._require().sets[0].inputs[1]
    rows = np.frombuffer(ctypes.string_at(k.address, k.size_bytes), STORAGE["bf16"]).reshape(-1, 64)
    assert (rows[11:] == rows[:-11]).all()
    assert len(np.unique(rows[:11], axis=0)) == 11
    assert not device.inputs_changed()
    device.sample(Path("attention"), 2)
    device.sample(Path("attention"), 2)
    assert device.verify(Path("attention")).status == "ok"
    assert not device.inputs_changed()


@pytest.mark.parametrize(
    "problem",
    [RmsNormProblem("bf16", 20, 40), FusedGemmProblem("bf16", "crr", "bias", 20, 40, 9)],
    ids=["by rows", "by columns"],
)
def test_a_changed_operand_or_bound_is_noticed(device: GpuDevice, problem: Problem) -> None:
    device.load(problem, 3)
    data = device._require()
    assert isinstance(data, gpu_bounded.BoundedData)
    operands = [operand.address for checked in data.sets for operand in checked.inputs]
    for address in (*operands, *(at for at, _ in data._kept)):
        before = ctypes.string_at(address, 2)
        ctypes.memmove(address, bytes([before[0] ^ 1, before[1]]), 2)
        assert device.inputs_changed()
        ctypes.memmove(address, before, 2)
    assert not device.inputs_changed()


def test_data_that_another_process_made_are_those_of_the_device(device: GpuDevice, tmp_path: Path) -> None:
    """As bytes of all operands and bounds."""

    def loaded(made: str) -> list[bytes]:
        device.load(EXPERTS, 3, made)
        data = device._require()
        assert isinstance(data, gpu_bounded.BoundedData)
        operands = [one for checked in data.sets for one in checked.inputs]
        kept = [ctypes.string_at(at, values.nbytes) for at, values in data._kept]
        return [*kept, *(ctypes.string_at(one.address, one.size_bytes) for one in operands)]

    file = tmp_path / "made"
    file.write_bytes(pickle.dumps(on_gpu(EXPERTS.op).host_data(EXPERTS, 3)))
    assert loaded(str(file)) == loaded("")
    assert not file.exists(), "it is for one worker"
    file.write_bytes(pickle.dumps(on_gpu(EXPERTS.op).host_data(EXPERTS, 4)))
    assert loaded(str(file)) != loaded("")


@pytest.mark.parametrize("rows", [20, 300], ids=["adjacent rows", "rows apart"])
def test_turns_copy_nothing_to_the_device(
    device: GpuDevice, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    device.load(RmsNormProblem("bf16", rows, 40), 3)
    data = device._require()
    monkeypatch.delattr(EmulatedDriver, "copy_in")
    for _ in range(5):
        data.renew()
        assert not device.inputs_changed()


# Operands that repeat their values.


@given(
    st.integers(1, 40),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 7)),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_rows_are_those_of_the_whole(
    period: int, shape: tuple[int, int, int], begin: int, count: int
) -> None:
    operand = Repeated(np.arange(min(period, math.prod(shape)), dtype=np.uint16), shape)
    whole = operand.whole()
    assert whole.shape == shape
    assert operand.size == whole.size
    rows = whole.reshape(-1, shape[-1])
    begin = min(begin, len(rows))
    end = min(begin + count, len(rows))
    assert (operand.rows(begin, end) == rows[begin:end]).all()
