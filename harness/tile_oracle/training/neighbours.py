"""Nearest-neighbour predictions for kernels without fields (tile_oracle.kernel.NamedKernel).

A kernel's speed relative to the fastest kernel of the problem is averaged over the nearest other problems in
the records. Distances are Euclidean between the logarithms of the problems' dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named
from tile_oracle.record.final import final_measurements, records_op

CONSTRAINT = "constraint: "
"""Prefix of the detail of pairs that a kernel's declaration excludes."""
NEIGHBOURS = 6
_FOLDS = 5
_NEAR = 0.25
"""Added to distances (in powers of two), so that a very near neighbour does not have all of the weight."""


def neighbour_predictions(records: pd.DataFrame, pool: Sequence[Kernel]) -> pd.DataFrame:
    """Columns problem, kernel, predicted_tflops and fold; each problem is predicted from the other folds.

    Pairs that the kernels' declarations exclude are left out. Raises ModelError for fewer than two problems
    of every kind.
    """
    final = final_measurements(records)
    kind_fields = list(operation_named(records_op(records)).kind_fields)
    names = {kernel.name for kernel in pool}
    final = final[final["kernel"].isin(names)]
    tables = [
        _of_kind(rows)
        for _, rows in final.groupby(kind_fields, sort=True)
        if rows.loc[rows["status"] == "ok", "problem"].nunique() >= 2
    ]
    if not tables:
        raise ModelError("nearest neighbours need measurements of at least two problems of a kind")
    return pd.concat(tables, ignore_index=True)


def _of_kind(rows: pd.DataFrame) -> pd.DataFrame:
    excluded = (rows["status"] == "unsupported") & rows["detail"].fillna("").str.startswith(CONSTRAINT)
    speeds = rows.assign(tflops=rows["tflops"].where(rows["status"] == "ok", 0.0))
    wide = speeds[~excluded].pivot_table(index="problem", columns="kernel", values="tflops", aggfunc="first")
    open_to = (~excluded).groupby([rows["problem"], rows["kernel"]]).first().unstack().reindex_like(wide)
    best = wide.max(axis=1).to_numpy()
    known = best > 0
    relative = wide.to_numpy() / np.where(known, best, 1.0)[:, None]
    places = _places(rows, wide.index)
    folds = np.random.default_rng(0).permutation(len(wide)) % min(_FOLDS, len(wide))
    parts = []
    for row, problem in enumerate(wide.index):
        others = known & (folds != folds[row])
        if not others.any():
            continue
        share, level = _predicted(places[row], places[others], relative[others], best[others])
        wanted = open_to.iloc[row].fillna(True).to_numpy(dtype=bool)
        parts.append(
            pd.DataFrame(
                {
                    "problem": problem,
                    "kernel": wide.columns[wanted],
                    "predicted_tflops": (share * level)[wanted],
                    "fold": int(folds[row]),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _places(rows: pd.DataFrame, problems: pd.Index) -> npt.NDArray[np.float64]:
    """Returns the logarithms of each problem's dimensions, (problems, dimensions)."""
    numbers = list(operation_named(records_op(rows)).free_fields)
    one_each = rows.drop_duplicates("problem").set_index("problem").loc[problems, numbers]
    return np.asarray(np.log2(one_each.to_numpy(dtype=np.float64) + 1.0))


def _predicted(
    place: npt.NDArray[np.float64],
    places: npt.NDArray[np.float64],
    relative: npt.NDArray[np.float64],
    best: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], float]:
    """Returns each kernel's relative speed, 0 if no neighbour has it, and the predicted TFLOPS of the
    fastest."""
    distances = np.linalg.norm(places - place, axis=1)
    nearest = np.argsort(distances, kind="stable")[:NEIGHBOURS]
    weights = 1.0 / (distances[nearest] + _NEAR) ** 2
    there = ~np.isnan(relative[nearest])
    total = (weights[:, None] * there).sum(axis=0)
    summed = (weights[:, None] * np.where(there, relative[nearest], 0.0)).sum(axis=0)
    share = np.divide(summed, total, out=np.zeros_like(summed), where=total > 0)
    return share, float(np.exp(np.average(np.log(best[nearest]), weights=weights)))
