"""How the picks that a baseline accepted do in a later run that picks other kernels."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from tile_oracle.judge.noise import Margin, margins
from tile_oracle.judge.selection import COVERED


def accepted_margins(
    records: pd.DataFrame, final: pd.DataFrame, selection: pd.DataFrame, accepted: Mapping[str, Margin]
) -> dict[str, Margin]:
    """Problem id -> the margin of the accepted pick in this run, where the run picks another kernel and has
    timed the accepted one in turn with the oracle.

    records, final, selection: as for `margins`. accepted: the picks of a baseline. A replay of the recording
    that the baseline was made from has no further timings of them.
    """
    kernels = selection["problem"].map({problem: margin.pick for problem, margin in accepted.items()})
    other = (selection["coverage"] == COVERED) & kernels.notna() & (kernels != selection["pick_kernel"])
    if not other.any():
        return {}
    wanted = selection.loc[other, ["problem"]].assign(kernel=kernels[other])
    timed = final[(final["status"] == "ok") & final["remeasured"]]
    found = wanted.merge(timed[["problem", "kernel", "latency_ms", "tflops"]], on=["problem", "kernel"])
    if found.empty:
        return {}
    found = found.set_index("problem")
    table = selection.set_index("problem")
    table.loc[found.index, "pick_kernel"] = found["kernel"]
    table.loc[found.index, "pick_latency_ms"] = found["latency_ms"].astype("float64")
    efficiency = found["tflops"] / table.loc[found.index, "oracle_tflops"]
    table.loc[found.index, "efficiency"] = efficiency.clip(upper=1.0).astype("float64")
    table.loc[found.index, "pick_status"] = "ok"
    table.loc[found.index, "pick_remeasured"] = True
    table.loc[found.index, "pick_flattered"] = False
    again = margins(records, final, table.reset_index())
    return {
        problem: again[problem]
        for problem in found.index
        if again[problem].rounds and not again[problem].of_the_same_data(accepted[problem])
    }
