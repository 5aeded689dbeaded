"""`--model picks.csv`: the picks of a model that is not available are gated like those of a model folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.session.recorded import SET, Recorded

DIMENSIONS = ["N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "Ho", "Wo"]


def write_picks(recorded: Recorded, path: Path, place: int, repeats: int = 0) -> None:
    """A published file of picks: for each problem the kernel at this rank by speed; the first `repeats`
    problems twice."""
    by_speed = recorded.records.sort_values("tflops", ascending=False).groupby("problem")
    rows = []
    for index, problem in enumerate([*recorded.problems, *recorded.problems[:repeats]]):
        kernel = by_speed.get_group(problem.id)["kernel"].iloc[place].removesuffix("_intrawave")
        dimensions = {name: getattr(problem, name) for name in DIMENSIONS}
        rows.append(
            {"problem_idx": index, **dimensions, "kernel_name": kernel, "predicted_tflops": 5, "rank": 1}
        )
    pd.DataFrame(rows).to_csv(path, index=False)


@pytest.mark.slow
def test_picks_pass_or_fail_by_their_own_baseline(recorded: Recorded) -> None:
    words = ("--problem-set", SET, f"--oracle={recorded.oracle}", "--model=picks.csv")
    write_picks(recorded, recorded.project.folder / "picks.csv", place=0, repeats=3)
    accepted = recorded.project.pytest(*words, "--update-baseline", "--run-name=accepted")
    assert accepted.status == 0, accepted.output
    told = "picks from the file picks.csv (3 repeated picks left out)"
    assert told in accepted.output
    verdict = recorded.project.verdict(recorded.project.folder / "reports" / "accepted")
    assert verdict["efficiency"]["mean_percent"] > 99  # type: ignore[index]
    again = recorded.project.pytest(*words)
    assert again.status == 0, again.output
    write_picks(recorded, recorded.project.folder / "picks.csv", place=-1)
    worse = recorded.project.pytest(*words)
    assert worse.status == 1
    assert "verdict FAILED: criteria not met: mean" in worse.output


@pytest.mark.slow
def test_a_file_without_these_problems_judges_nothing(recorded: Recorded) -> None:
    write_picks(recorded, recorded.project.folder / "others.csv", place=0)
    table = pd.read_csv(recorded.project.folder / "others.csv")
    table.assign(C=table["C"] + 1).to_csv(recorded.project.folder / "others.csv", index=False)
    words = ("--problem-set", SET, f"--oracle={recorded.oracle}")
    done = recorded.project.pytest(*words, "--model=others.csv")
    assert done.status != 0
    assert "others.csv has picks for none of these problems" in done.output
    missing = recorded.project.pytest(*words, "--model=nowhere.csv")
    assert "nowhere.csv: there is no such file of picks" in missing.output
