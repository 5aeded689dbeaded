"""Two pickers on the same measurements: which picks got faster or slower, and what settles the rest."""

from __future__ import annotations

import pandas as pd

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.comparison.compare import FASTER, SAME, SLOWER, UNKNOWN, side_of_records
from tile_oracle.comparison.wording import compared_picks, open_pairs, paragraph, paragraphs
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.kernel import Kernel
from tile_oracle.record.final import final_measurements

PROBLEMS = [one for one in some_problems(60) if one.ndim == 2][:8]
FAST, NEAR, SLOW, BROKEN = some_kernels(4, PROBLEMS[0])
SPEEDS = {FAST: 100.0, NEAR: 99.2, SLOW: 50.0}
RECORDS = frame(
    [record(one, kernel, speed) for one in PROBLEMS for kernel, speed in SPEEDS.items()]
    + [record(one, BROKEN, 10.0, status="wrong") for one in PROBLEMS]
)
FINAL = final_measurements(RECORDS)


def picks(*kernels: Kernel) -> pd.DataFrame:
    rows = [(one.id, kernel.name, 1.0) for one, kernel in zip(PROBLEMS, kernels, strict=False)]
    table = pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])
    return select(PROBLEMS, FINAL, find_oracles(FINAL), table)


OLD = picks(FAST, FAST, SLOW, SLOW, FAST, FAST, FAST, FAST)
NEW = picks(FAST, SLOW, FAST, FAST, NEAR, BROKEN, FAST)


def test_the_paragraph_says_what_changed_and_how_to_settle_the_rest() -> None:
    found = compared_picks(side_of_records("", RECORDS), ("old", OLD), ("new", NEW))
    assert dict(found.counts) == {SLOWER: 1, FASTER: 2, UNKNOWN: 1, SAME: 2}
    told = paragraph(found, OLD, NEW, "pytest --pairs=open.csv")
    assert "**new** against **old** on the same measurements of 6 problems: faster on 2, slower on 1" in told
    assert "the same on 2, 1 cannot be told" in told
    assert "1 pick fail" in told
    assert "1 problem had a measured pick and have none now" in told
    assert "Regret" not in told, "a pick that fails has no time"
    assert f"| `{PROBLEMS[1].id}` | +100.0 % |" in told
    assert told.endswith("To settle the 1 open ones: `pytest --pairs=open.csv`")
    assert open_pairs(found).values.tolist() == sorted(
        [[PROBLEMS[4].id, FAST.name], [PROBLEMS[4].id, NEAR.name]]
    )


def test_the_regret_is_the_time_above_the_oracles() -> None:
    both = side_of_records("", RECORDS)
    found = compared_picks(both, ("old", picks(*[FAST] * 8)), ("new", picks(*[SLOW] * 8)))
    assert found is not None
    told = paragraph(found, picks(*[FAST] * 8), picks(*[SLOW] * 8))
    assert "Regret, the time above the oracles': 0.00 % before, 100.00 % now." in told
    assert "mean -50.00 [-50.00, -50.00]" in told.replace("\\", "")


def test_the_first_is_compared_with_each_other_that_has_problems_in_common() -> None:
    found = paragraphs({"new": NEW, "old": OLD, "none": picks()}, RECORDS)
    assert len(found) == 1
    assert found[0].startswith("**new** against **old**")
