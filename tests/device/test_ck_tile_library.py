"""Libraries of CK Tile kernels, built from the double by the adapter, launched on a recording HIP."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.compiling.ck_tile_double import build as double
from tests.processes import run_python
from tests.pytest_project import SHORTLY, Project
from tile_oracle.cli import main
from tile_oracle.compiling.binary_identity import binary_identity, run_identity
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.ck_tile.kernel_source import CkTileSource
from tile_oracle.compiling.ck_tile.library import code_object_in, instances, what_is_wrong_with_library
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.targets.target import Compiled, Target

ROOT = Path(__file__).parents[2]
DOUBLE = ROOT / "tests" / "compiling" / "ck_tile_double"
FORWARD = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"
BWD_DATA = "grouped_conv_bwd_data_bf16_2d_64x64x64_compv3_intrawave"
GEMM = "gemm_bf16_crr_compv3_cshuffle_intrawave_False_False_False_True_64x64x64_4x1x1_16x16x16"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="libraries of kernels are linked by g++")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ck-tile")


@pytest.fixture(scope="module")
def builder(folder: Path) -> Iterator[Builder]:
    with double.double_builder(folder) as made:
        yield made


@pytest.fixture(scope="module")
def libraries(builder: Builder) -> dict[str, Path]:
    found = {}
    for name in (FORWARD, BWD_DATA, GEMM):
        result = builder.need(parse_kernel_name(name))
        assert result.binary is not None, result.log
        found[name] = result.binary.path
    return found


@pytest.fixture(scope="module")
def runtime(folder: Path) -> Path:
    return Path(double.hip_double(folder))


Run = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def run(libraries: dict[str, Path], runtime: Path, folder: Path) -> Run:
    """The answers of a kernel on problems, and the calls that were noted."""

    def on_double(kernel: str, *rows: dict[str, Any], **environment: str) -> tuple[list[Any], list[Any]]:
        return double.run_on_double(
            runtime, folder, [(libraries[kernel], row) for row in rows], **environment
        )

    return on_double


def launches(calls: list[Any]) -> list[Any]:
    return [call for call in calls if call[0] == "hipLaunchKernel"]


class OneCode(CkTileSource):
    """The GPU code of FORWARD under any name; an interwave kernel has other host code."""

    def unit(self, kernel: Kernel) -> str:
        forward = parse_kernel_name(FORWARD)
        text = super().unit(forward).replace(forward.name, kernel.name)
        return text.replace("direction = 'f'", "direction = 'd'") if "interwave" in kernel.name else text


@pytest.mark.slow
def test_kernels_are_one_where_code_and_launch_are_equal(folder: Path) -> None:
    """The libraries themselves differ, because the name is in them."""
    api = double.double_api()
    source = OneCode("gfx950", api)
    published = (("64x64x64", "intrawave"), ("128x128x64", "intrawave"), ("64x64x64", "interwave"))
    kernels = [
        parse_kernel_name(FORWARD.replace("64x64x64", tile).replace("intrawave", scheduler))
        for tile, scheduler in published
    ]
    with Builder(
        "gfx950",
        toolchain=double.toolchain(api, double.hip_folder(folder)),
        build_dir=folder / "cache",
        jobs=1,
        runs_here=False,
        source=source,
    ) as one_code:
        built = [one_code.need(kernel) for kernel in kernels]
    binaries = [result.binary.path for result in built if result.binary is not None]
    assert len({path.read_bytes() for path in binaries}) == 3
    assert len({binary_identity(path) for path in binaries}) == 1
    same, alike, other = (
        run_identity(source, kernel, path) for kernel, path in zip(kernels, binaries, strict=True)
    )
    assert same == alike is not None
    assert same != other


def problem(direction: str = "forward", **fields: int) -> dict[str, Any]:
    values = {"N": 2, "C": 64, "K": 128, "G": 2, "Hi": 10, "Wi": 12, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    return {"op": "grouped_conv", **GroupedConvProblem(direction, "bf16", 2, **{**values, **fields}).as_row()}


@pytest.mark.slow
def test_a_library_holds_the_kernel_s_code(libraries: dict[str, Path]) -> None:
    path = libraries[FORWARD]
    assert what_is_wrong_with_library(path, "gfx950") is None
    assert len(instances(code_object_in(path, "gfx950"))) == 1
    facts = code_facts(path, "gfx950")
    assert facts.lds_bytes == (64 + 64) * 64 * 2
    assert facts.vgprs
    assert facts.spills == 0
    with pytest.raises(BuildError, match="not for gfx942"):
        code_object_in(path, "gfx942")


def test_another_library_is_refused(runtime: Path) -> None:
    assert "does not export to_ck_abi_version" in str(what_is_wrong_with_library(runtime, "gfx950"))
    with pytest.raises(BuildError, match="contains no GPU code"):
        code_object_in(runtime, "gfx950")


def test_the_binary_identifies_its_ck_tile(builder: Builder) -> None:
    binary = builder.need(parse_kernel_name(FORWARD)).binary
    assert f"CK Tile (headers {double.double_api().headers.digest[:12]})" in binary.toolchain


@pytest.mark.slow
def test_the_kernel_is_checked_and_timed_from_a_graph(run: Run) -> None:
    answers, calls = run(FORWARD, problem())
    status, detail, timed, outs, _, stream = answers[0]
    assert (status, detail) == ("ok", "")
    assert timed >= 8
    launched = launches(calls)
    # 2 x 10 x 12 rows by 64 columns per group, in tiles of 64 x 64; two groups; 4 waves of 64.
    assert {tuple(call[1:4]) for call in launched} == {("4,2,1", "256,1,1", "0")}
    assert {int(call[4], 16) for call in launched} == {stream}
    assert {int(call[5], 16) for call in launched} == set(outs)
    assert all("to_ck_entry" in call[6] for call in launched)
    order = [call[0] for call in calls]
    begin, end = order.index("hipStreamBeginCapture"), order.index("hipStreamEndCapture")
    assert order[begin + 1 : end] == ["hipLaunchKernel"] * 8
    assert "hipMemsetAsync" not in order


def test_problems_that_ck_tile_refuses_are_unsupported_with_its_reason(run: Run) -> None:
    answers, calls = run(FORWARD, problem(C=6), problem(N=1001, Hi=1, Wi=1))
    assert [answer[0] for answer in answers] == ["unsupported"] * 2
    said = "CK Tile's IsSupportedArgument says no: [ERROR] Conv C is not a multiple of the vector"
    assert answers[0][1] == said
    assert answers[1][1] == "N is more than a double can bear"
    assert launches(calls) == []


def test_pixels_that_nothing_reaches_are_zeros(run: Run) -> None:
    with_gaps = problem("bwd_data", Y=1, X=1, stride_h=2, stride_w=2, pad_h=0, pad_w=0)
    # Taps at rows 0, 2 and 4, and so on by 3: none is at row 1, which two rows of padding keep outside.
    dilated = {"stride_h": 3, "dilation_h": 2}
    padded = (problem("bwd_data", pad_h=pad_h, **dilated) for pad_h in (2, 1))
    answers, calls = run(BWD_DATA, problem("bwd_data"), with_gaps, *padded)
    fills = [call for call in calls if call[0] == "hipMemsetAsync"]
    # bf16: 2 images of 10 x 12 pixels of 64 channels; none where the filter reaches all.
    assert {(call[1], call[2], call[3]) for call in fills} == {
        (hex(out), "0", str(2 * 2 * 120 * 64)) for number in (1, 3) for out in answers[number][3]
    }
    names = [call[0] for call in calls if call[0] in ("hipMemsetAsync", "hipLaunchKernel")]
    assert names[-2:] == ["hipMemsetAsync", "hipLaunchKernel"]


def test_a_gemm_s_operands_are_a_and_b(run: Run) -> None:
    answers, calls = run(GEMM, {"op": "gemm", **GemmProblem("bf16", "crr", 192, 128, 64).as_row()})
    assert answers[0][0] == "ok", answers
    first, second = answers[0][4]
    launch = launches(calls)[0]
    # A GEMM's operands are A and B on the device, in any layout.
    assert int(launch[5], 16) == first != second
    # Persistent: as many workgroups as fit on the device, two on each of 256 compute units.
    assert launch[1] == "512,1,1"


def test_a_launch_that_fails_is_reported(run: Run) -> None:
    answers, _ = run(FORWARD, problem(), RECORD_FAIL="hipGetLastError:98")
    status, detail = answers[0][:2]
    assert status == "unsupported"
    assert "to_ck_launch: hipErrorSomething (98)" in detail
    assert "256 threads and 16,384 bytes of LDS" in detail


def test_operands_beyond_32_bit_offsets_are_refused(
    libraries: dict[str, Path], runtime: Path, folder: Path
) -> None:
    script = f"""
import ctypes
from pathlib import Path
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.device.ck_tile_library import CkTileLibrary
from tile_oracle.device.gpu_abi import Unlaunchable
library = CkTileLibrary(Path({str(libraries[FORWARD])!r}), ctypes.CDLL({str(runtime)!r}))
print(library.kernel)
try:
    library.plan(GroupedConvProblem("forward", "bf16", 2, 128, 64, 64, 1, 512, 512, 1, 1))
except Unlaunchable as error:
    print(error)
"""
    done = run_python(
        "-c", script, env={**os.environ, "PYTHONPATH": str(ROOT), "RECORD_TO": str(folder / "other.txt")}
    )
    assert done.stdout.splitlines() == [
        FORWARD,
        "an operand of 4,294,967,296 bytes exceeds CK Tile's 32-bit offsets",
    ], done.stderr


def test_a_library_of_something_else_cannot_be_loaded(runtime: Path, folder: Path) -> None:
    other = folder / "other.so"
    shutil.copy(runtime, other)
    answers, _ = double.run_on_double(runtime, folder, [(other, problem())])
    assert answers[0][0] == "build_error"
    assert "it is not the library of a CK Tile kernel" in answers[0][1]


def test_headers_that_change_during_a_session_end_the_build(tmp_path: Path) -> None:
    from tile_oracle.compiling.ck_tile.api import detect
    from tile_oracle.compiling.ck_tile.headers import find_headers

    shutil.copytree(DOUBLE / "include", tmp_path / "include")
    api = detect(find_headers(tmp_path))
    made = double.hip_folder(tmp_path)
    with Builder(
        "gfx950",
        toolchain=double.toolchain(api, made),
        build_dir=tmp_path / "cache",
        runs_here=False,
        source=CkTileSource("gfx950", api),
    ) as builder:
        (tmp_path / "include" / "ck_tile" / "core.hpp").write_text("#error other\n")
        with pytest.raises(BuildError, match="have changed during the session: start again"):
            builder.need(parse_kernel_name(FORWARD))


def test_the_target_refuses_what_is_not_in_this_ck_tile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS

    monkeypatch.setenv(HIP_HEADERS, str(double.hip_folder(folder)))
    source = CkTileSource("gfx950", double.double_api())
    builder = Builder("gfx950", "ziglang", folder / "cache", 1, source=source)
    target = Target("gfx950", "gfx950", [Compiled(builder)])
    try:
        conv = GroupedConvProblem("forward", "bf16", 2, 2, 64, 64, 1, 8, 8, 3, 3)
        assert target.owner(parse_kernel_name(FORWARD)).implementation == "ck_tile"
        assert target.refusal(parse_kernel_name(FORWARD), conv) is None
        reason = target.refusal(parse_kernel_name(FORWARD.replace("compv3", "mem")), conv)
        assert reason.startswith("ck_tile: pipeline mem is not in this CK Tile")
        gemm = GemmProblem("bf16", "crr", 64, 64, 64)
        assert target.refusal(parse_kernel_name(GEMM), gemm) is None
        split = GemmProblem("bf16", "crr", 64, 64, 128, split_k=2)
        assert str(target.refusal(parse_kernel_name(GEMM), split)).startswith("split_k: ")
    finally:
        target.close()


@pytest.mark.slow
def test_the_command_builds_what_exists_and_counts_the_rest(
    libraries: dict[str, Path],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TILE_ORACLE_HIP_HEADERS", str(folder / "hip"))
    words = ["build", "-o", str(tmp_path / "out"), "--arch", "gfx950", "--ck-tile", str(DOUBLE)]
    words += ["--toolchain", "ziglang", "--build-dir", str(folder / "cache")]
    where = (
        "tile_m == 64 and tile_n == 64 and tile_k == 64 and pipeline in ('compv3', 'mem') and not split_image"
    )
    assert main([*words, "--kernel-filter", where]) == 0
    shown = capsys.readouterr().out
    assert "kernels unsupported: pipeline mem is not in this CK Tile: it has no" in shown
    assert "1 kernel built (0 compiled, 1 from the cache), 0 failed" in shown
    assert "CK Tile (headers " in shown
    assert main([*words, "--kernel-filter", "pipeline == 'mem'"]) == 2
    assert "mem is not in this CK Tile" in capsys.readouterr().err


AMD_MACHINE = """
from pathlib import Path
from tile_oracle.targets import gpu_presence

gpu_presence.KFD = Path("/dev/null")  # may be opened by everybody
"""


@pytest.mark.slow
def test_a_model_picks_among_the_kernels_that_the_checkout_builds(
    libraries: dict[str, Path], runtime: Path, folder: Path, project: Project
) -> None:
    """The shipped model would pick compv5, which is not there; in the session and in its replay."""
    project.write("amd_machine.py", AMD_MACHINE)
    project.problem_set("convs.csv", ("forward-bf16-n2-c64-k64-i8x8-f3x3-p1",))
    where = "tile_m == 64 and tile_n == 64 and tile_k == 64 and pipeline in ('compv3', 'compv5', 'mem')"
    environment = {
        "PYTHONPATH": f"{project.folder}{os.pathsep}{ROOT}",
        "LD_LIBRARY_PATH": str(runtime.parent),
        "RECORD_TO": str(folder / "picks.txt"),
        "TILE_ORACLE_HIP_HEADERS": str(folder / "hip"),
    }
    asked = ("-p", "amd_machine", "--problem-set", "convs.csv", "--toolchain", "ziglang")
    own = ("--ck-tile", DOUBLE, "--kernel-filter", where, "--build-dir", folder / "cache")
    measured = project.pytest(*asked, *own, "--run-name", "first", *SHORTLY, environment=environment)
    replayed = project.pytest("--target", "replay", "--oracle", "reports/first", "--run-name", "second")
    for name, finished in (("first", measured), ("second", replayed)):
        selection = pd.read_parquet(project.folder / "reports" / name / "selection.parquet")
        assert selection["pick_kernel"].tolist() == [FORWARD], finished.output[-3000:]
        assert selection["kernels_ranked"].tolist() == [1]
        assert "15 kernels of the kernel set not built by this checkout" in finished.output
