"""The emulated GPU."""

from __future__ import annotations

import pytest

from tests.kernels.emulated_gpu.device import EmulatedGpu


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> EmulatedGpu:
    return EmulatedGpu(tmp_path_factory.mktemp("emulated"))
