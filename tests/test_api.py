"""The examples of the Python interface run, in their order, beside a file of measurements."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import tile_oracle.api as to
from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.problem_set import format_problem_set


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    problems = make_problems(12)
    records = make_records(problems, make_kernels()).drop(columns="time")
    records.to_parquet(tmp_path / "measured.parquet")
    (tmp_path / "mine.csv").write_text(format_problem_set(problems, [""] * 12, "mine"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_example_runs(measured: Path) -> None:
    names = {"to": to}
    examples = 0
    for name in sorted(to.__all__, key=list(vars(to)).index):
        found = doctest.DocTestParser().get_doctest(getattr(to, name).__doc__, names, name, None, None)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(found, clear_globs=False)
        assert runner.failures == 0, name
        names.update(found.globs)
        examples += bool(found.examples)
    assert examples == len(to.__all__) - 3  # the classes are data, shown with train


def test_what_an_estimator_prefers_is_what_its_picks_say(measured: Path) -> None:
    records = to.load("measured.parquet")

    class Slowest:
        def predict(self, features: object) -> np.ndarray:
            return -to.features(records)["tflops"].to_numpy()

    to.save_model(Slowest(), "slow.csv", records)
    found = to.evaluate("slow.csv", records)
    slowest = records.groupby("problem")["tflops"].min() / records.groupby("problem")["tflops"].max()
    assert found.headlines["mean"].value == pytest.approx(100 * slowest.mean(), abs=0.01)


def test_an_estimator_without_a_number_for_each_pair_is_refused(measured: Path) -> None:
    class Short:
        def predict(self, features: object) -> list[float]:
            return [1.0]

    records = to.load("measured.parquet")
    with pytest.raises(ModelError, match="did not predict one finite number for each pair"):
        to.save_model(Short(), "short.csv", records)
    with pytest.raises(ModelError, match=r"picks are a \.csv file"):
        to.save_model(Short(), "folder")
