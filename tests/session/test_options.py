"""Reading the options."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pytest_project import Project
from tile_oracle.compiling.prebuilt_folder import MANIFEST
from tile_oracle.compiling.triton.description import DESCRIPTION
from tile_oracle.errors import BuildError, HarnessError
from tile_oracle.session.command_line import CommandLine
from tile_oracle.session.kernels_option import read_kernels
from tile_oracle.session.options import SessionOptions, duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), ("20ms", 0.02), (" 3s ", 3)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s("--budget", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", "0.0h", "1d", "1e3", "3 s", "9" * 400, "²s", "nan"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(HarnessError, match="is not a time: write 20ms, 90s, 10m or 2h"):
        duration_s("--budget", text)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    try:
        seconds = duration_s("--budget", text)
    except HarnessError:
        return
    assert 0 < seconds < 1e9


@pytest.fixture
def options_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_command_line: Callable[..., SessionOptions]
) -> Callable[..., SessionOptions]:
    """Reads a command line as pytest does in the folder tmp_path/project/below."""
    here = tmp_path / "project" / "below"
    here.mkdir(parents=True)
    (tmp_path / "project" / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(here)
    return partial(read_command_line, "--problem-set=x.csv")


def test_defaults_and_paths_are_those_of_the_working_directory(
    options_of: Callable[..., SessionOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of()
    assert (options.kernel_set, options.target, options.model) == ("default", "auto", "auto")
    assert options.report_dir == tmp_path / "project" / "reports"
    assert options.baseline_dir == tmp_path / "project" / "models"
    assert options.budget_s is None
    assert options.kernel_budget_s == pytest.approx(0.02)
    assert options.tolerances == {
        "mean_points": 0.5,
        "median_points": 0.5,
        "p10_points": 2.0,
        "problem_points": 10.0,
        "coverage_points": 0.0,
    }
    monkeypatch.setenv("HOME", "/home/somebody")
    options = options_of("--build-dir=b", "--report-dir=../r", "--baseline-dir=~/baselines")
    here = tmp_path / "project" / "below"
    assert options.build_dir == here / "b"
    assert options.report_dir == here / "../r"
    assert options.baseline_dir == Path("/home/somebody/baselines")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = options_of("--build-dir", str(elsewhere), "--rootdir", str(elsewhere))
    assert options.report_dir == tmp_path / "project" / "below" / "reports"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--data-seed=-1", "--data-seed -1 is not from 0 to"),
        ("--data-seed=9223372036854775808", "--data-seed 9223372036854775808 is not from 0 to"),
        ("--build-jobs=0", "--build-jobs 0 is not from 1 to"),
        ("--mean-tolerance=nan", "--mean-tolerance nan is not a number of points from 0 to 100"),
        ("--problem-tolerance=-1", "--problem-tolerance -1 is not"),
        ("--coverage-tolerance=101", "--coverage-tolerance 101 is not"),
        ("--kernel-timeout=0s", "--kernel-timeout '0s' is not a time"),
        ("--far-behind=1.1", "--far-behind '1.1' is neither 0 nor a factor from 1.5 to 1,000,000"),
        ("--far-behind=nan", "--far-behind 'nan' is neither 0 nor a factor"),
        ("--far-behind=fast", "--far-behind 'fast' is neither 0 nor a factor"),
        ("--kernel-budget=x", "--kernel-budget 'x' is not a time"),
    ],
)
def test_invalid_values(options_of: Callable[..., SessionOptions], argument: str, message: str) -> None:
    with pytest.raises(HarnessError, match=re.escape(message)):
        options_of(argument)


# The commands that a session names for the next run of itself.

NIGHT = ["--problem-set", "my shapes.csv", "--target=cpu", "--report-dir=nights/7", "--budget", "2s"]


def test_a_command_for_the_next_session_keeps_the_options_and_repeats_none() -> None:
    """Without the night's folders, --resume would look for the run in reports/."""
    command = CommandLine(NIGHT, replayed=False)
    own = "pytest --problem-set 'my shapes.csv' --target=cpu --report-dir=nights/7 --budget 2s"
    assert command.resumed("--update-baseline") == f"{own} --resume --update-baseline"
    longer = ("--settle-budget", "10m", "--budget", "1h")
    assert command.settling("run-7", longer) == f"{own} --resume --run-name run-7 {' '.join(longer)}"
    command = CommandLine([*NIGHT, "--run-name=run-7", "--resume"], replayed=False)
    assert command.settling("run-7", ()).count("run-7") == 1
    assert command.resumed().count("--resume") == 1
    assert "--resume" not in CommandLine(["--oracle=a"], replayed=True).resumed("--update-baseline")
    # A session does not write into a run's folder that exists, and a replay cannot be resumed.
    for name in (["--run-name", "mine"], ["--run-name=mine"]):
        command = CommandLine(["--oracle=a", *name, "-q"], replayed=True)
        assert command.resumed("--update-baseline") == "pytest --oracle=a -q --update-baseline"
    command = CommandLine(["--update-baseline", "--resume"], replayed=False)
    assert command.resumed("--update-baseline") == "pytest --update-baseline --resume"


# --kernels: the kernel set, kernels written in Triton, and libraries.


@pytest.mark.parametrize(
    ("given", "sources", "text", "pool"),
    [
        ("", ("native",), "", "SET"),
        ("native", ("native",), "native", "SET"),
        ("cublaslt", (), "cublaslt", "cublaslt"),
        ("native, cublaslt=/lib/libcublasLt.so.12", ("native",), "native,cublaslt", "SET+cublaslt"),
        ("triton", ("triton",), "", "triton"),
        ("mine.py", ("triton=HERE/mine.py",), "", "mine.py"),
        ("mine.py, cublaslt", ("triton=HERE/mine.py",), "triton=mine.py,cublaslt", "mine.py+cublaslt"),
        ("native,triton", ("native", "triton"), "native,triton", "SET+triton"),
        (
            "cublaslt,mine.py,native",
            ("native", "triton=HERE/mine.py"),
            "native,triton=mine.py,cublaslt",
            "SET+mine.py+cublaslt",
        ),
        ("mine.py,triton", ("triton=HERE/mine.py", "triton"), "triton=mine.py,triton", "mine.py+triton"),
        (
            "few.json,triton=mine.py",
            ("native", "triton=HERE/mine.py"),
            "native,triton=mine.py",
            "SET+mine.py",
        ),
        ("triton,ck_tile=ck", ("ck_tile=HERE/ck", "triton"), "ck_tile,triton", "SET+triton"),
    ],
)
def test_kernels_come_from_sources_and_libraries(
    tmp_path: Path, given: str, sources: tuple[str, ...], text: str, pool: str
) -> None:
    found = read_kernels(given, tmp_path)
    assert found.sources == tuple(one.replace("HERE", str(tmp_path)) for one in sources)
    assert [library.name for library, _ in found.libraries] == ["cublaslt"] * ("cublaslt" in given)
    assert found.text == text
    assert found.kernel_set == ("few.json" if "few.json" in given else None)
    assert found.named(found.pool_name or "SET") == pool
    again = read_kernels(found.text.replace("ck_tile", "ck_tile=ck"), tmp_path)
    assert not text or (again.text, again.named("SET")) == (text, found.named("SET"))


def test_a_library_of_another_target_is_not_looked_for(project: Project) -> None:
    """Not even installed it would help."""
    refused = project.pytest("--problem-set", "small.csv", "--kernels", "native,torch", "--target", "cpu")
    assert refused.status == 4
    assert refused.last.endswith("--kernels torch is for --target sm_90, not for cpu")


def test_folders_say_what_they_hold_and_ck_tile_s_option_means_the_same(tmp_path: Path) -> None:
    found = read_kernels("triton", tmp_path, tmp_path / "ck")
    assert found == read_kernels("triton,ck_tile=ck", tmp_path)
    assert found.ck_tile == tmp_path / "ck"
    assert read_kernels("", tmp_path).ck_tile is None
    with pytest.raises(BuildError, match=r"native and ck_tile=.* both have the kernels of --kernel-set"):
        read_kernels("native", tmp_path, tmp_path / "ck")
    for name in ("built", "built_triton", "more_triton"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
        if "triton" in name:
            (tmp_path / name / DESCRIPTION).touch()
    mixed = read_kernels("built_triton,built,cublaslt", tmp_path)
    assert mixed.sources == (f"native={tmp_path / 'built'}", f"triton={tmp_path / 'built_triton'}")
    assert mixed.text == "native,triton=built_triton,cublaslt"
    assert read_kernels("native=built,built_triton,cublaslt", tmp_path) == mixed
    with pytest.raises(BuildError, match=r"native=.*built_triton: it is no folder"):
        read_kernels("native=built_triton", tmp_path)
    with pytest.raises(BuildError, match="names a source twice"):
        read_kernels("built,native=built", tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mine.py,mine.py", "names a source twice"),
        ("triton,", "'' is none of native, triton, a Python file"),
        ("cublas=/x.so", "'cublas=/x.so' is none of"),
        ("native=", "'native=' is none of"),
        ("a.json,b.json", "give one list of kernels"),
    ],
)
def test_other_words_get_one_line(tmp_path: Path, given: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        read_kernels(given, tmp_path)
