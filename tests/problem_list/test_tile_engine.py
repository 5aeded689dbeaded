"""tile_engine's Python lists as problem sets: parsed, never run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.problem_list.strategies import problems
from tile_oracle.errors import ProblemSetError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem_list import tile_engine
from tile_oracle.problem_set import ProblemSet, load_problem_set, load_problem_sets

HEAD = "import sys\nfrom grouped_conv_utils import GroupedConvProblem\n\nsys.path.insert(0, '.')\n"
CALL = (
    "GroupedConvProblem(N=1, C=128, K=256, G=1, Hi=32, Wi=32, Y=2, X=2, stride_h=2, stride_w=2, "
    'dilation_h=1, dilation_w=1, pad_h=0, pad_w=0, direction="forward")'
)
"""A line of tile_engine's training problems."""
ID = "forward-bf16-n1-c128-k256-i32x32-f2x2-s2"


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str, name: str = "") -> ProblemSet:
        (tmp_path / "mine.py").write_text(text)
        return load_problem_set(f"{tmp_path}/mine.py{name}")

    return load


def ids(loaded: ProblemSet) -> list[str]:
    return [problem.id for problem in loaded.problems]


def test_a_file_as_tile_engine_has_it(load) -> None:
    backward = CALL.replace("forward", "bwd_data").replace("N=1", "N=2")
    loaded = load(
        f"{HEAD}# 2 problems\nTRAINING_PROBLEMS_FORWARD = [\n    # ResNet\n    {CALL},\n]\n"
        f"VALIDATION_PROBLEMS_BWD_DATA: list = [{backward}]\n"
        "assert len(TRAINING_PROBLEMS_FORWARD) == 1\n"
        'if __name__ == "__main__":\n    print(len(TRAINING_PROBLEMS_FORWARD))\n'
    )
    assert ids(loaded) == [ID, "bwd_data-bf16-n2-c128-k256-i32x32-f2x2-s2"]
    assert loaded.sources == ("mine.py:8", "mine.py:10")


def test_one_list_of_a_file_by_its_name(load, tmp_path: Path) -> None:
    text = f"A = [{CALL}]\nB = [{CALL.replace('N=1', 'N=2')}]\n"
    loaded = load(text, ":B")
    assert (loaded.name, ids(loaded)) == ("B", [ID.replace("n1", "n2")])
    both = load_problem_sets(f"{tmp_path}/mine.py:B,{tmp_path}/mine.py:A")
    assert len(both.problems) == 2
    with pytest.raises(ProblemSetError, match=r"mine.py: there is no list of problems 'C'; known are: A, B"):
        load(text, ":C")


def test_positions_defaults_and_depth_are_tile_engine_s(load) -> None:
    loaded = load(
        "A = [GroupedConvProblem(2, 64), GroupedConvProblem(Di=8, Z=3, split_k=1), gc.GroupedConvProblem()]"
    )
    assert loaded.problems == (
        GroupedConvProblem("forward", "bf16", 2, 2, 64, 128, 1, 28, 28, 3, 3),
        GroupedConvProblem("forward", "bf16", 3, 1, 64, 128, 1, 28, 28, 3, 3, Di=8, Z=3),
        GroupedConvProblem("forward", "bf16", 2, 1, 64, 128, 1, 28, 28, 3, 3),
    )


def test_lists_are_joined_cut_and_imported_from_a_file_beside(load, tmp_path: Path) -> None:
    calls = ", ".join(CALL.replace("N=1", f"N={n}") for n in (1, 2, 3))
    (tmp_path / "beside.py").write_text(f"ALL = [{calls}]\n")
    loaded = load(
        "from beside import ALL\nimport elsewhere\n"
        f"A = ALL[:2]\nB = []\nB += A + [*A[1:]]\nB.append({CALL.replace('N=1', 'N=9')})\n"
    )
    assert [problem.N for problem in loaded.problems] == [1, 2, 9]
    assert loaded.repeated_rows == 3
    before = loaded.sha256
    (tmp_path / "beside.py").write_text(f"ALL = [{calls}, {calls}]\n")
    assert load((tmp_path / "mine.py").read_text()).sha256 != before


def test_nothing_of_the_file_is_run(load, tmp_path: Path) -> None:
    harm = f"import pathlib\npathlib.Path({str(tmp_path / 'harmed')!r}).touch()\n"
    assert ids(load(f"{harm}A = [{CALL}]\n")) == [ID]
    with pytest.raises(ProblemSetError, match=r"mine.py:1: C is not written as an integer"):
        load(f"A = [{CALL.replace('C=128', 'C=__import__(chr(111) + chr(115)).system(chr(108))')}]")
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("for n in (1, 2):\n    A.append(GroupedConvProblem(N=n))\n", 2, "computed by code"),
        (f"A = [{CALL}]\nfor n in (1, 2):\n    A.append(other(n))\n", 3, "computed by code"),
        ("A = [GroupedConvProblem(N=n) for n in (1, 2)]\n", 1, "computed by code"),
        (f"B = [{CALL}]\nA = [p for p in B]\n", 2, "computed by code"),
        (f"A = make([{CALL}])\n", 1, "computed by code"),
        (f"A = [{CALL},\n  8]\n", 2, "not a GroupedConvProblem(...) call"),
        ("A = [GroupedConvProblem(N=1, c=2)]", 1, "no argument 'c'; known are N, C, K"),
        ("A = [GroupedConvProblem(N=1, **more)]", 1, "no argument '**'"),
        ("A = [GroupedConvProblem(1, N=1)]", 1, "N is given twice"),
        ("A = [GroupedConvProblem(N=1.0)]", 1, "N is not written as an integer"),
        ("A = [GroupedConvProblem(N=True)]", 1, "N is not written as an integer"),
        ("A = [GroupedConvProblem(direction=1)]", 1, 'direction is not written as "forward"'),
        ("A = [GroupedConvProblem(direction='fwd')]", 1, "direction 'fwd' is not one of"),
        ("A = [GroupedConvProblem(G=5)]", 1, "G = 5 must divide C"),
        ("A = [GroupedConvProblem(N=-1)]", 1, "N = -1 is not an integer from 1"),
        ("A = [GroupedConvProblem(split_k=2)]", 1, "split_k is part of a kernel"),
        (f"A = [GroupedConvProblem(N={'9' * 4301})]", 1, "not Python: "),
        (f"A = [GroupedConvProblem(N=0x{'f' * 5000})]", 1, "N is not an integer of 64 bits"),
        ("A = [\n\nGroupedConvProblem(N=1]\n", 3, "not Python"),
        ("def problems():\n    return [GroupedConvProblem(N=1)]\n", None, "no list of GroupedConv"),
        ("", None, "no list of GroupedConvProblem(...)"),
        ("A = [GroupedConvProblem()\0]", 1, "a zero byte"),
        ("A = " + "(" * 60_000, None, ""),
        ("A = " + "-" * 60_000 + "1", None, ""),
        ("A = [" + "1+" * 30_000 + "1]", None, ""),
        (f"A = [{CALL}]\n" + "A = A + A\n" * 40, 21, "more than 1,000,000 problems"),
        ("from mine import B\nA = B", 1, "circular imports"),
    ],
)  # fmt: skip
def test_unreadable_input_is_reported_with_its_line(load, text: str, line: int | None, message: str) -> None:
    with pytest.raises(ProblemSetError) as caught:
        load(text)
    said = str(caught.value)
    assert message in said
    assert "\n" not in said
    assert len(said) < 1500
    assert line is None or f"mine.py:{line}: " in said


def test_a_source_that_is_too_long_is_not_parsed(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_engine, "MAX_SOURCE_BYTES", 2**20)
    with pytest.raises(ProblemSetError, match="more than 1 MiB: split the file"):
        load("# filler\n" * 2**17)


@given(problems(), st.booleans())
def test_every_problem_comes_back_from_its_call(
    tmp_path_factory: pytest.TempPathFactory, problem: GroupedConvProblem, positional: bool
) -> None:
    values = {name: value for name, value in problem.as_row().items() if name not in ("dtype", "ndim")}
    order = list(tile_engine._ARGUMENTS)
    words = [f"{name}={values[name]!r}" for name in order[:-1]]
    if positional:
        words = [repr(values[name]) for name in order[:-1]]
    path = tmp_path_factory.mktemp("list") / "mine.py"
    path.write_text(f"A = [\n    GroupedConvProblem({', '.join(words)}),\n]\n")
    (found,) = load_problem_set(path).problems
    depth = (problem.Di, problem.Z, problem.stride_d, problem.pad_d, problem.dilation_d)
    # What is 3D in name only is 2D there.
    wanted = replace(problem, dtype="bf16", ndim=2 if depth == (1, 1, 1, 0, 1) else 3)
    assert found == wanted
