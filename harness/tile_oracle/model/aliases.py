"""Aliases: names that are one kernel.

Two names are one kernel when their binaries are identical, or when their times agree within noise on every
problem that both were measured on. Training merges their rows as repeated measurements of one kernel. An
unmeasured kernel can have a twin among the measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.features.columns import Column, Columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas import flops_of
from tile_oracle.kernel import FAMILY, Kernel, parse_kernel_name
from tile_oracle.operation import operation_named
from tile_oracle.record.final import is_censored
from tile_oracle.record.schema import kernel_columns

# ---- The noise of measured times, for aliases and the physical model -----------------------------

_RELATIVE = 0.004
_ABSOLUTE_MS = 0.00025
"""These two fit twins and repeats in the public gfx950 measurements."""


def noise_of(latency_ms: Any) -> Array:
    """Returns the standard deviation of ln(time) of one measurement at that latency: a relative part and an
    absolute part, added in quadrature."""
    time = np.asarray(latency_ms, dtype=np.float64)
    return np.asarray(np.sqrt(_RELATIVE**2 + (_ABSOLUTE_MS / time) ** 2))


LEAST_SHARED_PROBLEMS = 20
AGREEMENT_QUANTILE = 0.9
AGREEMENT_SIGMAS = 4.0
"""Names are one kernel when 90 % of their differences are within four standard deviations. On the public
gfx950 measurements aliases reach 2.7 and the nearest distinct kernels 12."""

UNMEASURED_CAUTION = 0.16
"""Added to the ln(time) of an unmeasured kernel: the mean error of such predictions,
leaving each public gfx950 kernel out in turn."""

_TWIN_BONUS = 1e-4
_SHRINK = 50.0


@dataclass(frozen=True)
class Aliases:
    """`representative`: name of a measured kernel -> the name that represents it.
    `offset`: ln(time) of a name over its representative's, shrunk towards 0; it breaks ties of twins.
    `because`: representative -> why its names are one kernel.
    `shift`: name -> change of its score by measurements elsewhere (training.adapt); with or without aliases.
    """

    representative: Mapping[str, str] = field(default_factory=dict)
    offset: Mapping[str, float] = field(default_factory=dict)
    because: Mapping[str, str] = field(default_factory=dict)
    shift: Mapping[str, float] = field(default_factory=dict)

    @property
    def change_scores(self) -> bool:
        """Whether a kernel may be predicted otherwise than by its own fields alone."""
        return bool(self.representative or self.shift)

    def groups(self) -> dict[str, list[str]]:
        """Representative -> its names, for groups of several."""
        found: dict[str, list[str]] = {}
        for name, stands in sorted(self.representative.items()):
            found.setdefault(stands, []).append(name)
        return {stands: names for stands, names in found.items() if len(names) > 1}

    def represented_by(self, chosen: Mapping[str, str]) -> Aliases:
        """Returns the same groups; `chosen` maps a group's present representative to its new one."""
        return Aliases(
            {name: chosen.get(stands, stands) for name, stands in self.representative.items()},
            self.offset,
            {chosen.get(stands, stands): why for stands, why in self.because.items()},
            self.shift,
        )

    def stand_in(self, name: str, kernel: Kernel | None = None) -> tuple[str, float]:
        """(name of the kernel that this one is predicted as, its ln(time) offset).

        The representative of a measured kernel or of a measured twin; else the kernel itself, whose
        prediction must be UNMEASURED_CAUTION faster than a measured kernel's to be picked. An unmeasured twin
        wins a tie with the measured one: on short problems the measured pipeline of the known pair is up to 2
        microseconds slower.
        """
        shift = self.shift.get(name, 0.0)
        if not self.representative:
            return name, shift
        stands, offset = self._stand_in(name, kernel)
        return stands, offset + shift

    def _stand_in(self, name: str, kernel: Kernel | None) -> tuple[str, float]:
        known = self.representative.get(name)
        if known is not None:
            return known, self.offset.get(name, 0.0)
        kernel = kernel or parse_kernel_name(name)
        alike = operation_named(kernel.op).timed_like(kernel) if kernel.source == FAMILY else None
        twin = None if alike is None else self.representative.get(alike.name)
        if twin is not None:
            return twin, -_TWIN_BONUS
        return name, UNMEASURED_CAUTION

    def canonical(self, rows: Columns) -> tuple[dict[str, Column], Column]:
        """Returns the rows with every kernel replaced by its representative, and the offset of each row.

        The rows need a column `kernel` (full names) besides the problem's fields.
        """
        codes, names = pd.factorize(np.asarray(rows["kernel"], dtype=object))
        found = [self.stand_in(str(name)) for name in names]
        kernels = [parse_kernel_name(stands) for stands, _ in found]
        fields = [kernel.as_row() for kernel in kernels]
        own = own_fields(kernels[0]) if kernels else ()
        table: dict[str, Column] = {
            str(name): np.asarray(rows[name]) for name in rows if str(name) not in own
        }
        for name in own:
            values = [row[name] for row in fields]
            dtype = object if isinstance(values[0], str) else None
            table[name] = np.array(values, dtype=dtype)[codes]
        table["kernel"] = np.array([stands for stands, _ in found], dtype=object)[codes]
        return table, np.array([offset for _, offset in found])[codes]

    def as_json(self) -> dict[str, Any]:
        return {
            "representative": dict(self.representative),
            "offset": {name: value for name, value in self.offset.items() if value},
            "because": dict(self.because),
            **({"shift": dict(self.shift)} if self.shift else {}),
        }


def own_fields(kernel: Kernel) -> tuple[str, ...]:
    """Returns the fields of a kernel that are not fields of its problem."""
    return kernel_columns(kernel.op)


def find_aliases(rows: pd.DataFrame) -> Aliases:
    """Aliases in a training table (`training_rows(...).table`).

    In a group every name agrees with every other. The representative is the name with the most measurements,
    then the first. Times are compared only with at least 20 shared problems.
    """
    known = rows["latency_ms"].where(~is_censored(rows))
    table = rows.assign(latency_ms=known).pivot_table(
        index="problem", columns="kernel", values="latency_ms", aggfunc="median", dropna=False
    )
    names = [str(name) for name in table.columns]
    times = table.to_numpy(dtype=np.float64)
    hashes = _hashes(rows)
    agrees = np.eye(len(names), dtype=bool)
    same_binary = np.eye(len(names), dtype=bool)
    of_hash = np.array([hashes.get(name, "") for name in names], dtype=object)
    kinds = pd.factorize(pd.Series([parse_kernel_name(name).kind for name in names], dtype=object))[0]
    for i in range(len(names) - 1):
        # A binary may serve two kinds of problem; it counts as one kernel of each.
        same = (of_hash[i + 1 :] == of_hash[i]) & bool(of_hash[i]) & (kinds[i + 1 :] == kinds[i])
        same_binary[i, i + 1 :] = same_binary[i + 1 :, i] = same
        agrees[i, i + 1 :] = agrees[i + 1 :, i] = same | _agree(times, i)
    groups = _complete_groups(agrees)
    measured = (
        rows.groupby("kernel")["measurements"].sum()
        if "measurements" in rows
        else rows["kernel"].value_counts()
    )
    representative, offset, because = {}, {}, {}
    for group in groups:
        members = sorted((names[i] for i in group), key=lambda name: (-int(measured[name]), name))
        stands = members[0]
        timed = np.log(table[members].dropna(how="all").astype(np.float64))
        level = np.nanmedian(timed.to_numpy(), axis=1)
        for name in members:
            representative[name] = stands
            if len(members) > 1:
                difference = timed[name].to_numpy() - level
                difference = difference[np.isfinite(difference)]
                shrink = len(difference) / (len(difference) + _SHRINK)
                offset[name] = float(np.median(difference)) * shrink if len(difference) else 0.0
        if len(members) > 1:
            identical = all(same_binary[i, j] for i in group for j in group)
            because[stands] = (
                "identical binaries" if identical else "times agree within noise on every problem"
            )
    return Aliases(dict(sorted(representative.items())), dict(sorted(offset.items())), because)


def merge(rows: pd.DataFrame, aliases: Aliases) -> pd.DataFrame:
    """Returns the training table with one row per problem and distinct kernel: the median of its names'
    times.

    `measurements` adds up; kernel fields are the representative's.
    """
    stands = rows["kernel"].map(aliases.representative)
    grouped = rows.assign(kernel=stands, log_time=np.log(rows["latency_ms"])).groupby(
        ["problem", "kernel"], sort=True
    )
    merged = grouped.first()
    names = merged.index.get_level_values("kernel")
    kernels = {name: parse_kernel_name(name) for name in names.unique()}
    fields = {name: kernel.as_row() for name, kernel in kernels.items()}
    for name in own_fields(next(iter(kernels.values()))):
        merged[name] = [fields[kernel][name] for kernel in names]
    merged["latency_ms"] = np.exp(grouped["log_time"].median())
    merged["measurements"] = grouped["measurements"].sum()
    merged = merged.drop(columns="log_time").reset_index()
    merged["tflops"] = flops_of(merged) / (merged["latency_ms"] * 1e9)
    return merged


def _agree(times: Any, i: int) -> Any:
    """Returns which of the columns after i agree with column i."""
    a, b = times[:, i : i + 1], times[:, i + 1 :]
    with np.errstate(invalid="ignore"):
        z = np.abs(np.log(a) - np.log(b)) / (np.sqrt(2.0) * noise_of(np.sqrt(a * b)))
        within = (z <= AGREEMENT_SIGMAS).sum(axis=0)
    shared = np.isfinite(z).sum(axis=0)
    # The order statistic below the quantile is within the limit.
    return (shared >= LEAST_SHARED_PROBLEMS) & (within > np.floor(AGREEMENT_QUANTILE * (shared - 1) + 1e-9))


def _complete_groups(agrees: Any) -> list[list[int]]:
    groups: list[list[int]] = []
    for index in range(len(agrees)):
        for group in groups:
            if all(agrees[index, other] for other in group):
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def _hashes(rows: pd.DataFrame) -> dict[str, str]:
    """Kernel -> source hash, for kernels with exactly one."""
    if "source_hash" not in rows:
        return {}
    known = rows.dropna(subset=["source_hash"])
    counts = known.groupby("kernel")["source_hash"].agg(["nunique", "first"])
    return {
        str(name): str(row["first"])
        for name, row in counts.iterrows()
        if row["nunique"] == 1 and row["first"]
    }
