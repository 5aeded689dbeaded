"""Why a ranker prefers one kernel to another: what each feature adds to the predictions of both.

A prediction is a sum of contributions of the features (SHAP values of the trees, LightGBM's pred_contrib).
The difference of two kernels of a problem is therefore the sum of the differences of these contributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array
from tile_oracle.model.feature_share import FeatureShare, PickReason
from tile_oracle.model.network import NetworkMember
from tile_oracle.model.ranker import Ranker, TreeMember
from tile_oracle.model.trees import log_time_of, mean_predictions

PHYSICAL = "physical model"
"""The name under which a physical time model counts as one feature."""

CAUTION = "caution for kernels that were not trained on"
"""The name under which the offsets of such kernels and of twins count as one feature."""

_NOTHING = 1e-9


def pick_reasons(
    ranker: Ranker, picks: Columns, others: Columns, threads: int = 1, most: int = 8
) -> list[PickReason]:
    """For each row, why the kernel of `picks` is preferred to that of `others`. Columns as for
    Ranker.log_time; row i of both is of the same problem. most: number of features.
    """
    count = len(picks["kernel"])
    both = {str(name): np.concatenate([picks[name], others[name]]) for name in picks if name in others}
    parts: dict[str, list[Array]] = {}
    if ranker.aliases.change_scores:
        both, offset = ranker.aliases.canonical(both)
        _add(parts, CAUTION, offset[count:] - offset[:count], None, None)
    hardware = ranker.hardware
    total = sum(ranker.weights.values())
    for member in ranker.members:
        weight = ranker.weights.get(member.name, 0.0) / total
        if not weight > 0:
            continue
        if isinstance(member, NetworkMember):
            for name, share, of_pick, of_other in member.shares(picks, others, hardware):
                _add(parts, name, weight * share, of_pick, of_other)
            continue
        physical = member.physical if isinstance(member, TreeMember) else member
        if physical is not None:
            times = physical.log_time(both, hardware, threads)
            _add(parts, PHYSICAL, weight * (times[count:] - times[:count]), None, None)
        if not isinstance(member, TreeMember):
            continue
        rows: Any = both
        if member.schema.optional:
            rows = {**both, **member.code.columns(both["kernel"])}
        features = member.schema.compute(rows, hardware, member.feature_names)
        shares = _shares(member, features, rows, threads)
        for place, name in enumerate(member.feature_names):
            values = features[:, place]
            _add(parts, name, weight * shares[:, place], values[:count], values[count:])
    return [_leading(parts, row, most) for row in range(count)]


def _shares(trees: TreeMember, features: Array, rows: Columns, threads: int) -> Array:
    """Returns each feature's share of the advantage of the first half of the rows over the second, (rows / 2,
    features).

    Where the time is not linear in the trees' output, they are scaled to sum to the difference of the times.
    """
    count = len(features) // 2
    found = [one.predict(features, pred_contrib=True, num_threads=threads) for one in trees.boosters]
    # The last column is the mean score, which all rows share.
    contributions = np.mean(np.asarray(found), axis=0)
    shares = (contributions[count:] - contributions[:count])[:, :-1]
    scores = contributions.sum(axis=1)
    raw = scores[count:] - scores[:count]
    times = log_time_of(trees.target, mean_predictions(trees.boosters, features, 1), rows)
    advantage = times[count:] - times[:count]
    scale = np.divide(advantage, raw, out=np.zeros_like(raw), where=np.abs(raw) > 1e-12)
    return np.asarray(shares * scale[:, None])


def _add(
    parts: dict[str, list[Array]], name: str, share: Array, pick: Array | None, other: Array | None
) -> None:
    """Adds a feature's share to those of earlier members."""
    unknown = np.full(len(share), np.nan)
    if name in parts:
        parts[name][0] = parts[name][0] + share
    else:
        parts[name] = [share, unknown if pick is None else pick, unknown if other is None else other]


def _leading(parts: Mapping[str, Sequence[Array]], row: int, most: int) -> PickReason:
    found = [
        FeatureShare(name, _known(pick[row]), _known(other[row]), float(share[row]))
        for name, (share, pick, other) in parts.items()
        if abs(float(share[row])) > _NOTHING
    ]
    ordered = sorted(found, key=lambda one: (-abs(one.advantage), one.name))
    return PickReason(float(sum(one.advantage for one in found)), tuple(ordered[:most]))


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
