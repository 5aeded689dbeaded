"""The report of a session of attention or of products of matrices: labels, roofline, drill-down."""

from __future__ import annotations

import html
import itertools
import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tile_oracle.judge.picker import Origin
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.schema import columns
from tile_oracle.report.data import ReportData, RunInfo, analyse
from tile_oracle.report.html import report_html

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
