"""Tables of results, and of other programs, as problem sets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.problem_set import ProblemSet, load_problem_set, problem_from_dimensions

DIMENSIONS = "N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w"


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str) -> ProblemSet:
        (tmp_path / "mine.csv").write_text(text)
        return load_problem_set(tmp_path / "mine.csv")

    return load


def ids(loaded: ProblemSet) -> list[str]:
    return [problem.id for problem in loaded.problems]


def test_a_table_of_results_is_a_problem_set(load) -> None:
    """Published by tile_engine, but for the repeated header row, which joined shards have."""
    head = f"kernel,problem_idx,{DIMENSIONS},pad_h,pad_w,latency_ms,tflops,non_zero\n"
    row = "{},0,1,128,256,1,32,32,2,2,2,2,0,0,0.007944,8.447742,65536\n"
    name = "grouped_conv_{}_2d_16x64x64_compv3"
    loaded = load(
        head + row.format(name.format("forward_bf16")) * 2 + head + row.format(name.format("bwd_data_fp16"))
    )
    assert ids(loaded) == [
        f"{kind}-n1-c128-k256-i32x32-f2x2-s2" for kind in ("forward-bf16", "bwd_data-fp16")
    ]
    assert loaded.repeated_rows == 1
    assert loaded.notes == ("ignored columns: problem_idx, latency_ms, tflops, non_zero",)


def test_columns_of_direction_and_type_say_more_than_a_kernel_s_name(load) -> None:
    loaded = load(
        "kernel,dtype,N,C,K,Hi,Wi,Y,X\ngrouped_conv_bwd_data_bf16_2d_16x64x64_compv3,fp32,1,8,8,9,9,3,3\n"
        "unknown,fp32,1,8,8,9,9,3,3\n"
    )
    assert ids(loaded) == ["bwd_data-fp32-n1-c8-k8-i9x9-f3x3", "forward-fp32-n1-c8-k8-i9x9-f3x3"]


@pytest.mark.parametrize(
    ("row", "pads"),
    [
        ("1,52,156,1,256,256,1,1,1,1,256,256", (0, 0)),
        ("1,3,64,1,224,224,7,7,2,2,112,112", (3, 3)),
        ("1,64,64,1,57,56,3,3,2,1,29,56", (1, 1)),
        ("1,64,64,1,56,56,2,2,1,1,57,57", (1, 1)),
    ],
)
def test_output_extents_give_the_padding_where_no_column_does(load, row: str, pads: tuple[int, int]) -> None:
    (problem,) = load(f"{DIMENSIONS},Ho,Wo\n{row}\n").problems
    assert (problem.pad_h, problem.pad_w) == pads
    assert (problem.Ho, problem.Wo) == tuple(map(int, row.split(",")[-2:]))


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        (DIMENSIONS + ",pad_h,pad_w,Ho,Wo", "1,8,8,1,9,9,3,3,1,1,1,1,9,8", r":2: Wo = 8, but .* give Wo = 9"),
        (DIMENSIONS + ",Ho,Wo", "1,8,8,1,9,9,1,1,1,1,3,9", ":2: Ho = 3, but .* give Ho = 9"),
        (DIMENSIONS + ",Ho,Wo", "1,8,8,1,9,9,3,3,1,1,0,9", ":2: Ho = 0"),
    ],
)
def test_impossible_output_extents(load, head: str, row: str, message: str) -> None:
    with pytest.raises(ProblemSetError, match=message):
        load(f"{head}\n{row}\n")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "batch_size,in_channels,out_channels,height,width,kernel_size,stride,padding,groups",
            "column 1, 'batch_size', is unknown; did you mean N? (and 'in_channels' C, 'out_channels' K, "
            "'height' Hi, 'width' Wi, 'kernel_size' Y and X, 'stride' stride_h and stride_w, "
            "'padding' pad_h and pad_w, 'groups' G)",
        ),
        ("n,c,k,H,W,R,S", "column 1, 'n', is unknown; did you mean N? (and 'c' C, 'k' K, 'H' Hi, 'W' Wi"),
        ("N,C,K,Hi,Wi,kernel_h,kernel_w", "column 6, 'kernel_h', is unknown; did you mean Y? (and"),
        ("N,C,K,Hi,Wi,Y,X,padh", "column 8, 'padh', is unknown; did you mean pad_h?"),
        ("N,C,K,Hi,Wi,Y,X,pad_x,pad_y", "did you mean pad_w? (and 'pad_y' pad_h)"),
        ("N,C,K,Hi,Wi,Y,X,variant", "did you mean direction?"),
        ("N,C,K,Hi,Wi,Y,X,ho", "did you mean Ho?"),
    ],
)
def test_a_header_of_another_program_gets_our_names(load, header: str, message: str) -> None:
    with pytest.raises(ProblemSetError) as caught:
        load(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    assert message in str(caught.value)
    assert "mine.csv:1: " in str(caught.value)


def test_dimensions_on_a_command_line_have_no_further_columns() -> None:
    with pytest.raises(ProblemSetError, match=r"'problem_idx', is unknown; known are direction"):
        problem_from_dimensions("N=1,C=8,K=8,Hi=9,Wi=9,Y=3,X=3,problem_idx=4")


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("M,N,K,batch_count", "8,8,8,4", "batch_count = '4' says that it is another operation"),
        ("M,N,K,dtype_b", "8,8,8,fp16", "dtype_b = 'fp16' contradicts the kernel"),
        ("M,N,K,layout_a", "8,8,8,ColumnMajor", "layout_a = 'ColumnMajor' contradicts the kernel"),
        ("N,C,K,Hi,Wi,Y,X,in_layout", "1,8,8,8,8,1,1,NCHW", "in_layout = 'NCHW' contradicts the kernel"),
    ],
)
def test_further_columns_must_not_deny_the_problem(tmp_path: Path, columns: str, row: str, said: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{columns}\n{row}\n")
    with pytest.raises(ProblemSetError, match=re.escape(said)):
        load_problem_set(path)
    path.write_text("M,N,K,bias,batch_count\n8,8,8,True,1\n")
    assert "1 taken as the plain operation: bias says that more" in " ".join(load_problem_set(path).notes)


# Records as problem sets.

IDS = ("forward-bf16-n1-c8-k8-i9x9-f3x3", "bwd_data-fp16-n2-c8-k8-i9x9-f3x3")


def write(path: Path, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_parquet(path)
    return path


def test_a_file_and_a_run_s_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "all.parquet", problem=[IDS[0], IDS[0], IDS[1]])
    write(tmp_path / "run.1" / "measurements" / "part-1.parquet", problem=[IDS[0]])
    write(tmp_path / "run.1" / "measurements" / "part-2.parquet", problem=IDS)
    of_file, of_run = load_problem_set(file), load_problem_set(tmp_path / "run.1")
    assert tuple(problem.id for problem in of_file.problems) == IDS
    assert of_run.problems == of_file.problems
    assert of_run.sha256 == of_file.sha256
    assert (of_file.name, of_run.name) == ("all", "run.1")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kernel": ["a"]}, "no column problem: these are no records; `tile-oracle runs import` makes"),
        ({"problem": ["conv"]}, "'conv' is not a problem id"),
        ({"problem": [None]}, "'None' is not a problem id"),
        ({"problem": [IDS[0].replace("c8", "c" + "8" * 4301)]}, "(a record's problem)"),
        ({"problem": [7]}, "'7' is not"),
        ({"problem": []}, "no problem in it"),
    ],
)
def test_files_that_are_not_records(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(ProblemSetError) as caught:
        load_problem_set(write(tmp_path / "all.parquet", **columns))
    assert message in str(caught.value)
    assert "all.parquet: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("N,C,K")
    os.mkfifo(tmp_path / "pipe.parquet")
    for name, message in (("text", "text.parquet is not parquet"), ("pipe", "is not a regular file")):
        with pytest.raises(ProblemSetError, match=message):
            load_problem_set(tmp_path / f"{name}.parquet")
