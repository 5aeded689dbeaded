"""Rows of other tools -> records: each is checked against its problem, kernel and stated figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tile_oracle.arch.time_bound import Limits, gpu_limits
from tile_oracle.errors import KernelError, ProblemError, RecordError
from tile_oracle.foreign.contract import REFUSED, UNDECLARED, UNITS_MS, Field, number_of, status_named
from tile_oracle.foreign.dialect import Dialect, fused_kernel, of_another
from tile_oracle.foreign.summary import Imported, ImportSummary
from tile_oracle.kernel import Kernel, parse_kernel_name, source_of
from tile_oracle.kernel.named import other_kernel
from tile_oracle.problem import Kind, Problem, kind_text, problem_from_id
from tile_oracle.record.schema import arrow_schema, kernel_columns, problem_columns
from tile_oracle.version import __version__

ZERO_SHARE_LIMIT = 0.02
"""A larger share of zeros in the output shows that the kernel did not write it."""
TOLERANCE = 0.01
"""How far stated TFLOPS may be from operations / latency, and two stated times from each other."""
BANDWIDTH_FACTOR = 4.0
"""How far a stated bandwidth may be from bytes / latency: programs count operands differently."""
UNKNOWN_DEVICE = {**dict.fromkeys(("bf16", "fp16", "fp8", "fp32"), 1e16), "fp4": 1e17}
"""Operations per second that no device reaches, for architectures whose peak is unknown."""
LEAST_MS, LEAST_GPU_MS = 1e-5, 5e-4
"""Shorter times than a call, or than the launch of an empty kernel on a GPU, milliseconds."""
SLOW_MS, SLOW_FLOPS = 10.0, 1e7
"""A run is too slow above this many milliseconds with fewer operations per second: a tenth of the slowest
that the project has recorded on one core of a CPU, a hundredth of the slowest on a GPU."""
SLOWEST_MS = 1e5
"""No run of one kernel takes longer, on any device, milliseconds."""
TOO_FAST = "faster than the device can be"
PENALTY_MS = 1e8
"""Tuners give times above this to configurations that failed."""

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
_UNSTATED = -(2.0**60)


class _Rows:
    """Rows of a file with their kernels, problems and statuses. kernel_of, problem_of: a row's index into
    `kernels` and `problems`, or -1. keep: rows that no check refused. detail: why a status is not ok."""

    def __init__(self, rows: pd.DataFrame, dialect: Dialect, summary: ImportSummary) -> None:
        self.rows, self.dialect, self.summary = rows.reset_index(drop=True), dialect, summary
        self.known = {
            str(name): field
            for name in rows
            if (field := dialect.fields.get(str(name).rstrip("~"))) is not None
        }
        summary.unknown.update(str(name).rstrip("~") for name in rows if name not in self.known)
        self._stated: dict[str, Mask] = {}
        self.keep = np.ones(len(rows), dtype=bool)
        self.status = np.full(len(rows), "ok", dtype=object)
        self.detail = np.full(len(rows), "", dtype=object)
        self.kernels, self.kernel_of = self._kernels()
        self.problems, self.problem_of = self._problems()

    # ---- columns ----------------------------------------------------------------------------

    def filling(self, name: str) -> list[str]:
        """Returns the file's columns that become a column of ours."""
        return [column for column, field in self.known.items() if field.fills == name]

    def stated(self, column: str) -> Mask:
        """Which rows have a value in a column."""
        if column not in self._stated:
            values = self.rows[column]
            is_number = pd.api.types.is_numeric_dtype(values.dtype)
            blank = False if is_number else values.astype(str).str.strip() == ""
            self._stated[column] = np.asarray(values.notna() & ~np.asarray(blank))
        return self._stated[column]

    def texts(self, name: str) -> pd.Series:
        """Returns a column of ours as text; "" where a row states nothing. Rows that state it twice must
        agree."""
        found = pd.Series("", index=self.rows.index, dtype=object)
        for column in self.filling(name):
            said = self.rows[column].where(self.stated(column), "").astype(str).str.strip()
            self.refuse(
                f"{name} is stated twice, differently", (found != "") & (said != "") & (found != said)
            )
            found = found.where(found != "", said)
        return found

    def numbers(self, name: str) -> Numbers:
        """Returns a column of ours in its unit: NaN for invalid numbers, _UNSTATED where a row has none."""
        found = np.full(len(self.rows), _UNSTATED)
        for column in self.filling(name):
            said = np.where(
                self.stated(column), _floats(self.rows[column]) * self.known[column].factor, _UNSTATED
            )
            self._agree(name, found, said)
            found = np.where(found == _UNSTATED, said, found)
        return found

    def _agree(self, name: str, one: Numbers, other: Numbers) -> None:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            differs = ~(np.abs(one / other - 1) <= TOLERANCE) & (one != other)
        self.refuse(
            f"{name} is stated twice, differently", (one != _UNSTATED) & (other != _UNSTATED) & differs
        )

    def latency_ms(self) -> Numbers:
        """Times in milliseconds. Those of fields that state no unit are in that of the row, else ms."""
        explicit, bare = self.numbers("latency_ms"), self.numbers("latency")
        unit = self.texts("unit").str.lower()
        factor = unit.map({"": 1.0, **UNITS_MS})
        self.refuse("the unit of time is unknown", factor.isna().to_numpy())
        self.refuse(
            "the unit contradicts the time's name", (bare == _UNSTATED) & ~factor.isin([1.0]).to_numpy()
        )
        bare = np.where(bare == _UNSTATED, bare, bare * factor.to_numpy(dtype=np.float64))
        self._agree("latency_ms", explicit, bare)
        return np.where(explicit == _UNSTATED, bare, explicit)

    # ---- verdicts ---------------------------------------------------------------------------

    def refuse(self, reason: str, bad: Any, column: str = "", error: str = "") -> None:
        """Takes rows out, and counts them under their first reason. column: the one to show first. error:
        what to show in place of the columns."""
        mask = np.asarray(bad, dtype=bool) & self.keep
        if mask.any():
            self.summary.refuse(reason, self._shown(mask, column, error), int(mask.sum()))
            self.keep[mask] = False

    def becomes(self, status: str, reason: str, bad: Any, column: str = "") -> None:
        """Gives rows that are still ok another status."""
        mask = np.asarray(bad, dtype=bool) & self.keep & (self.status == "ok")
        if mask.any():
            self.summary.refuse(f"{status}: {reason}", self._shown(mask, column), int(mask.sum()), kept=True)
            self.status[mask] = status
            self.detail[mask] = np.where(self.detail[mask] == "", reason, self.detail[mask])

    def _shown(self, mask: Mask, column: str, error: str = "") -> str:
        place = int(np.argmax(mask))
        names = dict.fromkeys([*([column] if column else []), *map(str, self.rows)])
        said = [
            f"{name.rstrip('~')}={self.rows[name].iloc[place]}" for name in names if self.stated(name)[place]
        ]
        return f"row {place + 1}: " + (error or ", ".join(said))

    def judge(self, arch: str) -> None:
        """Compares every field with what its row must be."""
        for name in map(str, self.rows):
            says = () if pd.api.types.is_numeric_dtype(self.rows[name]) else UNDECLARED
            for field in (self.known[name],) if name in self.known else says:
                if field.holds is None:
                    continue
                bad = self._denied(name, field, arch)
                reason = f"{name.rstrip('~')} {field.why}"
                if field.status == REFUSED:
                    self.refuse(reason, bad, name)
                else:
                    self.becomes(field.status, reason, bad, name)

    def _denied(self, column: str, field: Field, arch: str) -> Mask:
        asked = np.flatnonzero(self.keep & self.stated(column))
        about = {"problem": self.problem_of, "kernel": self.kernel_of}.get(field.of, np.zeros(len(self.keep)))
        named: Mapping[str, Sequence[Any]] = {"problem": self.problems, "kernel": self.kernels}
        subjects = named.get(field.of, [arch])
        said = self.rows[column].iloc[asked].astype(str).str.strip().str.lower().to_numpy()
        bad: list[int] = []
        alike = pd.DataFrame({"text": said, "of": about[asked]}).groupby(["text", "of"]).indices
        for (text, one), places in cast("Mapping[tuple[str, float], Any]", alike).items():
            if field.holds is not None and not field.holds(text, subjects[int(one)]):
                bad.extend(asked[places])
        return self._at(bad)

    def _at(self, places: Sequence[int] | npt.NDArray[np.int64]) -> Mask:
        return np.isin(np.arange(len(self.rows)), places)

    # ---- kernels and problems ---------------------------------------------------------------

    def _kernels(self) -> tuple[list[Kernel], npt.NDArray[np.int64]]:
        codes, found = pd.factorize(self.texts("kernel"))
        place = np.full(len(found), -1, dtype=np.int64)
        counts = np.bincount(codes, minlength=len(found))
        places: dict[Kernel, int] = {}
        for index, name in enumerate(found):
            try:
                named: Kernel | None = fused_kernel(str(name))
                if named is None and not source_of(name) and (what := other_kernel(str(name))):
                    self.refuse(f"kernel of another operation: {what}", codes == index)
                    continue
                named = named or parse_kernel_name(str(name))
            except KernelError as error:
                self.refuse("kernel name cannot be read", codes == index, error=str(error))
                continue
            if named.op != self.dialect.op:
                self.refuse(of_another(named.op), codes == index)
                continue
            meant = self.dialect.meant(named)
            place[index] = places.setdefault(meant, len(places))
            self.summary.padded += int(counts[index]) if meant != named else 0
        return list(places), place[codes]

    def _problems(self) -> tuple[list[Problem], npt.NDArray[np.int64]]:
        """Returns the distinct problems, and each row's index into them (-1 if it has no valid one)."""
        names = self.dialect.numbers
        kinds = sorted({one.kind for one in self.kernels})
        of_kernel = np.array([kinds.index(one.kind) for one in self.kernels] or [0], dtype=np.int64)
        stated = pd.DataFrame({"kind": of_kernel[self.kernel_of], "id": self.texts("problem")})
        stated = stated.assign(**{name: self.numbers(name) for name in names})
        problems: list[Problem] = []
        place = np.full(len(stated), -1, dtype=np.int64)
        named = np.flatnonzero(self.kernel_of >= 0)
        alike = stated.iloc[named].groupby(list(stated), dropna=False, sort=False).indices
        for key, found in cast("Mapping[tuple[Any, ...], Any]", alike).items():
            rows = named[found]
            sizes = {name: float(v) for name, v in zip(names, key[2:], strict=True) if v != _UNSTATED}
            if any(size != np.floor(size) or abs(size) > 2**40 for size in sizes.values()):
                self.refuse("a dimension is not an integer", self._at(rows))
                continue
            try:
                whole = {name: int(size) for name, size in sizes.items()}
                problem = self._problem(kinds[int(key[0])], str(key[1]), whole)
            except ProblemError as error:
                self.refuse("dimensions cannot be right", self._at(rows), error=str(error))
            else:
                problems.append(problem)
                place[rows] = len(problems) - 1
        return problems, place

    def _problem(self, kind: Kind, named: str, sizes: Mapping[str, int]) -> Problem:
        """Returns the problem that an id or its sizes state. Raises ProblemError."""
        if not named:
            return self.dialect.problem(kind, sizes)
        problem = problem_from_id(named)
        if problem.kind != kind:
            raise ProblemError(f"{named} is not a problem for kernels of {kind_text(kind)}")
        for name, size in sizes.items():
            if getattr(problem, name) != size:
                raise ProblemError(f"{name} = {size}, but the problem is {named}")
        return problem

    def of_problem(self, value: Callable[[Problem], float]) -> Numbers:
        """Returns a number of each row's problem; NaN without one."""
        values = np.array([*(value(one) for one in self.problems), np.nan], dtype=np.float64)
        return np.asarray(values[self.problem_of])


def least_ms_on(arch: str) -> Callable[[Problem], float]:
    """Returns the time of a problem that no run on an architecture falls below, milliseconds."""
    known = gpu_limits(arch, 0)
    limits, call_ms = (known, LEAST_GPU_MS) if known.flops_per_s else (Limits(UNKNOWN_DEVICE), LEAST_MS)
    return lambda problem: max(limits.least_ms(problem), call_ms)


def _check_statuses(read: _Rows) -> None:
    said = read.texts("status")
    ours = said.map({text: status_named(text) for text in said.unique()}).where(said != "", "ok")
    read.refuse("the status is unknown", ours == "")
    for status in sorted(set(ours) - {"", "ok"}):
        read.becomes(status, "so the file says", ours == status)


def _check_devices(read: _Rows, source: str, device: str | None) -> None:
    """Raises RecordError for rows of several devices of which none was chosen."""
    said = pd.Series("", index=read.rows.index, dtype=object)
    for column in read.filling("device"):
        text = read.rows[column].where(read.stated(column), "").astype(str).str.strip()
        said = (said + " " + text).str.strip()
    found = sorted(said[(said != "") & read.keep].unique())
    if device == "all" or (device is None and len(found) < 2):
        return
    if device is None:
        raise RecordError(
            f"{source} has rows of several devices, {', '.join(map(str, found[:8]))}: choose one by "
            "--device NAME, or --device all if they are of one model"
        )
    read.refuse(f"of another device than {device}", said != device)


def _check_times(read: _Rows, latency: Numbers, arch: str) -> None:
    read.becomes(
        "crash",
        "a penalty in the place of a time: the configuration failed",
        (latency >= PENALTY_MS) & np.isfinite(latency),
    )
    ok = read.status == "ok"
    read.refuse("latency is not a positive number", ok & ~(np.isfinite(latency) & (latency > 0)))
    read.refuse(TOO_FAST, ok & (latency < read.of_problem(least_ms_on(arch))))
    slow = read.of_problem(lambda one: float(np.clip(one.flops / SLOW_FLOPS * 1e3, SLOW_MS, SLOWEST_MS)))
    read.refuse("slower than any run of one kernel", ok & (latency > slow))


def _check_figures(read: _Rows, latency: Numbers, tflops: Numbers) -> None:
    ok = read.status == "ok"
    stated, gb_per_s = read.numbers("tflops"), read.numbers("gb_per_s")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        agrees = np.abs(stated / tflops - 1) <= TOLERANCE
        share = gb_per_s / (read.of_problem(lambda one: float(one.bytes)) / (latency * 1e6))
    read.refuse("tflops contradicts latency and problem", ok & ~agrees & (stated != _UNSTATED))
    near = (share >= 1 / BANDWIDTH_FACTOR) & (share <= BANDWIDTH_FACTOR)
    read.refuse("bandwidth contradicts latency and problem", ok & ~near & (gb_per_s != _UNSTATED))
    fastest, slowest = read.numbers("latency_min_ms"), read.numbers("latency_max_ms")
    outside = (fastest != _UNSTATED) & ~(fastest <= latency * (1 + TOLERANCE))
    outside |= (slowest != _UNSTATED) & ~(slowest >= latency * (1 - TOLERANCE))
    read.refuse("latency is outside its own samples", ok & outside)
    for name, least in (("spread", 0.0), ("samples", 1.0), ("latency_min_ms", 0.0), ("non_zero", 0.0)):
        values = read.numbers(name)
        bad = (values != _UNSTATED) & (~(values >= least) | np.isinf(values))
        read.refuse(f"{name} is no such number", ok & bad)


def converted(
    rows: pd.DataFrame,
    dialect: Dialect,
    run: str,
    arch: str,
    trust: bool,
    summary: ImportSummary,
    device: str | None = None,
) -> Imported:
    """Rows with the file's names as records. trust: rows whose output was not written stay ok. device: the
    one whose rows are taken. Raises RecordError if no row is usable, or for rows of several devices."""
    summary.rows = len(rows) + summary.refused.total()
    read = _Rows(rows, dialect, summary)
    _check_statuses(read)
    read.judge(arch)
    _check_devices(read, summary.source, device)
    latency = read.latency_ms()
    _check_times(read, latency, arch)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tflops = read.of_problem(lambda one: float(one.flops)) / (latency * 1e9)
        _check_figures(read, latency, tflops)
        outputs = read.of_problem(lambda one: float(math.prod(one.operand_shapes[-1])))
        zero_share = 1 - _known(read.numbers("non_zero")) / outputs
    read.refuse("non_zero is more than the output holds", zero_share < 0)
    unwritten = np.nan_to_num(zero_share, nan=0.0) > ZERO_SHARE_LIMIT
    summary.trusted = int((unwritten & read.keep & (read.status == "ok")).sum()) if trust else 0
    percent = np.char.add(np.char.mod("%.1f", 100 * np.nan_to_num(zero_share)), " % of the output is zero")
    read.detail[unwritten] = percent[unwritten]
    if not trust:
        read.becomes("wrong", "output left unwritten", unwritten)
    twice = pd.DataFrame(
        {"p": read.problem_of, "k": read.kernel_of, "t": latency, "z": zero_share, "s": read.status}
    ).assign(keep=read.keep)
    read.refuse("the same row twice", twice.duplicated().to_numpy() & (read.status == "ok"))
    keep = read.keep
    if not keep.any():
        raise RecordError(f"{summary.source} holds no usable row; {summary.first}")
    records, summary.repeats = _records(read, latency, tflops, run, arch)
    status = read.status[keep]
    summary.ok, summary.wrong = (int((status == one).sum()) for one in ("ok", "wrong"))
    return Imported(records, summary)


def _records(read: _Rows, latency: Numbers, tflops: Numbers, run: str, arch: str) -> tuple[pd.DataFrame, int]:
    """Returns the records of the kept rows, and how many repeat a pair."""
    keep, op = read.keep, read.dialect.op
    p, k, ok = read.problem_of[keep], read.kernel_of[keep], read.status[keep] == "ok"
    repeat = pd.DataFrame({"p": p, "k": k}).groupby(["p", "k"]).cumcount().to_numpy()
    problems = pd.DataFrame([{**one.as_row(), "problem": one.id} for one in read.problems], dtype=object)
    kernels = pd.DataFrame([{**one.as_row(), "kernel": one.name} for one in read.kernels], dtype=object)
    columns = problems.reindex(columns=[*problem_columns(op), "problem"]).iloc[p].to_dict("series")
    columns |= kernels.reindex(columns=[*kernel_columns(op), "kernel"]).iloc[k].to_dict("series")
    table: dict[str, Any] = {str(name): values.to_numpy() for name, values in columns.items()}
    again = np.char.add(f"{run}-repeat", (repeat + 1).astype(str))
    table["run"] = np.where(repeat == 0, run, again).astype(object)
    said = read.texts("detail").to_numpy()
    table["status"] = read.status[keep]
    table["detail"] = np.where(said == "", read.detail, said)[keep]
    table["latency_ms"] = np.where(ok, latency[keep], np.nan)
    table["tflops"] = np.where(ok, tflops[keep], np.nan)
    for name in ("latency_min_ms", "spread", "samples"):
        if read.filling(name):
            values = np.where(ok, _known(read.numbers(name))[keep], np.nan)
            table[name] = pd.Series(values).astype("Int64") if name == "samples" else values
    if "latency_min_ms" in table:  # a mean of samples that differ in their last digits
        table["latency_min_ms"] = np.fmin(table["latency_min_ms"], table["latency_ms"])
    if read.filling("cache"):
        table["cache"] = read.texts("cache")[keep].replace("", None).to_numpy()
    if read.filling("ended"):
        ended = read.texts("ended")[keep].replace("", None)
        table["time"] = pd.to_datetime(ended, utc=True, errors="coerce", format="mixed").to_numpy()
    constants = {
        "op": op, "round": 0, "check": "none", "check_points": 0,
        **dict.fromkeys(("target", "arch", "device"), arch),
        "harness_version": __version__, "toolchain": f"imported from {read.summary.source}",
    }  # fmt: skip
    schema = arrow_schema(op)
    frame = pd.DataFrame(table).assign(**constants)
    frame = frame.assign(**{name: None for name in schema.names if name not in frame})
    typed = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    return typed.to_pandas(), int((repeat > 0).sum())


def _floats(values: pd.Series) -> Numbers:
    try:
        return np.asarray(pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64))
    except (OverflowError, ValueError, TypeError):  # one of the numbers fits no column type
        return np.array([number_of(one) for one in values], dtype=np.float64)


def _known(values: Numbers) -> Numbers:
    return np.where(values == _UNSTATED, np.nan, values)
