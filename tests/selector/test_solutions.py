"""The user's own dispatcher: its list of names, the exported example, and Python's picks among them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.selector.test_export import MODEL, SELECTOR, compilers, made, needs_make
from tile_oracle.cli import main
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

NAMES = data_folder("selector") / "example" / "dispatch" / "names.txt"
VECTORS = (8, 1, 4)
"""Channels that each function of the example reads at once."""


PROBLEMS = [
    GroupedConvProblem(
        "forward", "bf16", 2, N=n, G=1, C=c, K=k, Hi=i, Wi=i, Y=f, X=f, pad_h=f // 2, pad_w=f // 2
    )
    for n, c, k, i, f in (
        (1, 4, 64, 7, 1), (1, 128, 64, 14, 1), (8, 3, 64, 28, 3),  # the smallest tile
        (1, 24, 256, 56, 3), (4, 24, 64, 56, 3),  # the largest
        (4, 4, 128, 56, 1), (32, 8, 64, 28, 1),  # the one between
        (4, 20, 128, 56, 3), (32, 3, 64, 28, 1),  # the first pick cannot read so few channels
    )
]  # fmt: skip


def line_of(p: GroupedConvProblem) -> str:
    return f"{p.N} {p.C} {p.K} {p.G} {p.Hi} {p.Wi} {p.Y} {p.X} {p.stride_h} {p.pad_h}\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's export, built."""
    folder = tmp_path_factory.mktemp("solutions") / "exported"
    assert main(["export", MODEL.name, "-o", str(folder), "--kernels", str(NAMES)]) == 0
    compiler = next(reversed(compilers()))
    made(folder, compiler, "build/libtile_oracle_selector.a")
    made(folder, compiler, "CXXFLAGS=-O1", "build/dispatch")
    return folder


@pytest.mark.slow
@needs_make
def test_the_example_s_dispatcher_picks_what_python_picks(exported: Path) -> None:
    """Also if the first pick does not support the problem and the next one does."""
    done = subprocess.run(
        [exported / "build" / "dispatch", exported / SELECTOR],
        input="".join(map(line_of, PROBLEMS)), capture_output=True, text=True, check=True, env={},
    )  # fmt: skip
    kernels = [parse_kernel_name(name) for name in NAMES.read_text().split()]
    predictor = Predictor.load(MODEL)
    ranked = [[kernels.index(kernel) for kernel, _ in predictor.rank(p, kernels)] for p in PROBLEMS]
    expected = [
        next(place for place in order if p.C // p.G % VECTORS[place] == 0)
        for p, order in zip(PROBLEMS, ranked, strict=True)
    ]
    said = [line.split() for line in done.stdout.splitlines()]
    assert [int(place) for place, _ in said] == expected
    assert set(expected) == {0, 1, 2}
    assert any(order[0] != place for order, place in zip(ranked, expected, strict=True))


@pytest.mark.slow
@needs_make
def test_a_candidate_without_a_function_is_named(exported: Path, tmp_path: Path) -> None:
    assert main(["export", MODEL.name, "-o", str(tmp_path / "all")]) == 0
    command = [exported / "build" / "dispatch", tmp_path / "all" / SELECTOR]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "dispatch: candidate grouped_conv_forward_bf16_2d_128x128x64_compv3_intrawave has no solution: "
        "export the model with --kernels and your names\n",
    )


def test_names_that_the_model_cannot_rank_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = NAMES.read_text().split()
    unknown = "grouped_conv_forward_bf16_2d_64x128x64_mem_intrawave_wt16x16x32_v8x8x8"
    listed = [third, "my_own_kernel<64, 64>", first.replace("forward", "bwd_data"), third, unknown, first]
    (tmp_path / "names.txt").write_text("\n\n".join(listed) + "\n")
    folder = tmp_path / "exported"
    command = ["export", MODEL.name, "-o", str(folder), "--kernels", str(tmp_path / "names.txt")]
    assert main(command) == 0
    assert (folder / "forward_bf16_2d.kernels.txt").read_text().split() == [third, unknown, first]
    solutions = json.loads((folder / "manifest.json").read_text())["solutions"]
    assert solutions["names"] == listed
    assert list(solutions["never_picked"]) == [listed[1], listed[2], third]
    assert solutions["untrained"] == [unknown]
    said = capsys.readouterr().err
    assert f"never picked: {listed[2]} (was trained for forward, not bwd_data)" in said
    assert f"never picked: {third} (the list names it before)" in said
    assert f"not trained on them: 1 ({unknown})" in said
    (tmp_path / "names.txt").write_text(second.replace("bf16", "fp16"))
    assert main(command) == 2
    assert "can rank none of the 1 kernels named" in capsys.readouterr().err
