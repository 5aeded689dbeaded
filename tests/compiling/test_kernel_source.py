"""Kernel sources of other distributions, found by their entry points."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.processes import run_python
from tile_oracle.compiling.source_providers import find_source_provider, open_kernel_source
from tile_oracle.errors import BuildError

LOOPS = r'''
"""Plain loops for any forward convolution in 2D of fp32, behind kernels/cpu/abi.h."""
from dataclasses import dataclass

from tile_oracle.compiling.native import CpuFamily
from tile_oracle.compiling.source import headers_for


@dataclass(frozen=True)
class Loops(CpuFamily):
    def refusal(self, kernel, problem):
        if (problem.direction, problem.dtype, problem.ndim) != ("forward", "fp32", 2):
            return "loops: only forward, 2D, fp32"
        return "loops: only one tile" if kernel.tile_m != 16 else None

    def unit(self, kernel):
        return CODE % kernel.name


class Provider:
    archs = ("cpu",)

    def __call__(self, arch, argument):
        assert argument == "plain"
        return Loops(arch, headers_for(arch), "loops")


provider = Provider()

CODE = """// %s
#include "abi.h"
extern "C" int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
extern "C" int64_t to_workspace_bytes(const to_conv_args *) { return 0; }
extern "C" int32_t to_launch(const to_conv_args *a) {
  const float *x = (const float *)a->in0, *w = (const float *)a->in1;
  float *y = (float *)a->out;
  const int64_t c = a->C / a->G, k = a->K / a->G;
  for (int64_t n = 0; n < a->N; ++n)
    for (int64_t i = 0; i < a->Ho; ++i)
      for (int64_t j = 0; j < a->Wo; ++j)
        for (int64_t o = 0; o < a->K; ++o) {
          float sum = 0;
          for (int64_t r = 0; r < a->Y; ++r)
            for (int64_t s = 0; s < a->X; ++s) {
              const int64_t h = i * a->stride_h + r * a->dilation_h - a->pad_h;
              const int64_t v = j * a->stride_w + s * a->dilation_w - a->pad_w;
              if (h < 0 || h >= a->Hi || v < 0 || v >= a->Wi) continue;
              for (int64_t e = 0; e < c; ++e)
                sum += x[((n * a->Hi + h) * a->Wi + v) * a->C + o / k * c + e] *
                       w[((o * a->Y + r) * a->X + s) * c + e];
            }
          y[((n * a->Ho + i) * a->Wo + j) * a->K + o] = sum;
        }
  return TO_OK;
}
"""
'''


DEVICE_MODULES = """
import sys

def pytest_unconfigure():
    print("device modules:", [name for name in sys.modules if name.startswith("tile_oracle.device")])
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a distribution with two kernel sources: `loops`, and one that cannot be imported."""
    site = tmp_path / "site"
    info = site / "plain_loops-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-loops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tile_oracle.kernel_sources]\nloops = plain_loops:provider\nbroken = no_such_module:provider\n"
    )
    (site / "plain_loops.py").write_text(LOOPS)
    monkeypatch.syspath_prepend(str(site))
    return site


def test_a_session_measures_kernels_of_an_installed_source(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("dtype,N,C,K,Hi,Wi,Y,X,pad_h,pad_w\nfp32,1,8,12,7,6,3,3,1,1\n")
    (tmp_path / "conftest.py").write_text(DEVICE_MODULES)
    command = [
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--problem-set=mine.csv"),
        *("--kernel-set=tiny", "--target=cpu", "--kernels=loops=plain", "--toolchain=ziglang"),
        *("--model=none", "--run-name=run", f"--build-dir={tmp_path / 'cache'}", "--samples=5"),
    ]
    ran = run_python(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "device modules: []" in ran.stdout  # the parent has measured, and imported none of them
    rows = pd.read_parquet(tmp_path / "reports" / "run" / "measurements")
    refused = rows.status == "unsupported"
    good = rows[~refused]
    assert set(good.status) <= {"ok", "noisy"}
    assert len(good) >= 1
    assert set(good.implementation) == {"loops"}
    assert set(good.check) == {"full"}
    assert set(rows[refused].detail) == {"loops: only one tile"}
    # Its code is the same for all kernels, so one is measured and the other is recorded as its twin.
    first, other = (rows for _, rows in good.groupby("kernel", sort=True))
    assert set(first.detail) == {""}
    assert set(other.detail) == {f"twin of {first.kernel.iloc[0]}"}
    assert sorted(first.latency_ms) == sorted(other.latency_ms)


def test_only_the_named_source_is_imported(installed: Path) -> None:
    sys.modules.pop("plain_loops", None)
    assert find_source_provider("ck_tile").archs == ("gfx950", "gfx942", "gfx90a")
    assert "plain_loops" not in sys.modules
    source = open_kernel_source("cpu", "loops=plain")
    assert source.implementation == "loops"
    with pytest.raises(BuildError, match="--kernels broken cannot be loaded: ModuleNotFoundError"):
        find_source_provider("broken")
    with pytest.raises(BuildError, match="'none' is not one of broken, ck_tile, loops"):
        find_source_provider("none")
