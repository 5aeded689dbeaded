"""The kernels of each problem for report.html: the fastest, the failures, pick and oracle, compactly.

The page embeds them as one JSON document of texts: names are written once and named by their place.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
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
from tile_oracle.pages.tables import Column, numbers
from tile_oracle.problem import problem_from_id
from tile_oracle.record.schema import STATUSES
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.pictures import limits, under_the_roof
from tile_oracle.report.terms import anchor

MOST_ROWS = 16_000
"""Rows of all problems together: about 50 bytes each."""
_MOST_EACH, _LEAST_EACH = 40, 3
_MOST_FAILURES = 6
_DETAIL_CHARACTERS = 100
_NOTCH, _FEWEST_SAMPLES = 1.57, 6

_Ints = npt.NDArray[np.int64]

FACTS = {
    "source": "implementation",
    "registers": "vgprs",
    "accumulators": "agprs",
    "LDS bytes": "lds_bytes",
    "spills": "spills",
    "workgroups/CU": "workgroups_per_cu",
    "waves/CU": "waves_per_cu",
    "matrix instr.": "loop_matrix_instructions",
    "binary bytes": "binary_bytes",
}
"""Heading -> column of the records. They belong to the kernel and are written once."""
_OF_PAIR = tuple(name for name in FACTS if name != "matrix instr.")
_INTERVAL = Column("95 %", "num", "half of the 95 % interval of the median")


class KernelRow(NamedTuple):
    """A kernel on a problem. kernel: its place in DrillDown.kernels. tags: "oracle", "pick". texts: of the
    columns up to the status. note: of the status."""

    kernel: int
    tags: tuple[str, ...]
    texts: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class DrillDown:
    """Kernels of problems.

    problems: rows of the selection, in the order of the page. titles: id -> its words. rows: of
    each problem, fastest first. columns: of a problem's kernels. kernels: short names. facts: texts of the
    last columns, of each kernel. limits: of the device (pictures.limits).
    """

    problems: Sequence[Mapping[str, Any]]
    titles: Mapping[str, str]
    rows: Sequence[Sequence[KernelRow]]
    columns: Sequence[Column]
    kernels: Sequence[str]
    facts: Sequence[tuple[str, ...]]
    limits: tuple[float, float] | str

    @classmethod
    def of(cls, data: ReportData) -> DrillDown:
        """Returns the kernels of a run's problems; those of the most lost time first, then those without a
        pick."""
        selection = in_order(data)
        table, names = _chosen(data, selection)
        held = [FACTS[heading] for heading in _OF_PAIR if FACTS[heading] in data.final]
        part = data.final[["kernel", *held]][data.final["kernel"].isin(names)]
        facts = {
            heading: [_fact(value) for value in of.reindex(names)]
            for heading, of in kernel_facts(part, _OF_PAIR).items()
        }
        has_intervals = bool(table["interval"].notna().any())
        columns = [
            Column("kernel", "name"),
            Column("time, µs", "num", "median of the timed runs"),
            *([_INTERVAL] if has_intervals else []),
            Column("/ oracle", "num", "its time / the oracle's"),
            Column("rank", "num", "its place in the model's ranking"),
            Column("status"),
            *(Column(name, "" if name == "source" else "num") for name in facts),
        ]
        rows = wording.rows(table)
        starts = np.searchsorted(table["problem_place"].to_numpy(), np.arange(len(selection) + 1))
        problems = wording.rows(selection)
        return cls(
            problems,
            words.titles(str(row["problem"]) for row in problems),
            [
                _kernel_rows(rows[start:end], problem, has_intervals)
                for problem, start, end in zip(problems, starts, starts[1:], strict=False)
            ],
            columns,
            [words.short_name(name) for name in names],
            list(zip(*facts.values(), strict=True)) if facts else [()] * len(names),
            limits(data),
        )

    def left_out(self, problem: int) -> str:
        """Returns the measured kernels that have no row, in words."""
        shown = Counter(row.texts[-1] for row in self.rows[problem])
        more = {one: int(self.problems[problem].get(f"kernels_{one}", 0)) - shown[one] for one in STATUSES}
        parts = [f"{n:,} {'slower' if one == 'ok' else one}" for one, n in more.items() if n > 0]
        return f"Not listed: {', '.join(parts)}." if parts else ""


_OF_DATA: WeakKeyDictionary[ReportData, DrillDown] = WeakKeyDictionary()


def drill_down_of(data: ReportData) -> DrillDown:
    """`DrillDown.of`, made once for each run."""
    if data not in _OF_DATA:
        _OF_DATA[data] = DrillDown.of(data)
    return _OF_DATA[data]


def drill_data(data: ReportData) -> str:
    """Returns the kernels of all problems as JSON for the page's script, in which no text ends the script
    element."""
    down = drill_down_of(data)
    problems = []
    for place, rows in enumerate(down.rows):
        kernels = [(row.kernel, *row.texts, *_more(row)) for row in rows]
        problems.append({**_about(data, down, place), "rows": kernels})
    document = {
        "columns": _columns(down.columns),
        "kernels": [_in_words(name) for name in down.kernels],
        "facts": down.facts,
        "problems": problems,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _in_words(kernel: str) -> str | tuple[str, str]:
    """Returns a kernel's name, after its words where these are shorter."""
    shown = words.kernel_words(kernel)
    return kernel if shown == kernel else (shown, kernel)


def _more(row: KernelRow) -> list[str]:
    """Tags and note, of the few rows that have them."""
    return [" ".join(row.tags), row.note] if row.tags or row.note else []


def _columns(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    return [(one.heading, one.css, one.hint, anchor(one.heading)) for one in columns]


Part = tuple[str, Sequence[tuple[str, ...]], Sequence[tuple[str, ...]]]
"""A small table beside a problem's kernels: caption, columns, texts."""


def in_order(data: ReportData) -> pd.DataFrame:
    """Returns the selection, with `lost_us`: failed picks first, then most lost time first, then the
    others."""
    lost = data.lost.set_index("problem")["lost_us"]
    covered = data.selection["coverage"] == COVERED
    failed = covered & (data.selection["efficiency"] == 0)
    order = data.selection["problem"].map(lost).astype("float64").where(~failed, np.inf)
    return (
        data.selection.assign(lost_us=order.where(~failed), order=order.where(covered, -1.0))
        .sort_values(["order", "problem"], ascending=[False, True], ignore_index=True)
        .drop(columns="order")
    )


def _about(data: ReportData, down: DrillDown, place: int) -> dict[str, Any]:
    """Returns what the page says of the problem at a place besides its kernels."""
    row = down.problems[place]
    problem = problem_from_id(str(row["problem"]))
    covered, lost, speed = row["coverage"] == COVERED, row["lost_us"], row["oracle_tflops"]
    facts = {
        "id": problem.id,
        "kinds": ", ".join(slices_of(problem)),
        "size": f"{words.amount(row['flops'], 'FLOP')}, {words.amount(problem.bytes, 'B')}",
        "efficiency": words.percent(100 * row["efficiency"]) if covered else row["coverage"],
        "oracle": "" if pd.isna(speed) else under_the_roof(problem, float(speed), down.limits),
        "lost time": "" if pd.isna(lost) or not lost > 0 else f"{words.microseconds(lost)} µs",
        "why": wording.why(row) if covered else "",
    }
    reason = data.reasons.get(str(row["problem"]))
    tables = [] if reason is None else [_reason(reason, data.ranked_by.order_only, problem.op)]
    return {
        "id": str(row["problem"]),
        "title": down.titles[problem.id],
        "facts": [(name, text) for name, text in facts.items() if text],
        "tables": [*_difference(row), *tables],
        "left": " ".join(
            filter(None, (_FASTER if _looks_faster(down.rows[place]) else "", down.left_out(place)))
        ),
    }


_FASTER = "A kernel above the oracle was timed once, which flatters the fastest, or is noisy."


def _looks_faster(rows: Sequence[KernelRow]) -> bool:
    """Returns whether a kernel stands above the oracle."""
    return any("oracle" in row.tags for row in rows[1:])


@functools.cache
def _explained(op: str) -> tuple[Mapping[str, str], Mapping[str, Mapping[float | None, str]]]:
    """Feature -> what it is, and feature -> code -> the word that it stands for, of every schema of an
    operation."""
    made = operation_named(op).features
    schemas = () if made is None else made().all
    meanings = {one.name: one.meaning for schema in reversed(schemas) for one in schema.features}
    coded = {name: codes for schema in reversed(schemas) for name, codes in schema.words.items()}
    return meanings, {
        name: {float(code): word for word, code in codes.items()}
        for name, codes in coded.items()
        if len(set(codes.values())) == len(codes)
    }


def _reason(reason: PickReason, scores: bool, op: str) -> Part:
    """Returns the leading features: name, value for the pick, for the oracle, what it adds to the prediction,
    and what it is. scores: the model's predictions are no times."""
    meanings, coded = _explained(op)
    rest = reason.advantage - sum(one.advantage for one in reason.features)
    rows = [
        (
            one.name,
            *(coded.get(one.name, {}).get(value, _value(value)) for value in (one.pick, one.other)),
            _share(one.advantage, scores),
            meanings.get(one.name, ""),
        )
        for one in reason.features
    ]
    if abs(rest) > 1e-9:
        rows.append(("all others", "", "", _share(rest, scores), ""))
    whole = _share(reason.advantage, scores).removeprefix("+")
    how = f"by a score {whole} higher" if scores else f"predicted {whole} faster"
    figures = numbers("pick", "oracle", "adds to the score" if scores else "adds")
    columns = [Column("feature"), *figures, Column("meaning", "note")]
    return f"Why the model ranks the pick above the oracle: {how}", _columns(columns), rows


def _share(share: float, scores: bool) -> str:
    """Returns an advantage of the pick: how much faster it makes the prediction, or the difference of
    scores."""
    return f"{share:+.3f}" if scores else f"{100.0 * np.expm1(np.clip(share, -20.0, 20.0)):+,.1f} %"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3g}"


def _difference(row: Mapping[str, Any]) -> list[Part]:
    """Returns the fields in which pick and oracle differ: name, the pick's value, the oracle's; none if there
    are none."""
    names = [row["pick_kernel"], row["oracle_kernel"]]
    if not all(isinstance(name, str) for name in names) or names[0] == names[1]:
        return []
    try:
        pick, oracle = (parse_kernel_name(name).as_row() for name in names)
    except KernelError:
        return []
    fields = [name for name in dict.fromkeys((*oracle, *pick)) if name != "kernel"]
    rows = [(name, _shown(pick.get(name)), _shown(oracle.get(name))) for name in fields]
    rows = [one for one in rows if one[1] != one[2]]
    columns = [Column("field"), *numbers("pick", "oracle")]
    return [("Fields in which they differ", _columns(columns), rows)] if rows else []


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else words.one_line(value, 60)


def _kernel_rows(
    rows: Sequence[Mapping[str, Any]], problem: Mapping[str, Any], has_intervals: bool
) -> list[KernelRow]:
    """Returns the rows of one problem. Times have four digits for its fastest kernel."""
    times = {row["kernel"]: 1e3 * row["latency_ms"] for row in rows if row["latency_ms"] > 0}
    digits = words.decimals(min(times.values())) if times else 2
    oracle_us = times.get(problem["oracle_kernel"])
    marked = (("oracle", problem["oracle_kernel"]), ("pick", problem["pick_kernel"]))
    found = []
    for row in rows:
        time_us = times.get(row["kernel"])
        detail = "" if row["status"] == "ok" else words.one_line(row["detail"], _DETAIL_CHARACTERS)
        notes = ["timed again" if row["remeasured"] else "", detail]
        texts = (
            "-" if time_us is None else f"{time_us:,.{digits}f}",
            *([_interval(row["interval"])] if has_intervals else []),
            f"{time_us / oracle_us:.3f}" if oracle_us and time_us else "-",
            f"{row['rank']:,}" if row["rank"] else "-",
            str(row["status"]),
        )
        tags = tuple(name for name, kernel in marked if kernel == row["kernel"])
        found.append(KernelRow(row["kernel_place"], tags, texts, "; ".join(filter(None, notes))))
    return found


def _interval(share: float) -> str:
    if math.isnan(share):
        return "-"
    return f"±{100 * share:.1f} %" if share >= 0.0005 else "<\N{NO-BREAK SPACE}0.1 %"


def _chosen(data: ReportData, selection: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Returns the chosen rows of data.final, by place of the problem and fastest first, and their kernels'
    names."""
    final = data.final
    # Chosen by numbers first: a table of all pairs would take most of the time.
    places = _places(final["problem"], {name: number for number, name in enumerate(selection["problem"])})
    codes, statuses = pd.factorize(final["status"])
    group = np.array([*(_GROUPS.get(name, 2) for name in statuses), 2])[codes]
    latency = final["latency_ms"].to_numpy(dtype=np.float64, na_value=np.nan)
    order = np.lexsort((np.where(np.isnan(latency), np.inf, latency), group, places))
    places, group = places[order], group[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (places[1:] != places[:-1]) | (group[1:] != group[:-1])
    nth = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    each = min(_MOST_EACH, max(_LEAST_EACH, MOST_ROWS // max(len(selection), 1)))
    kernels, names_of = pd.factorize(final["kernel"])
    number_of = {name: number for number, name in enumerate(names_of)}
    special = np.zeros(len(order), dtype=bool)
    for column in ("pick_kernel", "oracle_kernel"):
        special |= kernels[order] == _places(selection[column], number_of)[places]
    failures = min(_MOST_FAILURES, each)
    kept = special | ((group == 0) & (nth < each)) | ((group == 1) & (nth < failures))
    chosen = final.iloc[order[kept]].reset_index(drop=True)
    nothing = pd.Series(np.nan, index=chosen.index)
    table = pd.DataFrame({name: chosen.get(name, nothing) for name in _COLUMNS})
    table["interval"] = _intervals(table)
    table["latency_ms"] = table["latency_ms"].astype("float64")
    table["problem_place"] = places[kept]
    codes, names = pd.factorize(table["kernel"])
    table["kernel_place"] = codes
    table["rank"] = _ranks(data, table)
    return table, [str(name) for name in names]


_COLUMNS = (
    *("problem", "kernel", "status", "detail", "latency_ms", "precision", "spread", "samples"),
    "remeasured",
)
_GROUPS = {"ok": 0, "noisy": 0, "untimed": 0, "unsupported": 2} | dict.fromkeys(
    ("wrong", "flaky", "crash", "timeout", "build_error", "device_lost"), 1
)


def _ranks(data: ReportData, table: pd.DataFrame) -> _Ints:
    """Returns the rank of each row's kernel in the model's ranking, 0 where it was not ranked."""
    order = data.ranking_order
    if order is None or not len(order.rows):
        return np.zeros(len(table), dtype=np.int64)
    count = max(len(order.kernels), 1)
    keys = order.problem[order.rows] * count + order.kernel[order.rows]
    ranks = pd.Series(order.ranks, index=keys)
    problem = _places(table["problem"], {name: n for n, name in enumerate(order.problems)})
    kernel = _places(table["kernel"], {name: n for n, name in enumerate(order.kernels)})
    wanted = np.where((problem < 0) | (kernel < 0), -1, problem * count + kernel)
    return np.asarray(ranks.reindex(wanted).fillna(0), dtype=np.int64)


def _places(names: pd.Series, place: Mapping[str, int]) -> _Ints:
    return np.asarray(names.map(place).astype("float64").fillna(-1), dtype=np.int64)


def _intervals(rows: pd.DataFrame) -> pd.Series:
    """Half of the 95 % interval of the median / the median: as recorded, or else from quartiles and number of
    the samples (McGill, Tukey and Larsen, Variations of Box Plots, 1978)."""
    samples = rows["samples"].astype("float64")
    spread = rows["spread"].astype("float64")
    notch = _NOTCH * spread / np.sqrt(samples.where(samples >= _FEWEST_SAMPLES))
    return rows["precision"].astype("float64").fillna(notch)


def kernel_facts(final: pd.DataFrame, headings: Iterable[str]) -> dict[str, pd.Series]:
    """Heading -> kernel -> value, of the columns in which a kernel has one."""
    columns = {name: FACTS[name] for name in headings if FACTS[name] in final}
    columns = {name: column for name, column in columns.items() if final[column].notna().any()}
    if not columns:
        return {}
    first = final.groupby("kernel", observed=True)[list(columns.values())].first()
    return {heading: first[column] for heading, column in columns.items()}


def _fact(value: Any) -> str:
    if pd.isna(value):
        return "-"
    return words.one_line(value) if isinstance(value, str) else f"{value:,.0f}"
