"""Fixtures of the registry's tests: kernels of several kinds, compiled once, and a registry of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from evil_target import NOISE_ALLOWED

from tests.pools import gemm_pool, kernel_pool
from tile_oracle.kernel import Kernel
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.registry import Registry
from tile_oracle.targets import TargetOptions
from tile_oracle.targets.resolve import open_target
from tile_oracle.targets.target import Target

DTYPES = {
    ("forward", 2): "bf16",
    ("bwd_data", 2): "fp16",
    ("bwd_weight", 2): "fp32",
    ("forward", 3): "fp32",
    ("bwd_data", 3): "bf16",
    ("bwd_weight", 3): "fp16",
}
"""One data type for each direction and rank, so that all occur and few kernels are compiled."""

GEMM_DTYPES = {"rcr": "bf16", "rrr": "fp16", "crr": "fp32", "ccr": "fp32"}
"""Most of their kernels share their binary with a convolution's above."""

SHORT = SweepSettings(
    timing=TimingPlan(budget_ms=0.5, noisy_above=NOISE_ALLOWED), final_budget_ms=0.1, final_passes=1
)
"""Measurements of a few milliseconds: these tests do not depend on the times."""


def _small(kernels: tuple[Kernel, ...]) -> Kernel:
    return min((k for k in kernels if k.pipeline == "mem"), key=lambda k: (k.tile, k.name))


@pytest.fixture(scope="session")
def few_kernels() -> list[Kernel]:
    """One kernel of each kind."""
    convolutions = [
        _small(kernel_pool(direction, dtype, ndim, "cpu", "tiny"))
        for (direction, ndim), dtype in DTYPES.items()
    ]
    return [
        *convolutions,
        *(_small(gemm_pool(dtype, layout, "cpu", "tiny")) for layout, dtype in GEMM_DTYPES.items()),
    ]


@pytest.fixture(scope="session")
def cpu_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One target, so that a kernel is compiled once in a session."""
    target = open_target(
        "cpu", TargetOptions(toolchain="ziglang", build_dir=tmp_path_factory.mktemp("kernels"))
    )
    yield target
    target.close()


@pytest.fixture
def make_registry(cpu_target: Target) -> Iterator[Callable[..., Registry]]:
    """Registries of the CPU."""
    opened: list[Registry] = []

    def make(**changes: Any) -> Registry:
        options: dict[str, Any] = {"target": cpu_target, "kernels": "tiny", "settings": SHORT}
        options |= changes
        opened.append(Registry(options.pop("target"), **options))
        return opened[-1]

    yield make
    for registry in opened:
        registry.close()
