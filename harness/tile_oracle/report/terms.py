"""The terms of report.html, in AMD's words and NVIDIA's. Those in kernel names come from the operation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tile_oracle.operation import operation_named

GENERAL: Mapping[str, str] = {
    "oracle": "the fastest verified kernel of a problem",
    "pick": "the kernel that the model ranks first",
    "efficiency": "TFLOPS of the pick / TFLOPS of the oracle; 0 for a pick that fails",
    "time lost": "share of the picks' total time that the oracles would save, each problem once: long "
    "problems count more than in the mean; 100 % less it: the time-weighted efficiency",
    "P10": "the 10th percentile: one problem in ten is lower",
    "median": "half of the problems are lower",
    "coverage": "share of the problems that have an oracle and a measured pick",
    "top-1": "share of the problems whose pick is the oracle",
    "top-5": "share of the problems whose oracle is among the first five of the model's ranking",
    "rank": "place in the model's ranking, 1 is the pick",
    "95 %": "half of the 95 % interval of the median time, in percent of it",
    "status": "ok: verified and timed; unsupported: not for this problem; build_error: does not compile; "
    "wrong: another result than the reference; flaky: not always the same result; crash, timeout: the "
    "process died or did not answer; device_lost: the device stopped; noisy: no steady time",
    "registers": "vector registers of a work-item (AMD: VGPRs, accumulators included; NVIDIA: of a thread)",
    "VGPR": "AMD's vector register: one value for each work-item of a wave; NVIDIA: register of a thread",
    "AGPR": "AMD's accumulator register of a work-item, which matrix instructions (MFMA) write; NVIDIA's "
    "accumulators are registers of a thread",
    "accumulators": "AGPRs of a work-item: registers that matrix instructions can write",
    "LDS": "local data share: fast memory of a workgroup on its compute unit; NVIDIA: shared memory",
    "LDS bytes": "LDS (NVIDIA: shared memory) of a workgroup",
    "spills": "registers that did not fit and are kept in slow memory (NVIDIA: words of local memory)",
    "work-item": "one lane of a kernel; NVIDIA: thread",
    "wave": "64 work-items that run in step (32 on some targets); NVIDIA: warp, 32 threads",
    "workgroup": "the waves that share LDS; NVIDIA: thread block",
    "CU": "compute unit; NVIDIA: SM, streaming multiprocessor",
    "workgroups/CU": "workgroups that a compute unit (NVIDIA: SM) holds at once: occupancy",
    "waves/CU": "waves (NVIDIA: warps) that a compute unit (SM) holds at once: occupancy",
    "matrix instr.": "matrix instructions (AMD: MFMA; NVIDIA: MMA on tensor cores) in the main loop's body",
    "binary bytes": "size of the compiled kernel",
    "FLOP": "floating-point operations; a multiplication and an addition are two. k, M, G, T: 10^3, 10^6, "
    "10^9, 10^12",
    "lost, µs": "time of the pick minus time of the oracle",
    "TFLOPS": "10^12 floating-point operations per second",
    "/ oracle": "time / the oracle's time",
    "/ median": "TFLOPS of the oracle / of the median ok kernel",
}
"""Term -> its meaning."""

_SAME = {"mean efficiency": "efficiency"}


def terms_of(op: str) -> dict[str, str]:
    """Returns all terms of a report on an operation: its words in kernel names first."""
    return {**operation_named(op).terms, **GENERAL}


def anchor(term: str) -> str:
    """Returns the id of a general term's entry in the page, "" for any other text."""
    name = _SAME.get(term, term)
    if name not in GENERAL:
        return ""
    return "term-" + re.sub(
        r"[^a-z0-9]+", "-", name.lower().replace("/", "per-").replace("%", "percent")
    ).strip("-")
