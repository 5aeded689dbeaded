"""The kernels of each problem in report.html."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems, some_run
from tests.samples import slow
from tile_oracle.judge.picker import Origin
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.model.feature_share import FeatureShare, PickReason
from tile_oracle.pages.words import microseconds
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.schema import columns
from tile_oracle.report.data import ReportData, RunInfo, Scope, analyse
from tile_oracle.report.drill_down import DrillDown, KernelRow, drill_data, drill_down_of
from tile_oracle.report.html import report_html
from tile_oracle.report.pictures import under_the_roof

RUN = RunInfo("a-run", target="sm_90", arch="sm_90")


@cache
def a_report(problems: int, kernels: int, failures: float = 0.1) -> ReportData:
    some = some_problems(problems)
    records, rankings = some_run(some, kernels, failures=failures)
    return analyse(records, some, rankings, run=RUN, ranked_by=Origin("folder", "models/x"))


def times_us(rows: Sequence[KernelRow]) -> list[float]:
    return [float(row.texts[0].replace(",", "")) for row in rows if row.texts[-1] == "ok"]


def test_a_problem_lists_its_kernels_fastest_first_with_pick_and_oracle() -> None:
    data = a_report(12, 60)
    down = DrillDown.of(data)
    assert [row["problem"] for row in down.problems] != sorted(data.selection["problem"])
    for problem, rows in zip(down.problems, down.rows, strict=True):
        assert times_us(rows) == sorted(times_us(rows))
        assert len({row.kernel for row in rows}) == len(rows)
        (oracle,) = (row for row in rows if "oracle" in row.tags)
        assert oracle.texts[0] == microseconds(1e3 * problem["oracle_latency_ms"])
        assert oracle.texts[-3] == "1.000"
        (pick,) = (row for row in rows if "pick" in row.tags)
        assert pick.texts[-2] == "1"
        assert problem["pick_kernel"].endswith(down.kernels[pick.kernel])


def test_problems_with_failed_picks_and_most_lost_time_come_first() -> None:
    rows = DrillDown.of(a_report(40, 20, failures=0.2)).problems
    failed = [row for row in rows if row["efficiency"] == 0]
    assert failed
    assert list(rows[: len(failed)]) == failed
    lost = [row["lost_us"] for row in rows[len(failed) :] if row["lost_us"] == row["lost_us"]]
    assert lost == sorted(lost, reverse=True)


def test_listed_and_left_out_kernels_are_all_that_were_measured() -> None:
    data = a_report(3, 100, failures=0.4)
    down = DrillDown.of(data)
    for place, row in enumerate(down.problems):
        words = down.left_out(place).removeprefix("Not listed: ").removesuffix(".")
        more = sum(int(part.split()[0]) for part in words.split(", ") if part)
        assert len(down.rows[place]) + more == row["kernels_measured"]


def test_intervals_are_the_recorded_ones_or_follow_from_the_quartiles() -> None:
    problem = some_problems(1)[0]
    a, b, c = some_kernels(3, problem)
    rows = [
        record(problem, a, 3.0) | {"precision": 0.012},
        record(problem, b, 2.0) | {"precision": None, "spread": 0.04, "samples": 25},
        record(problem, c, 1.0) | {"precision": None, "spread": 0.04, "samples": 3},
    ]
    down = DrillDown.of(analyse(frame(rows), [problem], None, run=RUN))
    assert [row.texts[1] for row in down.rows[0]] == ["±1.2 %", f"±{100 * 1.57 * 0.04 / 5:.1f} %", "-"]


def test_a_kernel_that_looks_faster_than_the_oracle_is_explained() -> None:
    problem = some_problems(1)[0]
    a, b, c = some_kernels(3, problem)
    swept = [record(problem, a, 3.0), record(problem, b, 2.9), record(problem, c, 2.8)]
    again = [record(problem, a, 2.0, round=1), record(problem, b, 2.5, round=1)]
    for rows, said in ((swept, ""), ([*swept, *again], "A kernel above the oracle was timed once")):
        (found,) = json.loads(drill_data(analyse(frame(rows), [problem], None, run=RUN)))["problems"]
        assert found["left"].startswith(said)
        assert bool(found["left"]) == bool(said)


def test_registers_are_written_once_a_kernel() -> None:
    problem = some_problems(1)[0]
    a, b = some_kernels(2, problem)
    rows = [
        record(problem, a, 2.0) | {"vgprs": 128, "agprs": 64, "lds_bytes": 34_304},
        record(problem, b, 1.0),
    ]
    down = DrillDown.of(analyse(frame(rows), [problem], None, run=RUN))
    headings = [column.heading for column in down.columns[-len(down.facts[0]) :]]
    facts = {name: list(texts) for name, *texts in zip(headings, *down.facts, strict=True)}
    assert facts["registers"] == ["128", "-"]
    assert facts["accumulators"] == ["64", "-"]
    assert facts["LDS bytes"] == ["34,304", "-"]


def test_the_document_is_json_that_ends_no_script_element() -> None:
    problem = some_problems(1)[0]
    a, b = some_kernels(2, problem)
    hostile = "</script><script>alert(1)</script><!--"
    rows = [record(problem, a, 1.0), record(problem, b, status="crash", detail=hostile)]
    data = analyse(frame(rows), [problem], None, run=RUN)
    text = drill_data(data)
    assert "<" not in text
    document = json.loads(text)
    assert [row[-1] for row in document["problems"][0]["rows"]] == ["", hostile]
    assert document["problems"][0]["id"] == problem.id


def _tables(data: ReportData) -> list[Any]:
    """The small tables of the first problem: caption, columns, rows."""
    found: list[Any] = json.loads(drill_data(data))["problems"][0]["tables"]
    return found


def test_reasons_are_shown_in_percent_of_the_time_or_as_scores() -> None:
    data = a_report(2, 8, failures=0.0)
    problem = str(drill_down_of(data).problems[0]["problem"])
    reason = PickReason(0.30, (FeatureShare("outputs_per_wave", 3.0, 4.5, 0.20),))
    data = dataclasses.replace(data, reasons={problem: reason})
    caption, columns, rows = _tables(data)[-1]
    assert caption == "Why the model ranks the pick above the oracle: predicted 35.0 % faster"
    assert rows == [
        ["outputs_per_wave", "3", "4.5", "+22.1 %", "accumulators of a wave, elements"],
        ["all others", "", "", "+10.5 %", ""],
    ]
    coded = PickReason(0.30, (FeatureShare("pipeline", 7.0, 99.0, 0.30),))
    assert _tables(dataclasses.replace(data, reasons={problem: coded}))[-1][2][0][:3] == [
        "pipeline",
        "comp_async",
        "99",
    ]
    scored = dataclasses.replace(data, ranked_by=Origin("folder", "x", order_only=True))
    caption, columns, _ = _tables(scored)[-1]
    assert caption == "Why the model ranks the pick above the oracle: by a score 0.300 higher"
    assert columns[3][0] == "adds to the score"


def test_pick_and_oracle_are_compared_field_by_field() -> None:
    problem = some_problems(1)[0]
    a, b = some_kernels(2, problem)
    records = frame([record(problem, a, 2.0), record(problem, b, 1.0)])
    rankings = records[["problem", "kernel"]].assign(predicted_tflops=[1.0, 2.0])
    data = analyse(records, [problem], rankings, run=RUN, ranked_by=Origin("folder", "models/x"))
    ((_, _, differs),) = _tables(data)
    pick, oracle = b.as_row(), a.as_row()
    assert differs
    for field, mine, best in differs:
        assert (mine, best) == (str(pick[field]), str(oracle[field]))
        assert mine != best


def test_a_problem_says_how_near_its_oracle_is_to_the_device_s_limit() -> None:
    problem = some_problems(1)[0]
    assert under_the_roof(problem, 1.0, "No roofline") == ""
    by_memory = problem.flops / problem.bytes / 1e3
    assert under_the_roof(problem, by_memory / 4, (1e9, 1.0)).startswith("25 % of the memory's limit, ")
    assert under_the_roof(problem, 50.0, (100.0, 1e9)) == "50 % of the arithmetic's limit, 100.0 TFLOPS"
    data = a_report(2, 4, failures=0.0)
    dtyped = dataclasses.replace(data, selection=data.selection.assign(dtype="bf16"))
    facts = dict(json.loads(drill_data(dtyped))["problems"][0]["facts"])
    assert "'s limit, " in facts["oracle"]


def test_times_have_as_many_decimals_as_the_fastest_needs() -> None:
    slow_one, fast_one = some_problems(2)
    rows = []
    for problem, milliseconds in ((slow_one, 1.78454), (fast_one, 0.00264)):
        (kernel,) = some_kernels(1, problem)
        rows.append(record(problem, kernel, problem.flops / milliseconds / 1e9))
    data = analyse(frame(rows), [slow_one, fast_one], None, run=RUN)
    assert "1,785" in report_html(data)
    assert "2.640" in report_html(data)


@pytest.mark.parametrize(("problems", "kernels"), [(10, 200), *slow((300, 466))])
def test_pages_stay_small(problems: int, kernels: int) -> None:
    """2 MB for 140,000 pairs."""
    some = some_problems(problems)
    records, rankings = some_run(some, min(kernels, 200), leaders=3)
    scope = Scope(len(records), len(records))
    page = report_html(analyse(records, some, rankings, run=RUN, scope=scope))
    assert len(page.encode()) < 2e6 * max(problems / 300, 0.3)


# The report of a session of attention or of products of matrices: labels, roofline, drill-down.

ATTENTION = [
    *(("attention_prefill", {"BLOCK_M": m, "BLOCK_N": n}) for m, n in itertools.product((64, 128), (32, 64))),
    *(("attention_decode", {"BLOCK_N": 64, "SPLITS": parts}) for parts in (1, 16)),
]
GEMM = [("tiles", {"BLOCK_M": m, "BLOCK_N": n}) for m, n in itertools.product((16, 64, 128), (64, 128))]
PEAK_TFLOPS, BYTES_PER_MS = 600.0, 3.5e9
# Of each operation: a set, kernels, some of its slices, and the limits of its roofline.
BF16 = ("the peak of sm_90 for bf16", "limit: 1,071 TFLOPS, 4,800 GB/s")
SETS = {
    "attention": ("attention_validation", ATTENTION, {"decode", "causal", "grouped"}, BF16),
    "gemm": ("gemm_validation", GEMM, {"rcr"}, BF16),
    "scaled_gemm": (
        *("scaled_gemm_validation", GEMM, {"deep"}),
        ("the peak of sm_90 for fp8_e4m3", "limit: 2,141 TFLOPS, 4,800 GB/s"),
    ),
}
WORDS_OF_CONVOLUTIONS = re.compile(r"\b(conv|pixel|1x1|3x3|dilated|depthwise|NHWC)", re.IGNORECASE)


def a_session(problems: tuple[Problem, ...], pool: list[tuple[str, dict[str, int]]]) -> ReportData:
    """Records as a session of Triton kernels on an H200 writes them: times by the roofline and a factor."""
    random = np.random.default_rng(2)
    rows: list[dict[str, Any]] = []
    for problem in problems:
        limit_ms = max(problem.flops / (PEAK_TFLOPS * 1e9), problem.bytes / BYTES_PER_MS) + 0.004
        for number, (function, values) in enumerate(pool):
            kernel = NamedKernel(problem.kind, "triton", function, tuple(values.items()))
            ok = number > 0
            ms = limit_ms * (1 + random.gamma(2, 0.2)) if ok else np.nan
            rows.append(
                {
                    **problem.as_row(),
                    **kernel.as_row(),
                    **{"run": "r", "round": 0, "op": problem.op, "problem": problem.id},
                    **{"kernel": kernel.name, "target": "sm_90", "arch": "sm_90", "device": "NVIDIA H200"},
                    "time": pd.Timestamp("2026-01-02", tz="UTC") + pd.Timedelta(milliseconds=30 * len(rows)),
                    "status": "ok" if ok else "unsupported",
                    "detail": "" if ok else "constraint: too few rows",
                    "latency_ms": ms,
                    "tflops": problem.tflops(ms) if ok else np.nan,
                    **{"samples": 50, "spread": 0.02, "implementation": "triton", "vgprs": 128},
                    **{"busy_ms": 60 * ms if ok else 0.0, "lds_bytes": 65536, "spills": 0},
                }
            )
    records = pd.DataFrame(rows).reindex(columns=[one.name for one in columns(problems[0].op)])
    ranked = records[records["status"] == "ok"]
    noise = np.exp(random.normal(0, 0.1, len(ranked)))
    rankings = ranked[["problem", "kernel"]].assign(predicted_tflops=ranked["tflops"] * noise)
    run = RunInfo("r", problem_set="a set", target="sm_90", arch="sm_90", device="NVIDIA H200")
    return analyse(records, problems, rankings, run=run, ranked_by=Origin("folder", "models/x"))


def words(page: str) -> str:
    """What a reader sees: no scripts, styles, addresses."""
    shown = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown.replace("<wbr>", ""))).split())


@pytest.mark.parametrize("op", SETS)
def test_the_report_speaks_of_the_operation_at_hand(op: str) -> None:
    name, pool, slices, (peak, limit) = SETS[op]
    data = a_session(load_problem_set(name).problems[:40], pool)
    page = report_html(data)
    shown = words(page)
    assert not WORDS_OF_CONVOLUTIONS.search(shown)
    assert "nan" not in shown.split()
    for function, _ in pool:
        assert f"triton.{function}" in shown
    assert set(data.slices["slice"]) >= slices
    for heading in ("Roofline of the oracles", "Problems, most lost time first"):
        assert heading in shown
    assert peak in shown
    assert limit in page
    drill = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert len(drill["problems"]) == 40
    assert {facts[0] for facts in drill["facts"]} == {"triton"}
    assert all(one["id"].startswith(op) for one in drill["problems"])
    assert all("FLOP, " in dict(one["facts"])["size"] for one in drill["problems"])


def test_a_legend_explains_the_kinds_of_attention() -> None:
    page = words(report_html(a_session(load_problem_set("attention_validation").problems[:10], ATTENTION)))
    assert "grouped several heads of queries share the keys and values of one head" in page
    assert "decode at most 16 queries for each sequence" in page
