"""The kernels of each problem for report.html: the fastest, the failures, pick and oracle, compactly.

The page embeds them as one JSON document of columns: names are written once and named by their place, times
are whole nanoseconds. The first problems are also written as HTML, for readers without scripts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import KernelError
from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.slices import slices_of
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.feature_share import PickReason
from tile_oracle.operation import operation_named
from tile_oracle.pages import words
from tile_oracle.problem import problem_from_id
from tile_oracle.record.schema import STATUSES
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.lost_time import lost_times

MOST_ROWS = 16_000
"""Rows of all problems together: about 25 bytes each."""
_MOST_EACH, _LEAST_EACH = 40, 3
_MOST_FAILURES = 6
_DETAIL_CHARACTERS = 100
_NOTCH, _FEWEST_SAMPLES = 1.57, 6

_Ints = npt.NDArray[np.int64]
_MISSING = -1

FACTS = {
    "registers": "vgprs",
    "accumulators": "agprs",
    "LDS bytes": "lds_bytes",
    "spills": "spills",
    "workgroups/CU": "workgroups_per_cu",
    "waves/CU": "waves_per_cu",
    "binary bytes": "binary_bytes",
}
"""Heading -> column of the records. They belong to the kernel and are written once."""


@dataclass(frozen=True)
class DrillDown:
    """Kernels of problems, by columns.

    problems: rows of the selection, in the order of the page. kernels: short names. sources: of each kernel,
    "" if unknown. facts: heading -> value of each kernel, -1 if unknown; only those that a kernel has.
    details: what failures say. first: the first row of each problem, and the number of rows.

    The other columns have a value per row. kernel: its place. time_ns. interval_permille: half of the 95 %
    interval of the median / the median; -1 if unknown. samples. rank: 0 if not ranked. status: place in
    STATUSES. again: 1 if timed again with the leaders. detail: place in details, -1 for none. picks, oracles:
    the kernel's place, -1 if there is none.
    """

    problems: tuple[Mapping[str, Any], ...]
    kernels: tuple[str, ...]
    sources: tuple[str, ...]
    facts: Mapping[str, _Ints]
    details: tuple[str, ...]
    first: _Ints
    kernel: _Ints
    time_ns: _Ints
    interval_permille: _Ints
    samples: _Ints
    rank: _Ints
    status: _Ints
    again: _Ints
    detail: _Ints
    picks: _Ints
    oracles: _Ints

    @classmethod
    def of(cls, data: ReportData) -> DrillDown:
        """The kernels of a run's problems; those of the most lost time first, then those without a pick."""
        selection = in_order(data)
        rows, names = _rows(data, selection)
        place = {name: number for number, name in enumerate(names)}
        detail, details = _texts(rows)
        starts = np.searchsorted(rows["problem_place"].to_numpy(), np.arange(len(selection) + 1))
        return cls(
            problems=tuple(wording.rows(selection)),
            kernels=_short_names(names, data.final),
            sources=_per_kernel(data.final, names, "implementation"),
            facts=_facts(data.final, names),
            details=details,
            first=starts.astype(np.int64),
            kernel=rows["kernel_place"].to_numpy(dtype=np.int64),
            time_ns=_whole(rows["latency_ms"], 1e6),
            interval_permille=_whole(_intervals(rows), 1e3),
            samples=_whole(rows["samples"], 1.0),
            rank=rows["rank"].to_numpy(dtype=np.int64),
            status=rows["status"].map({name: n for n, name in enumerate(STATUSES)}).to_numpy(dtype=np.int64),
            again=rows["remeasured"].to_numpy(dtype=np.int64),
            detail=detail,
            picks=_places(selection["pick_kernel"], place),
            oracles=_places(selection["oracle_kernel"], place),
        )

    @property
    def has_intervals(self) -> bool:
        """Whether the interval of any time is known."""
        return bool((self.interval_permille >= 0).any())

    def rows_of(self, problem: int) -> range:
        """The rows of the problem at a place."""
        return range(int(self.first[problem]), int(self.first[problem + 1]))

    def decimals(self, problem: int) -> int:
        """Decimal places of a problem's times in microseconds: four digits for the fastest."""
        times = [int(self.time_ns[row]) for row in self.rows_of(problem) if self.time_ns[row] > 0]
        return words.decimals(min(times) / 1e3) if times else 2

    def document(
        self,
        more: Sequence[Mapping[str, Any]],
        terms: Mapping[str, str],
        words: Sequence[tuple[str, str]] = (),
    ) -> str:
        """JSON for the page's script, in which no text ends the script element. more: further members of each
        problem. terms: heading -> id of its entry in the legend. words: (regular expression, meaning) of the
        words in kernel names."""
        columns = ("kernel", "time_ns", "interval_permille", "samples", "rank", "status", "again", "detail")
        document = {
            "kernels": self.kernels,
            "sources": self.sources,
            "facts": {name: values.tolist() for name, values in self.facts.items()},
            "statuses": STATUSES,
            "details": self.details,
            "first": self.first.tolist(),
            "picks": self.picks.tolist(),
            "oracles": self.oracles.tolist(),
            "terms": dict(terms),
            "words": list(words),
            "decimals": [self.decimals(place) for place in range(len(self.problems))],
            "problems": list(more),
            **{name: getattr(self, name).tolist() for name in columns},
        }
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    def left_out(self, problem: int) -> str:
        """The measured kernels that have no row, in words."""
        row = self.problems[problem]
        shown = np.bincount(self.status[list(self.rows_of(problem))], minlength=len(STATUSES))
        parts = []
        for number, status in enumerate(STATUSES):
            more = int(row.get(f"kernels_{status}", 0)) - int(shown[number])
            if more > 0:
                parts.append(f"{more:,} {'slower' if status == 'ok' else status}")
        return f"Not listed: {', '.join(parts)}." if parts else ""


_OF_DATA: WeakKeyDictionary[ReportData, DrillDown] = WeakKeyDictionary()


def drill_down_of(data: ReportData) -> DrillDown:
    """`DrillDown.of`, made once for each run."""
    if data not in _OF_DATA:
        _OF_DATA[data] = DrillDown.of(data)
    return _OF_DATA[data]


def in_order(data: ReportData) -> pd.DataFrame:
    """The selection, with `lost_us`: failed picks first, then most lost time first, then the others."""
    lost = lost_times(data.selection).set_index("problem")["lost_us"]
    covered = data.selection["coverage"] == COVERED
    failed = covered & (data.selection["efficiency"] == 0)
    order = data.selection["problem"].map(lost).astype("float64").where(~failed, np.inf)
    return (
        data.selection.assign(lost_us=order.where(~failed), order=order.where(covered, -1.0))
        .sort_values(["order", "problem"], ascending=[False, True], ignore_index=True)
        .drop(columns="order")
    )


def about(
    row: Mapping[str, Any], reason: PickReason | None = None, *, scores: bool = False
) -> dict[str, Any]:
    """What the page says of a problem besides its kernels. scores: the model's predictions are no times."""
    problem = problem_from_id(str(row["problem"]))
    lost = row["lost_us"]
    return {
        "id": str(row["problem"]),
        "kinds": ", ".join(slices_of(problem)),
        "operations": f"{words.amount(row['flops'], 'FLOP')}, {words.amount(problem.bytes, 'B')}",
        "efficiency": words.percent(100 * row["efficiency"])
        if row["coverage"] == COVERED
        else row["coverage"],
        "lost": "" if pd.isna(lost) or not lost > 0 else f"{words.microseconds(lost)} µs",
        "why": wording.why(row) if row["coverage"] == COVERED else "",
        "differs": _difference(row),
        **({} if reason is None else _reason(reason, scores, _meanings(problem.op))),
    }


@functools.cache
def _meanings(op: str) -> Mapping[str, str]:
    """Feature -> what it is, of every schema of an operation."""
    made = operation_named(op).features
    schemas = () if made is None else made().all
    return {feature.name: feature.meaning for schema in reversed(schemas) for feature in schema.features}


def _reason(reason: PickReason, scores: bool, meanings: Mapping[str, str]) -> dict[str, Any]:
    """The leading features: name, value for the pick, for the oracle, what it adds to the prediction, and
    what it is."""
    rest = reason.advantage - sum(one.advantage for one in reason.features)
    rows = [
        [
            one.name,
            _value(one.pick),
            _value(one.other),
            _share(one.advantage, scores),
            meanings.get(one.name, ""),
        ]
        for one in reason.features
    ]
    if abs(rest) > 1e-9:
        rows.append(["all others", "", "", _share(rest, scores), ""])
    whole = _share(reason.advantage, scores)
    how = f"by a score {whole} higher" if scores else f"predicted {whole} faster"
    return {
        "reason": f"Why the model ranks the pick above the oracle: {how}",
        "adds": "adds to the score" if scores else "adds",
        "reasons": rows,
    }


def _share(share: float, scores: bool) -> str:
    """An advantage of the pick: how much faster it makes the prediction, or the difference of scores."""
    return f"{share:+.3f}" if scores else f"{100.0 * np.expm1(np.clip(share, -20.0, 20.0)):+,.1f} %"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3g}"


def _difference(row: Mapping[str, Any]) -> list[list[str]]:
    """The fields in which pick and oracle differ: name, the pick's value, the oracle's."""
    names = [row["pick_kernel"], row["oracle_kernel"]]
    if not all(isinstance(name, str) for name in names) or names[0] == names[1]:
        return []
    try:
        pick, oracle = (parse_kernel_name(name).as_row() for name in names)
    except KernelError:
        return []
    fields = [name for name in dict.fromkeys((*oracle, *pick)) if name != "kernel"]
    rows = [[name, _shown(pick.get(name)), _shown(oracle.get(name))] for name in fields]
    return [[words.one_line(text, 60) for text in one] for one in rows if one[1] != one[2]]


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _rows(data: ReportData, selection: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The chosen rows of data.final, by place of the problem and fastest first, and their kernels' names."""
    final = data.final
    # Chosen by numbers first: a table of all pairs would take most of the time.
    places = _places(final["problem"], {name: number for number, name in enumerate(selection["problem"])})
    group = final["status"].map(_GROUPS).fillna(2).to_numpy(dtype=np.int64)
    latency = final["latency_ms"].to_numpy(dtype=np.float64, na_value=np.nan)
    order = np.lexsort((np.where(np.isnan(latency), np.inf, latency), group, places))
    places, group = places[order], group[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (places[1:] != places[:-1]) | (group[1:] != group[:-1])
    nth = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    each = min(_MOST_EACH, max(_LEAST_EACH, MOST_ROWS // max(len(selection), 1)))
    named = final["kernel"].to_numpy(dtype=object)[order]
    special = np.zeros(len(order), dtype=bool)
    for column in ("pick_kernel", "oracle_kernel"):
        special |= named == selection[column].to_numpy(dtype=object)[places]
    failures = min(_MOST_FAILURES, each)
    kept = special | ((group == 0) & (nth < each)) | ((group == 1) & (nth < failures))
    chosen = final.iloc[order[kept]].reset_index(drop=True)
    nothing = pd.Series(np.nan, index=chosen.index)
    table = pd.DataFrame({name: chosen.get(name, nothing) for name in _COLUMNS})
    table["problem_place"] = places[kept]
    codes, names = pd.factorize(table["kernel"])
    table["kernel_place"] = codes
    table["rank"] = _ranks(data, table)
    return table, [str(name) for name in names]


_COLUMNS = (
    *("problem", "kernel", "status", "detail", "latency_ms", "precision", "spread", "samples"),
    "remeasured",
)
_GROUPS = {"ok": 0, "noisy": 0, "unsupported": 2} | dict.fromkeys(
    ("wrong", "flaky", "crash", "timeout", "build_error", "device_lost"), 1
)


def _ranks(data: ReportData, table: pd.DataFrame) -> _Ints:
    """The rank of each row's kernel in the model's ranking, 0 where it was not ranked."""
    order = data.ranking_order
    if order is None or not len(order.rows):
        return np.zeros(len(table), dtype=np.int64)
    count = max(len(order.kernels), 1)
    keys = order.problem[order.rows] * count + order.kernel[order.rows]
    ranks = pd.Series(order.ranks, index=keys)
    problem = _places(table["problem"], {name: n for n, name in enumerate(order.problems)})
    kernel = _places(table["kernel"], {name: n for n, name in enumerate(order.kernels)})
    wanted = np.where((problem < 0) | (kernel < 0), _MISSING, problem * count + kernel)
    return np.asarray(ranks.reindex(wanted).fillna(0), dtype=np.int64)


def _places(names: pd.Series, place: Mapping[str, int]) -> _Ints:
    return np.asarray(names.map(place).fillna(_MISSING), dtype=np.int64)


def _intervals(rows: pd.DataFrame) -> pd.Series:
    """Half of the 95 % interval of the median / the median: as recorded, or else from quartiles and number of
    the samples (McGill, Tukey and Larsen, Variations of Box Plots, 1978)."""
    samples = rows["samples"].astype("float64")
    spread = rows["spread"].astype("float64")
    notch = _NOTCH * spread / np.sqrt(samples.where(samples >= _FEWEST_SAMPLES))
    return rows["precision"].astype("float64").fillna(notch)


def _whole(values: pd.Series, scale: float) -> _Ints:
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) * scale
    return np.asarray(np.where(np.isfinite(numbers), np.rint(numbers), _MISSING), dtype=np.int64)


def _texts(rows: pd.DataFrame) -> tuple[_Ints, tuple[str, ...]]:
    """The place of each failure's detail among the different ones, and these."""
    failed = rows["status"].to_numpy(dtype=object) != "ok"
    shown = [
        words.one_line(text, _DETAIL_CHARACTERS) if bad else ""
        for text, bad in zip(rows["detail"], failed, strict=True)
    ]
    place = {text: number for number, text in enumerate(dict.fromkeys(text for text in shown if text))}
    return np.array([place.get(text, _MISSING) for text in shown], dtype=np.int64), tuple(place)


def _per_kernel(final: pd.DataFrame, names: Sequence[str], column: str) -> tuple[str, ...]:
    if column not in final:
        return ("",) * len(names)
    first = final.drop_duplicates("kernel").set_index("kernel")[column].astype(object)
    return tuple(words.one_line(value) for value in first.reindex(names))


def _facts(final: pd.DataFrame, names: Sequence[str]) -> dict[str, _Ints]:
    columns = {
        heading: name for heading, name in FACTS.items() if name in final and final[name].notna().any()
    }
    if not columns or not len(names):
        return {}
    part = final[final["kernel"].isin(set(names))]
    first = part.groupby("kernel", observed=True)[list(columns.values())].first().reindex(names)
    return {heading: _whole(first[name], 1.0) for heading, name in columns.items()}


def _short_names(names: Sequence[str], final: pd.DataFrame) -> tuple[str, ...]:
    problem_of = final.drop_duplicates("kernel").set_index("kernel")["problem"]
    prefixes: dict[str, str] = {}
    found = []
    for name in names:
        problem = str(problem_of[name])
        if problem not in prefixes:
            prefixes[problem] = wording.prefix_of(problem)
        found.append(words.one_line(name).removeprefix(prefixes[problem]) or "-")
    return tuple(found)
