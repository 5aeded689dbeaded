"""MIOpenDriver command lines as problem sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.problem_list.strategies import problems
from tile_oracle.errors import ProblemSetError
from tile_oracle.foreign.miopen_driver import _DIMENSIONS
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem_set import ProblemSet, load_problem_set

SHORT = (
    "./bin/MIOpenDriver convbfp16 -n 16 -c 256 -H 28 -W 28 -k 128 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 "
    "-m conv -g 1 -F 1 -t 1"
)
"""As MIOpen's documentation writes it."""
LONG = (
    "./bin/MIOpenDriver conv --batchsize 16 --in_channels 256 --out_channels 128 --in_h 28 --in_w 28 "
    "--fil_h 3 --fil_w 3 --pad_h 1 --pad_w 1 --conv_stride_h 1 --conv_stride_w 1 --group_count 1"
)


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str) -> ProblemSet:
        (tmp_path / "layers.txt").write_text(text)
        return load_problem_set(tmp_path / "layers.txt")

    return load


def ids(loaded: ProblemSet) -> list[str]:
    return [problem.id for problem in loaded.problems]


def test_a_line_with_short_options(load) -> None:
    loaded = load(SHORT + "\n")
    assert ids(loaded) == ["forward-bf16-n16-c256-k128-i28x28-f3x3-p1"]
    assert loaded.sources == ("layers.txt:1",)


def test_long_options_and_all_directions_where_none_is_named(load) -> None:
    layer = "fp32-n16-c256-k128-i28x28-f3x3-p1"
    assert ids(load(LONG)) == [f"{direction}-{layer}" for direction in DIRECTIONS]


@pytest.mark.parametrize(
    ("forw", "directions"),
    [(0, DIRECTIONS), (1, ["forward"]), (2, ["bwd_data"]), (4, ["bwd_weight"]), (3, DIRECTIONS[:2]),
     (5, ["forward", "bwd_weight"]), (6, DIRECTIONS[1:]), (7, DIRECTIONS)],
)  # fmt: skip
def test_directions_are_summed(load, forw: int, directions: list[str]) -> None:
    loaded = load(SHORT.replace("-F 1", f"-F {forw}"))
    assert [problem.direction for problem in loaded.problems] == list(directions)


def test_omitted_options_have_miopens_defaults(load) -> None:
    assert ids(load("MIOpenDriver convfp16 -F 1"))[0] == "forward-fp16-n100-c3-k32-i32x32-f3x3"


@pytest.mark.parametrize(
    "depth",
    [
        "-_ 3 -! 8 -@ 3 -# 2 -$ 1 -^ 1",
        "'-_' 3 '-!' 8 '-@' 3 '-#' 2 '-$' 1",
        "--spatial_dim 3 --in_d 8 --fil_d 3 --conv_stride_d 2 --pad_d 1 --dilation_d 1",
        "--spatial_dim=3 --in_d=8 --fil_d=3 --conv_stride_d=2 --pad_d=1",
    ],
)
def test_three_dimensions(load, depth: str) -> None:
    (problem,) = load(f"{SHORT} {depth}").problems
    assert problem.id == "forward-bf16-n16-c256-k128-i8x28x28-f3x3x3-s2x1x1-p1"


def test_depth_means_nothing_in_two_dimensions(load) -> None:
    assert ids(load(f"{SHORT} -! 8 -@ 3")) == ids(load(SHORT))


def test_a_script_and_a_log_are_lists_too_and_other_lines_are_counted(load) -> None:
    loaded = load(
        "#!/bin/sh\n"
        "export MIOPEN_FIND_MODE=1\n"
        f"MIOpen(HIP): Command [LogCmdConvolution] {SHORT}\n"
        "./bin/MIOpenDriver bnorm -n 16\n"
        f"# {LONG}\n"
        f"  {SHORT} > /dev/null 2>&1\n"
        f"{SHORT.removeprefix('./bin/MIOpenDriver ').replace('-n 16', '-n 8')}\n"
    )
    assert ids(loaded) == [f"forward-bf16-n{n}-c256-k128-i28x28-f3x3-p1" for n in (16, 8)]
    assert loaded.repeated_rows == 1
    assert loaded.notes == (
        "1 left out: no MIOpenDriver command",
        "1 left out: no convolution but bnorm",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("MIOpenDriver convint8 -n 1", "'convint8' is not one of conv, convfp16, convbfp16"),
        (
            "MIOpenDriver conv -n 1 --kernel 3",
            "unrecognized arguments: --kernel 3 (options are those of MIOpenDriver's conv)",
        ),
        ("MIOpenDriver conv -n x", "argument -n/--batchsize: invalid int value: 'x'"),
        ("MIOpenDriver conv -n " + "9" * 4301, "-n/--batchsize: invalid int value: '999"),
        ("MIOpenDriver conv -n", "-n/--batchsize: expected one argument"),
        ("MIOpenDriver conv -n 1 -n 2", "-n/--batchsize: is given twice, as 1 and 2"),
        ("MIOpenDriver conv -F 8", "-F/--forw: invalid choice: 8"),
        ("MIOpenDriver conv -m trans", "-m/--mode: invalid choice: 'trans'"),
        ("MIOpenDriver conv -z same", "-z/--pad_mode: invalid choice: 'same'"),
        ("MIOpenDriver conv -_ 4", "-_/--spatial_dim: invalid choice: 4 (choose from 2, 3)"),
        ("MIOpenDriver conv -g 2", "G = 2 must divide C = 3"),
        ("MIOpenDriver conv -y 99", "enlarge the input or the padding"),
        ("MIOpenDriver conv -u 0", "stride_h = 0 is not an integer from 1"),
        ("MIOpenDriver conv -n '1", "not a command line"),
    ],
)
def test_a_wrong_line_is_reported_with_its_place(load, line: str, message: str) -> None:
    with pytest.raises(ProblemSetError) as caught:
        load(f"{SHORT}\n{line}\n")
    assert "layers.txt:2: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_list_without_a_convolution(load) -> None:
    with pytest.raises(ProblemSetError, match="no problem in it; 1 left out: no convolution but pool"):
        load("MIOpenDriver pool -n 1\n")


def test_a_table_that_speaks_of_miopen_stays_a_table(load) -> None:
    loaded = load("N,C,K,Hi,Wi,Y,X,source\n1,8,8,9,9,3,3,MIOpenDriver conv -n 1\n")
    assert ids(loaded) == ["forward-bf16-n1-c8-k8-i9x9-f3x3"]


@given(problems())
def test_every_problem_can_be_written_as_a_command(tmp_path_factory, problem: GroupedConvProblem) -> None:
    path = tmp_path_factory.mktemp("list") / "layers.txt"
    program = {"fp32": "conv", "fp16": "convfp16", "bf16": "convbfp16"}[problem.dtype]
    sizes = [f"--{long} {getattr(problem, field)}" for field, long, *_ in _DIMENSIONS]
    forw = 1 << DIRECTIONS.index(problem.direction)
    path.write_text(f"{program} --spatial_dim {problem.ndim} --forw {forw} {' '.join(sizes)}\n")
    assert load_problem_set(path).problems == (problem,)


@given(st.lists(st.sampled_from(["-n", "-F", "--in_h", "1", "3", "conv", "-_", "'", "=", "--", "-!", "é"])))
def test_no_line_ends_in_anything_but_problems_or_one_line(tmp_path_factory, words: list[str]) -> None:
    path = tmp_path_factory.mktemp("list") / "layers.txt"
    path.write_text(f"MIOpenDriver conv {' '.join(words)}\n")
    try:
        lines = 1 if load_problem_set(path).problems else 0
    except ProblemSetError as error:
        lines = len(str(error).split("\n"))
    assert lines == 1
