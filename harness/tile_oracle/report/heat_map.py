"""Which groups of kernels are near the oracle on which kinds of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.errors import KernelError
from tile_oracle.judge.slices import slice_names, slices_of
from tile_oracle.kernel import NamedKernel, parse_kernel_name
from tile_oracle.pages.words import short_name
from tile_oracle.problem import problem_from_id

WITHIN = 0.05
"""A group is near the oracle on a problem if its best kernel has at least 95 % of the oracle's TFLOPS."""
ALL = "all"


@dataclass(frozen=True)
class HeatMap:
    """kinds: kind of problem -> number of its problems with an oracle, `all` first. groups: name of the group
    -> kind -> share of these problems on which the group is near the oracle, 0 to 1; best group first.
    of_kernels: each kernel is a group, because all are of one group."""

    kinds: Mapping[str, int]
    groups: Mapping[str, Mapping[str, float]]
    of_kernels: bool = False


def heat_map(final: pd.DataFrame, selection: pd.DataFrame) -> HeatMap:
    """The heat map of a run. final, selection: as in ReportData. Kinds without a problem are left out."""
    judged = selection[selection["oracle_tflops"].notna()]
    problems = [problem_from_id(str(name)) for name in judged["problem"]]
    members = {ALL: np.ones(len(problems), dtype=bool)}
    for name in slice_names(problems):
        inside = np.array([name in slices_of(problem) for problem in problems], dtype=bool)
        if inside.any():
            members[name] = inside
    ok = final[(final["status"] == "ok") & final["problem"].isin(judged["problem"])]
    codes, names = pd.factorize(ok["kernel"])
    group_names = [group_of(str(name)) for name in names]
    # One row that is 100 % everywhere would say nothing.
    of_kernels = len(set(group_names)) == 1 and len(group_names) > 1
    if of_kernels:
        group_names = [short_name(str(name)) for name in names]
    groups = np.array(group_names, dtype=object)[codes]
    oracle = ok["problem"].map(judged.set_index("problem")["oracle_tflops"]).astype("float64")
    near = pd.DataFrame({"problem": ok["problem"], "group": groups})[
        (ok["tflops"] >= (1.0 - WITHIN) * oracle).to_numpy()
    ].drop_duplicates()
    place = {str(name): number for number, name in enumerate(judged["problem"])}
    found = {}
    for group, rows in near.groupby("group", observed=True):
        is_near = np.zeros(len(problems), dtype=bool)
        is_near[[place[str(name)] for name in rows["problem"]]] = True
        found[str(group)] = {kind: float(is_near[inside].mean()) for kind, inside in members.items()}
    ordered = sorted(found.items(), key=lambda one: (-one[1][ALL], one[0]))
    kinds = {kind: int(inside.sum()) for kind, inside in members.items()}
    return HeatMap(kinds, dict(ordered), of_kernels)


def group_of(kernel: str) -> str:
    """The group of a kernel: pipeline and tile, or the function of a source; else its short name.

    compv3 64x64x64, triton.matmul, keys32.
    """
    try:
        parsed = parse_kernel_name(kernel)
    except KernelError:
        return kernel
    if isinstance(parsed, NamedKernel):
        return f"{parsed.source}.{parsed.function}"
    row = parsed.as_row()
    if "pipeline" not in row or "tile_m" not in row:
        return parsed.short_name
    return f"{row['pipeline']} {_tile(row)}"


def _tile(row: Mapping[str, object]) -> str:
    sides: Sequence[object] = [row[name] for name in ("tile_m", "tile_n", "tile_k") if name in row]
    return "x".join(map(str, sides))
