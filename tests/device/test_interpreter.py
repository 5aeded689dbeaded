"""`--target interpret`: kernels in Triton run in Triton's interpreter, in a worker, checked exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pytest_project import Project
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.errors import BuildError, DeviceMissingError, NoKernelsError, TargetError
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import problem_from_id
from tile_oracle.targets import TargetOptions, gpu_presence, resolve_target

pytestmark = pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")

FILE = """\
import triton
import triton.language as tl
from tile_oracle.triton import gemm, rms_norm, softmax
from triton.language.extra.libdevice import rsqrt


def grid(meta):
    return (triton.cdiv(meta["M"], 32), triton.cdiv(meta["N"], 32))


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FORGOTTEN: tl.constexpr,
):
    m = tl.program_id(0) * 32 + tl.arange(0, 32)[:, None]
    n = tl.program_id(1) * 32 + tl.arange(0, 32)[None, :]
    sums = tl.zeros((32, 32), dtype=tl.float32)
    K -= FORGOTTEN
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        a_mask, b_mask = (m < M) & (k[None, :] < K), (n < N) & (k[:, None] < K)
        a = tl.load(a_ptr + m * stride_am + k[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + n * stride_bn, mask=b_mask, other=0.0)
        sums = tl.dot(a, b, sums)
    to = c_ptr + m * stride_cm + n * stride_cn
    tl.store(to, sums.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


CONFIGS = [{"FORGOTTEN": 0}, {"FORGOTTEN": 1}]
gemm(grid=grid, dtypes=["bf16", "fp16"], layouts=["rrr"], configs=CONFIGS)(product)


@softmax(grid=lambda meta: (meta["rows"],), dtypes=["bf16"], configs=[{"BLOCK": 128}])
@triton.jit
def reads_beyond(x_ptr, y_ptr, rows, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * length + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at + 64))


@softmax(grid=lambda meta: (meta["rows"],), dtypes=["bf16"], configs=[{"BLOCK": 128}])
@triton.jit
def adds_shapes_that_differ(x_ptr, y_ptr, rows, length, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK))


@rms_norm(grid=lambda meta: (meta["tokens"],), dtypes=["bf16"], configs=[{"BLOCK": 128}])
@triton.jit
def normalized(x_ptr, w_ptr, y_ptr, hidden, epsilon, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * hidden
    x = tl.load(x_ptr + row + at, mask=at < hidden, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < hidden, other=0.0).to(tl.float32)
    y = x * w * rsqrt(tl.sum(x * x) / hidden + epsilon.to(tl.float32))
    tl.store(y_ptr + row + at, y.to(tl.bfloat16), mask=at < hidden)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "written.py"
    path.write_text(FILE)
    return path


def options(file: Path, **others: str) -> TargetOptions:
    return TargetOptions(build_dir=file.parent / "cache", sources=(f"triton={file}",), **others)  # type: ignore[arg-type]


def outcomes(file: Path, *problem_ids: str) -> Iterator[Measurement]:
    target, _ = resolve_target("interpret", options(file))
    supervisor = Supervisor(target, SweepSettings())
    try:
        for problem in map(problem_from_id, problem_ids):
            kernels = next(iter(target.compiled)).kernels.pool(problem.kind)
            yield from supervisor.sweep(problem, kernels)
    finally:
        supervisor.close()
        target.close()


def test_a_kernel_is_right_and_one_that_drops_the_last_k_is_wrong(file: Path) -> None:
    found = list(outcomes(file, "gemm-bf16-rrr-m33-n17-k50", "gemm-fp16-rrr-m16-n40-k32"))
    assert [one.status for one in found] == ["untimed", "wrong"] * 2
    assert "exact" in found[1].detail
    assert all(one.check == "full" and not one.samples for one in found)


@pytest.mark.slow
def test_a_stray_access_is_a_crash_and_a_python_error_names_its_line(file: Path) -> None:
    stray, error = outcomes(file, "softmax-bf16-r2-c128")
    assert stray.status == "crash"
    assert error.status == "build_error"
    line = FILE[: FILE.index("tl.arange(0, BLOCK) + ")].count("\n") + 1
    assert error.detail.startswith(f"written.py:{line}: ")


@pytest.mark.slow
def test_numbers_and_functions_of_libdevice_are_those_of_a_gpu(file: Path) -> None:
    """The grid is of a number that the function does not take."""
    (found,) = outcomes(file, "rms_norm-bf16-r3-c100")
    assert (found.status, found.detail) == ("untimed", "")


def test_auto_without_a_gpu_names_the_interpreter(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in ("KFD", "_DEV", "_KFD_NODES"):
        monkeypatch.setattr(gpu_presence, place, tmp_path / "none")
    with pytest.raises(DeviceMissingError, match="kernels in Triton are for GPUs: --target interpret checks"):
        resolve_target("auto", options(file))


def test_it_is_for_python_files_of_triton_kernels(file: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="--target interpret runs kernels in Triton alone"):
        resolve_target("interpret", TargetOptions())
    with pytest.raises(TargetError, match="--isa x86-64 is none of gfx950, gfx942, gfx90a, sm_90"):
        resolve_target("interpret", options(file, isa="x86-64"))
    file.write_text(
        FILE.replace('"rrr"]', '"rrr"], archs=["sm_90"]').replace('"bf16"],', '"bf16"], archs=["sm_90"],')
    )
    target, _ = resolve_target("interpret", options(file))
    assert target.arch == "sm_90"
    target.close()
    with pytest.raises(NoKernelsError, match="has no kernel for gfx950"):
        resolve_target("interpret", options(file, isa="gfx950"))
    with pytest.raises(BuildError, match="no such Python file"):
        resolve_target("interpret", options(tmp_path / "none.py"))


@pytest.mark.slow
def test_a_session_ends_with_a_status_of_its_own(file: Path, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", tmp_path / "cache")
    project.write("p.csv", "op,dtype,layout,M,N,K\ngemm,bf16,rrr,33,17,50\n")
    given = ("--problem-set", "p.csv", "--kernels", file, "--target", "interpret")
    right = project.pytest(*given, "--kernel-filter", "FORGOTTEN == 0")
    assert right.status == 17, right.output
    assert "coverage      0 of 1 problem (0.0 %); 1 not timed" in right.lines
    assert project.pytest(*given, "--kernel-filter", "FORGOTTEN == 0", "--allow", "not-timed").status == 0
    wrong = project.pytest(*given)
    assert (wrong.status, wrong.counts()) == (1, {"failed": 1, "passed": 1})
    assert project.pytest(*given, "--model", "mine").status == 4
