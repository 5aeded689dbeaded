"""On an NVIDIA GPU: what a kernel's code on the host changes is found and restored, and harms no other."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.evil_gpu_kernels.evil_gpu import evil_gpu_builder, evil_gpu_kernel
from tile_oracle.device import gpu
from tile_oracle.device.base import KernelFailed
from tile_oracle.device.gpu import GpuDevice, open_device
from tile_oracle.device.loaded_kernel import LoadedKernel, load_kernel
from tile_oracle.device.loaded_run import Launches, Run
from tile_oracle.device.runtime.driver import Driver, LibraryLaunch
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.targets.gpu_presence import nvidia_presence

PROBLEM = GroupedConvProblem("forward", "bf16", 2, 2, 8, 8, 1, 9, 9, 3, 3, pad_h=1, pad_w=1)
Meddles = Callable[[ctypes.CDLL, int, int], object]
"""Takes the driver's library, the stream, and the address of the output."""


class _Window(ctypes.Structure):
    """CUaccessPolicyWindow, in CUstreamAttrValue."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_char * 36),
    )


def limit(cuda: ctypes.CDLL, stream: int, out: int) -> None:
    cuda.cuCtxSetLimit(6, ctypes.c_size_t(8 << 20))


def window(cuda: ctypes.CDLL, stream: int, out: int) -> None:
    value = _Window(out, 1024, 1.0, 2, 1, b"")
    cuda.cuStreamSetAttribute(ctypes.c_void_p(stream), 1, ctypes.byref(value))


def cache(cuda: ctypes.CDLL, stream: int, out: int) -> None:
    cuda.cuCtxSetCacheConfig(2)


def priority(cuda: ctypes.CDLL, stream: int, out: int) -> None:
    value = ctypes.create_string_buffer(64)
    ctypes.c_int.from_buffer(value).value = -3
    cuda.cuStreamSetAttribute(ctypes.c_void_p(stream), 8, value)


MEDDLING: Mapping[str, tuple[Meddles, str]] = {
    "limit": (limit, "the share of the L2 cache for persisting data"),
    "window": (window, "the stream's window of persisting L2 data"),
    "cache": (cache, "the preferred cache"),
    "priority": (priority, "the stream's priority"),
}


@dataclass
class WithHostCode:
    """A kernel that runs code on the host before each launch."""

    kernel: LoadedKernel
    meddles: Meddles
    cuda: ctypes.CDLL

    def plan(self, problem: Problem) -> Run:
        run = self.kernel.plan(problem)

        def launches(*addresses: int) -> Launches:
            def start(stream: int) -> int:
                self.meddles(self.cuda, stream, addresses[-2])
                return 0

            return (LibraryLaunch("meddling", start), *run.launches(*addresses))

        return Run(run.workspace_bytes, run.needs, launches)

    def facts(self) -> Mapping[str, int]:
        return self.kernel.facts()

    def unload(self) -> None:
        self.kernel.unload()


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The harness's own kernels, and five correct ones."""
    presence = nvidia_presence()
    if not presence.usable:
        pytest.skip(presence.why)
    prebuilt = os.environ.get("TILE_ORACLE_GPU_TEST_KERNELS")  # see test_on_gpu.py
    folder = tmp_path_factory.mktemp("evil")
    with evil_gpu_builder(folder, "sm_90", Path(prebuilt) if prebuilt else None) as builder:
        results = [builder.submit(evil_gpu_kernel("good", 65 + n)).result() for n in range(5)]
        assert all(one.binary for one in results), results[0].log
        return builder.device_work().path, [one.binary.path for one in results if one.binary]


@pytest.fixture
def device(binaries: tuple[Path, list[Path]]) -> Iterator[GpuDevice]:
    opened = open_device("sm_90", str(binaries[0]))
    opened.load(PROBLEM, 3)
    yield opened
    opened.idle()


def status_of(device: GpuDevice, binary: Path) -> tuple[str, str]:
    checked = device.check(binary)
    assert (checked.status, checked.detail) == ("ok", "")
    try:
        device.sample(binary, 3)
    except KernelFailed as failed:
        return failed.status, str(failed)
    verified = device.verify(binary)
    return verified.status, verified.detail


@pytest.mark.parametrize("name", MEDDLING)
def test_a_changed_setting_is_wrong_and_the_next_kernel_is_not(
    device: GpuDevice, binaries: tuple[Path, list[Path]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddles, words = MEDDLING[name]
    before, bad, after = binaries[1][:3]

    def load(driver: Driver, binary: Path, units: int) -> LoadedKernel:
        kernel = load_kernel(driver, binary, units)
        return WithHostCode(kernel, meddles, ctypes.CDLL("libcuda.so.1")) if binary == bad else kernel

    monkeypatch.setattr(gpu, "load_kernel", load)
    assert status_of(device, before) == ("ok", "")
    status, detail = status_of(device, bad)
    # CUDA itself refuses some changes while a graph is made.
    assert status == "wrong"
    assert words in detail or "CAPTURE_INVALIDATED" in detail
    assert status_of(device, after) == ("ok", "")
    assert device.clocks_differ(after) is None


def test_two_clocks_agree_about_right_kernels(device: GpuDevice, binaries: tuple[Path, list[Path]]) -> None:
    for binary in binaries[1]:
        assert status_of(device, binary) == ("ok", "")
        assert device.clocks_differ(binary) is None
