"""Which record decides a pair, and which records are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.errors import RecordError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.model.trees import label, target_named
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.final import final_measurements, key_columns, problem_table, problems_of
from tile_oracle.record.schema import STATUSES, arrow_schema
from tile_oracle.training.training_rows import training_rows

PROBLEM, OTHER = some_problems(2)
KERNELS = some_kernels(6, PROBLEM)
A, B, C = KERNELS[:3]


def settled(*rows: dict[str, Any]) -> pd.Series:
    """The one row that is left of records of one pair."""
    final = final_measurements(frame(rows))
    assert len(final) == 1
    return final.iloc[0]


def censored(row: dict[str, Any]) -> dict[str, Any]:
    """The record of a kernel that had lost by its first checked run."""
    return {**row, "sampling": "censored", "samples": 1, "at_least_ms": 0.8 * row["latency_ms"]}


class TestSettledMeasurement:
    def test_the_second_measurement_replaces_the_first(self) -> None:
        row = settled(record(PROBLEM, A, 2.0), record(PROBLEM, A, 1.8, round=1))
        assert (row["status"], row["tflops"], row["remeasured"]) == ("ok", 1.8, True)
        assert row["sweep_tflops"] == 2.0

    def test_a_known_time_counts_before_a_later_censored_one(self) -> None:
        row = settled(record(PROBLEM, A, 2.0), censored(record(PROBLEM, A, 1.5, minute=9)))
        assert (row["tflops"], pd.isna(row["at_least_ms"])) == (2.0, True)
        row = settled(censored(record(PROBLEM, A, 1.5)), record(PROBLEM, A, 2.0, round=2))
        assert (row["tflops"], row["remeasured"], pd.isna(row["at_least_ms"])) == (2.0, True, True)

    def test_training_takes_a_censored_time_only_where_there_is_no_other(self) -> None:
        rows = frame(
            [
                record(PROBLEM, A, 2.0),
                censored(record(PROBLEM, A, 1.0, minute=1)),
                censored(record(PROBLEM, B, 0.5)),
            ]
        )
        table = training_rows(rows).table.set_index("kernel")
        assert table.loc[A.name, "tflops"] == pytest.approx(2.0)
        assert table.loc[B.name, "tflops"] == pytest.approx(0.5)
        assert table["at_least_ms"].notna().to_dict() == {A.name: False, B.name: True}
        relevance = label(target_named("lambdarank"), table.reset_index(), np.zeros(2, dtype=np.int64))
        assert dict(zip(table.index, relevance, strict=True))[B.name] == 0

    @pytest.mark.parametrize("bad", ["wrong", "flaky", "crash", "timeout"])
    @pytest.mark.parametrize("rounds", [(0, 1), (1, 0)])
    def test_a_kernel_that_failed_once_is_not_redeemed(self, bad: str, rounds: tuple[int, int]) -> None:
        row = settled(
            record(PROBLEM, A, 2.0, round=rounds[0]),
            record(PROBLEM, A, status=bad, round=rounds[1], detail="why"),
        )
        assert (row["status"], row["detail"], row["remeasured"]) == (bad, "why", False)
        assert pd.isna(row["tflops"])
        assert pd.isna(row["latency_ms"])

    @pytest.mark.parametrize(("worse", "other"), [*pairwise(("wrong", "flaky", "crash", "timeout"))])
    @pytest.mark.parametrize("rounds", [(0, 1), (1, 0)])
    def test_of_two_failures_the_worse_one_counts(
        self, worse: str, other: str, rounds: tuple[int, int]
    ) -> None:
        rows = [record(PROBLEM, A, status=s, round=r) for s, r in zip((worse, other), rounds, strict=True)]
        assert settled(*rows)["status"] == worse

    @pytest.mark.parametrize("empty", ["noisy", "device_lost"])
    def test_a_later_inconclusive_measurement_keeps_the_sweeps_value(self, empty: str) -> None:
        row = settled(record(PROBLEM, A, 2.0), record(PROBLEM, A, 1.0, status=empty, round=1))
        assert (row["status"], row["tflops"], row["remeasured"]) == ("ok", 2.0, False)

    def test_a_figure_of_a_row_that_is_neither_ok_nor_noisy_is_dropped(self) -> None:
        row = record(PROBLEM, A, 2.0)
        assert pd.isna(settled({**row, "status": "unsupported"})["tflops"])
        assert settled({**row, "status": "noisy"})["tflops"] == 2.0

    def test_pairs_of_different_problems_never_meet(self) -> None:
        final = final_measurements(frame([record(PROBLEM, A, 1.0), record(OTHER, A, 5.0, round=1)]))
        assert dict(zip(final["problem"], final["tflops"], strict=True)) == {PROBLEM.id: 1.0, OTHER.id: 5.0}

    def test_the_index_of_the_records_means_nothing(self) -> None:
        rows = frame([record(PROBLEM, A, 1.0), record(PROBLEM, B, 2.0), record(OTHER, A, 3.0)])
        shuffled = rows.iloc[[2, 0, 1]].set_index(pd.Index([7, 7, 7]))
        pd.testing.assert_frame_equal(final_measurements(rows), final_measurements(shuffled))

    def test_records_as_parquet_gives_them(self) -> None:
        rows = frame([record(PROBLEM, A, 1.0), record(PROBLEM, B, status="crash", detail="signal 11")])
        table = pa.Table.from_pandas(rows, schema=arrow_schema(), preserve_index=False)
        pd.testing.assert_frame_equal(
            final_measurements(table.to_pandas())[["problem", "kernel", "status", "tflops"]],
            final_measurements(rows)[["problem", "kernel", "status", "tflops"]],
            check_dtype=False,
        )

    def test_no_records_give_no_measurements(self) -> None:
        assert find_oracles(final_measurements(frame([]))).empty
        assert find_oracles(final_measurements(arrow_schema().empty_table().to_pandas())).empty

    @settings(max_examples=30)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(KERNELS[:3]),
                st.sampled_from([PROBLEM, OTHER]),
                st.sampled_from(STATUSES),
                st.integers(0, 1),
                st.integers(0, 3),
                st.floats(0.01, 9.0),
            ),
            max_size=25,
        )
    )
    def test_every_pair_has_one_row_by_the_rules(self, drawn: Sequence[tuple[Any, ...]]) -> None:
        rows = [
            record(problem, kernel, tflops, status=status, round=round_, minute=minute)
            for kernel, problem, status, round_, minute, tflops in drawn
        ]
        final = final_measurements(frame(rows))
        pairs = {(row["problem"], row["kernel"]) for row in rows}
        assert set(zip(final["problem"], final["kernel"], strict=True)) == pairs
        assert len(final) == len(pairs)
        for row in final.to_dict("records"):
            # Reversed: of rows with equal times the one recorded later counts, and max takes the first.
            pair = (row["problem"], row["kernel"])
            mine = [r for r in reversed(rows) if (r["problem"], r["kernel"]) == pair]
            statuses = {r["status"] for r in mine}
            worst = next((bad for bad in ("wrong", "flaky", "crash", "timeout") if bad in statuses), None)
            if worst is not None or "ok" not in statuses:
                assert row["status"] == (worst or max(mine, key=lambda r: (r["round"], r["time"]))["status"])
            else:
                last = max((r for r in mine if r["status"] == "ok"), key=lambda r: (r["round"], r["time"]))
                assert (row["status"], row["round"], row["time"]) == ("ok", last["round"], last["time"])


class TestBadRecords:
    def test_missing_columns(self) -> None:
        with pytest.raises(RecordError, match="lack the columns status, tflops"):
            final_measurements(frame([record(PROBLEM, A)]).drop(columns=["status", "tflops"]))

    def test_a_row_of_no_round(self) -> None:
        with pytest.raises(RecordError, match="lack the column round"):
            final_measurements(frame([{**record(PROBLEM, A), "round": None}, record(PROBLEM, B)]))


@pytest.mark.parametrize("read", [final_measurements, training_rows])
def test_cold_and_warm_caches_do_not_mix(read: Callable[[pd.DataFrame], object]) -> None:
    rows = [record(PROBLEM, A, 2.0), record(PROBLEM, B, 1.0)]
    for caches in (("warm", None), ("cold", "cold")):
        read(frame([row | {"cache": cache} for row, cache in zip(rows, caches, strict=True)]))
    for caches in (("cold", "warm"), (None, "cold")):
        with pytest.raises(RecordError, match="the records are of cold and warm caches"):
            read(frame([row | {"cache": cache} for row, cache in zip(rows, caches, strict=True)]))


@pytest.mark.parametrize("column", ["device", "arch"])
@pytest.mark.parametrize("read", [final_measurements, training_rows])
def test_times_of_a_problem_on_two_devices_do_not_mix(
    read: Callable[[pd.DataFrame], object], column: str
) -> None:
    first, other = record(PROBLEM, A, 2.0), {column: "another"}
    for second in (record(OTHER, A, 1.0) | other, record(PROBLEM, B, status="unsupported") | other):
        read(frame([first, second]))
    for kernel in (A, B):
        with pytest.raises(
            RecordError, match=rf"{PROBLEM.id} are of {first[column]} and another, .* --device"
        ):
            read(frame([first, record(PROBLEM, kernel, 1.0) | other]))


def test_the_problem_table_has_each_problem_once_with_its_key() -> None:
    table = problem_table([PROBLEM, OTHER, GroupedConvProblem.from_id(PROBLEM.id)])
    assert table["problem"].tolist() == [PROBLEM.id, OTHER.id]
    assert tuple(table.iloc[1][list(key_columns(OTHER.op))]) == OTHER.key


def test_problems_come_back_from_records() -> None:
    rows = frame([record(OTHER, A), record(PROBLEM, A), record(OTHER, B)])
    assert problems_of(rows) == (OTHER, PROBLEM)
