"""How long a session will take, before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.session.forecast import Forecast, forecast
from tile_oracle.session.time_left import Work, beyond_s
from tile_oracle.targets import TargetOptions, resolve_target

LARGE = GroupedConvProblem.from_id("forward-bf16-n64-c512-k512-i64x64-f3x3-p1")
SMALL = GroupedConvProblem.from_id("forward-bf16-n1-c16-k16-i8x8-f3x3-p1")


@pytest.fixture(scope="module")
def cpu() -> object:
    return resolve_target("cpu", TargetOptions())[0]


def earlier_run(reports: Path, name: str, seconds_a_pair: float, target: str = "cpu") -> None:
    """A run that measured 60 pairs of each problem, one after the other."""
    rows = [problem.id for problem in (SMALL, LARGE) for _ in range(60)]
    scale = {SMALL.id: 1.0, LARGE.id: 10.0}
    times = pd.Timestamp("2026-01-02T03:04:05Z") + pd.to_timedelta(
        pd.Series([seconds_a_pair * scale[one] for one in rows]).cumsum(), unit="s"
    )
    folder = reports / name / "measurements"
    folder.mkdir(parents=True)
    table = pa.table({"problem": rows, "time": times, "target": [target] * len(rows)})
    pq.write_table(table, folder / "part-1.parquet")


def test_without_earlier_runs_the_peak_rates_bound_it(cpu: object, tmp_path: Path) -> None:
    short = forecast([(SMALL, 8)], cpu, tmp_path)  # type: ignore[arg-type]
    assert short.least_s <= 8 * 0.25
    long = forecast([(LARGE, 400)], cpu, tmp_path)  # type: ignore[arg-type]
    assert 600 < long.least_s < long.most_s
    assert "nothing was measured here before" in long.describe()


def test_earlier_runs_on_the_target_say_more(cpu: object, tmp_path: Path) -> None:
    earlier_run(tmp_path, "other", 77.0, target="gfx950")
    earlier_run(tmp_path, "one", 0.5)
    found = forecast([(SMALL, 100), (LARGE, 100)], cpu, tmp_path)  # type: ignore[arg-type]
    assert found.least_s == pytest.approx(0.7 * 550, rel=0.05)
    assert found.most_s == pytest.approx(1.5 * 550, rel=0.05)
    assert found.by == "what 1 earlier run took on this target"
    huge = replace(LARGE, N=640)
    larger = forecast([(SMALL, 100), (huge, 100)], cpu, tmp_path)  # type: ignore[arg-type]
    assert larger.most_s > 5 * found.most_s, "ten times the work of all that was measured"
    assert found.of(4).most_s == found.most_s / 4


@pytest.mark.parametrize(
    ("seconds", "said"), [((20, 700), "20 s to 12 min"), ((5400, 36000), "90 min to 10 h")]
)
def test_it_is_rounded_as_it_is_known(seconds: tuple[float, float], said: str) -> None:
    assert Forecast(*seconds, "x").describe() == f"this may take {said}, by x"


def test_larger_problems_may_take_as_long_as_the_largest_measured_ones_rate_says() -> None:
    assert beyond_s([Work(10, 2e12)], 1e12, 1.0) == pytest.approx(10 * 5 * 1e12 / 0.5e12)
    assert beyond_s([Work(10, 1e12)], 2e12, 1.0) == 0.0
    assert beyond_s([Work(10, 1e12)], 0.0, 0.0) == 0.0, "nothing is known"
