"""Reading the options."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import HarnessError
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
