"""The options of a session: one table, from which pytest's options are registered and read.

`pytest --help`, [tool.tile-oracle] in pyproject.toml and docs/reference.md come from the table, too. An
option is a field of `SessionOptions`, of times with their unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import HarnessError
from tile_oracle.session.outcome import ALLOWABLE, Outcome, read_allowed
from tile_oracle.terminal.argument_table import argument_table

if TYPE_CHECKING:
    import pytest

    from tile_oracle.session.kernels_option import GivenKernels


_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def problems(self, times: Mapping[str, float]) -> frozenset[str]:
        """Returns the problems of this part. times: problem id -> expected time, of all problems.

        Longest processing time first (Graham, SIAM Journal on Applied Mathematics 17, 1969): each problem
        goes to the part with the least work so far. The result depends on nothing but the times, so that all
        N sessions divide alike, and every problem is in one part.
        """
        loads = [(0.0, number) for number in range(1, self.count + 1)]
        heapify(loads)
        own = set()
        for problem in sorted(times, key=lambda problem: (-times[problem], problem)):
            load, number = loads[0]
            if number == self.number:
                own.add(problem)
            heapreplace(loads, (load + times[problem], number))
        return frozenset(own)


def read_shard(text: str) -> Shard:
    """Returns the part of I/N. Raises HarnessError."""
    match = _FORM.fullmatch(text.strip())
    shard = Shard(int(match[1]), int(match[2])) if match is not None else None
    if shard is None or not 1 <= shard.number <= shard.count:
        raise HarnessError(f"--shard {text[:100]!r} is not a part such as 1/8, 2/8, ... 8/8")
    return shard


_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_LONGEST_S = 365 * 24 * 3600.0
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DEFAULT_KERNEL_SET = "default"
INTERVAL, PUBLISHED = "interval", "published"
"""Also in tile_oracle.judge.criteria, which is too slow to import in every pytest run."""
_LEAST_FACTOR, _MOST_FACTOR = 1.5, 1_000_000
"""Of --far-behind: below the least, noise could lose the oracle."""
SEQUENTIAL, EQUAL, AUTO_SAMPLING = "sequential", "equal", "auto"
LOCAL = "local"
"""Of --fleet: all devices of this machine."""

Read = Callable[[str, Any], Any]
"""Checks and converts an option's value. Takes the option's name, which a HarnessError names."""


# ---- reading values ---------------------------------------------------------------------------------


def duration_s(option: str, text: str) -> float:
    """Returns the seconds of `20ms`, `90s`, `10m`, `2h` or a plain number. Raises HarnessError."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise HarnessError(f"{option} {text!r} is not a time: write 20ms, 90s, 10m or 2h")
    return seconds


def _duration_or_0_s(option: str, text: str) -> float:
    return 0.0 if text.strip() in ("0", "0s", "0m") else duration_s(option, text)


def _from(least: int, most: int) -> Read:
    """Reads a number within limits."""

    def read(option: str, given: int) -> int:
        if not least <= given <= most:
            raise HarnessError(f"{option} {given} is not from {least} to {most:,}")
        return given

    return read


def _one_of(*known: str) -> Read:
    """Reads one of some words."""

    def read(option: str, given: str) -> str:
        if given not in known:
            raise HarnessError(f"{option} {given} is none of {', '.join(known)}")
        return given

    return read


def _read_factor(option: str, text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if factor and not _LEAST_FACTOR <= factor <= _MOST_FACTOR:
        raise HarnessError(
            f"{option} {text!r} is neither 0 nor a factor from {_LEAST_FACTOR} to {_MOST_FACTOR:,}"
        )
    return factor


def _points(option: str, given: float) -> float:
    if not 0 <= given <= 100:
        raise HarnessError(f"{option} {given:g} is not a number of points from 0 to 100")
    return given


def _several_models(option: str, text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    again = [name for name in names if names.count(name) > 1]
    if text and (not all(names) or again):
        wrong = f"names {again[0]} twice" if again and all(names) else "has an empty name"
        raise HarnessError(
            f"{option} {text!r} {wrong}: write model folders, picks.csv or pickers, with commas"
        )
    return ",".join(names)


# ---- the table --------------------------------------------------------------------------------------


_TABLE = """
What is measured:
--problem-set SETS  measure these problem sets: names that `tile-oracle problems` lists, or paths of your own
    files (CSV, MIOpenDriver command lines), separated by commas. The plugin's own sweep runs, beside the
    tests that are named
--kernel-set RULES  the candidates: default, full, full-tests, tiny, the path of a rule file; with --ck-tile
    also profiler and tests (default: default; in a replay what was recorded)
--kernel-filter EXPR  keep only kernels for which this holds, e.g. "tile_n >= 128 and pipeline == 'compv4'"
--target NAME=auto  where kernels run: gfx950, gfx942, gfx90a, sm_90, cpu, or auto: what there is (default);
    interpret: check kernels in Triton on small problems, without a GPU and without times; or replay: use the
    measurements of --oracle or of the oracle shipped with the model
--oracle FILE  replay these records: a file of `tile-oracle runs import` or `runs merge`, or a run's folder;
    without --problem-set, all problems in it
--pairs FILE  measure only the pairs of this CSV file (columns problem and kernel), such as `tile-oracle runs
    suggest --csv` writes
--shard I/N  only part I of N of the problems, balanced by expected time, for array jobs; `tile-oracle runs
    merge` puts them together (docs/fleet.md)
--fleet [ADDRESS=local]  measure on the devices of a Ray cluster, with -n N on N of them: its address, auto
    (the cluster that this machine belongs to), or local (default): as -n with all of this machine's GPUs, or
    its cores for --target cpu (docs/fleet.md)
--fleet-match KIND=  with --fleet=ADDRESS: only devices of this kind, by their own name, in which * and ?
    match any text (default: that of the first)
Kernels and builds:
--kernels SOURCES=  where the candidates come from, separated by commas: native (the kernels of --kernel-set,
    the default); ck_tile=DIR: the same, of CK Tile; triton: those that ship; a Python file that declares
    kernels in Triton; a folder of `tile-oracle build`; a .json list of `tile-oracle pool portfolio`; an
    installed kernel source, NAME or NAME=ARGUMENT; a library: on sm_90 cublaslt (GEMM), cudnn (convolution,
    attention) and torch (experts), on AMD's GPUs hipblaslt (GEMM) and miopen (convolution); cudnn=PATH says
    where it is
--library-algorithms N=100  at most N algorithms of a library for a problem: those of its own ranking, then
    others
--ck-tile DIR  on AMD's GPUs: run CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm
    install (--kernels ck_tile=DIR); a checkout's configurations are --kernel-set profiler and --kernel-set
    tests
--toolchain NAME=auto  compiler: auto, zig, clang++, or a path; on cpu also g++, for AMD's GPUs rocm and
    hipcc, for sm_90 nvcc
--isa NAME=native  instruction set to compile for
--build-dir DIR  where binaries are kept, or a folder that `tile-oracle build` made
--build-jobs N  compilers at once (default: cores - 1)
Runs:
--report-dir DIR  where runs are kept (default: reports/ beside the pytest rootdir)
--report-json FILE  write the session's outcome as JSON: exit status, outcomes, the verdict on each set
--run-name NAME  name of the run's folder (default: from the sets, target and time)
--resume  continue the newest run with the same settings (or --run-name): recorded pairs are not measured
    again
--budget TIME  stop cleanly after this time, e.g. 90s, 10m, 2h; --resume continues
--first N  measure first the N kernels of each problem that the pickers (else a model that fits, or the
    roofline) rank highest, and say how the picks stand among them; then the rest
How kernels are timed:
--kernel-budget TIME=20ms  time for the samples of one kernel on one problem
--kernel-timeout TIME  limit for one kernel on one problem (default: from its flops)
--samples N  take exactly N timed samples of a kernel (default: until the median is precise enough)
--sampling HOW=auto  sequential: a few samples for every kernel, more for those that may be among a problem's
    fastest; equal: the same plan for all; auto: sequential on GPUs, equal on cpu (default)
--far-behind FACTOR=3  with sequential sampling: a kernel whose first checked run takes this many times the
    best time of its problem has lost, and is neither checked nor timed further (default: 3; 0: every kernel
    is)
--cold-cache  flush the caches before each timed run; such records are never combined with others
--data-seed N=20260  seed of the input data
What is judged, and how:
--model MODEL=auto  the model to judge: a folder, a name under models/, a CSV file of picks, auto (for each
    kind of problem the one that fits best, else vendor or out-of-fold), vendor (the choice of a library of
    --kernels), roofline (an untrained model of GEMM), out-of-fold (predictions of a model
    cross-validated on this run's records), a picker of another maker (docs/pickers.md), or none
--models MODEL,...=  several pickers, each as for --model, judged on the same measurements and by its own
    baseline; the report is the first's, with all side by side
--baseline-dir DIR  where baselines are kept (default: models/)
--update-baseline  accept this run's efficiencies as the new baseline
--allow OUTCOMES*  exit with status 0 for these outcomes, too, separated by commas: {allowable}. in-sample:
    problems that the model was trained on count in the verdict
--repick  without a trained model for the target: rank the kernels again (out-of-fold) instead of judging the
    baseline's picks; --update-baseline implies it
--criteria RULE=interval  interval: a criterion fails if its whole confidence interval is beyond the limit,
    and suspects are measured again first; published: compare plain values
--settle-budget TIME  time at the end to measure suspects again, 0 for none (default: 60s, or 10 % of the
    session if that is more)
--mean-tolerance POINTS=0.5  by how many points mean efficiency may be lower than the baseline's
--median-tolerance POINTS=0.5  by how many points median efficiency may be lower than the baseline's
--p10-tolerance POINTS=2  by how many points P10 efficiency may be lower than the baseline's
--problem-tolerance POINTS=10  by how many points one problem's efficiency may be lower than the baseline's
--coverage-tolerance POINTS=0  by how many points the share of covered problems may be lower than the
    baseline's
"""
_READ: Mapping[str, Read] = {
    "TIME": duration_s,
    "POINTS": _points,
    "settle-budget": _duration_or_0_s,
    "shard": lambda option, text: read_shard(text),
    **dict.fromkeys(("library-algorithms", "build-jobs", "first"), _from(1, 100_000)),
    "samples": _from(1, 10_000),
    "data-seed": _from(0, 2**63 - 1),
    "sampling": _one_of(SEQUENTIAL, EQUAL, AUTO_SAMPLING),
    "criteria": _one_of(INTERVAL, PUBLISHED),
    "far-behind": _read_factor,
    "models": _several_models,
    "allow": lambda option, words: read_allowed(",".join(words)),
}
"""The word for a value, or an option -> how the value is checked and converted. Others are taken as they
are."""
_OPENING = ("problem-set", "oracle")
_RECORDED = (
    *("kernel-set", "kernel-filter", "target", "oracle", "pairs", "kernels", "kernel-budget", "samples"),
    *("sampling", "far-behind", "cold-cache", "data-seed", "model", "models", "update-baseline", "repick"),
)
"""The options whose values reports state: they decide on measurements and picks."""
OF_DEVICES = (
    *("fleet", "fleet-match", "library-algorithms", "toolchain", "isa", "build-dir", "build-jobs", "first"),
    *("kernel-budget", "kernel-timeout", "samples", "sampling", "far-behind", "cold-cache", "data-seed"),
    "settle-budget",
)
"""The options that only a session that measures reads."""


@dataclass(frozen=True)
class Option:
    """One option. name: without leading dashes. attributes: as argparse takes them. section: the heading in
    docs/reference.md."""

    name: str
    attributes: Mapping[str, Any]
    section: str

    @property
    def metavar(self) -> str:
        """The kind of value in `--help`; "" for a flag."""
        return str(self.attributes.get("metavar", ""))

    @property
    def help(self) -> str:
        """What it is for."""
        return str(self.attributes["help"].replace("%%", "%"))

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return not self.metavar

    @property
    def is_path(self) -> bool:
        """Whether relative paths are relative to the working directory, in pyproject.toml to its folder."""
        return self.metavar in ("FILE", "DIR")

    @property
    def opens(self) -> bool:
        """Whether the option makes a pytest run a session."""
        return self.name in _OPENING

    @property
    def field(self) -> str:
        """The field of SessionOptions."""
        return self.name.replace("-", "_") + "_s" * (self.metavar == "TIME")

    def read(self, value: Any, here: Path) -> Any:
        """Returns an option's value, checked and converted. here: the folder of relative paths. Raises
        HarnessError."""
        if value is None:
            return None
        if self.is_path:
            return here / Path(str(value)).expanduser()
        read = _READ.get(self.name) or _READ.get(self.metavar)
        return value if read is None else read(f"--{self.name}", value)


_ALLOWABLE = ", ".join(f"{outcome.option} (else {outcome.value})" for outcome in ALLOWABLE)
OPTIONS: Mapping[str, Option] = {
    one.names[0][2:]: Option(one.names[0][2:], one.attributes, one.heading)
    for one in argument_table(_TABLE.replace("{allowable}", _ALLOWABLE), {"N": int, "POINTS": float})
}
"""Name without leading dashes -> option."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options, read and converted: durations in seconds, paths as paths. The last fields are no options
    and follow from them."""

    problem_set: str | None
    kernel_set: str
    kernel_filter: str | None
    target: str
    oracle: Path | None
    pairs: Path | None
    shard: Shard | None
    fleet: str | None
    fleet_match: str
    kernels: GivenKernels
    library_algorithms: int
    ck_tile: Path | None
    toolchain: str
    isa: str
    build_dir: Path | None
    build_jobs: int | None
    report_dir: Path
    report_json: Path | None
    run_name: str | None
    resume: bool
    budget_s: float | None
    first: int | None
    kernel_budget_s: float
    kernel_timeout_s: float | None
    samples: int | None
    sampling: str
    far_behind: float
    cold_cache: bool
    data_seed: int
    model: str
    models: str
    baseline_dir: Path
    update_baseline: bool
    allow: frozenset[Outcome]
    repick: bool
    criteria: str
    settle_budget_s: float | None
    mean_tolerance: float
    median_tolerance: float
    p10_tolerance: float
    problem_tolerance: float
    coverage_tolerance: float

    kernel_set_asked: bool
    """Whether the kernel set was given."""
    models_dir: Path
    command: tuple[str, ...]
    """The command line of the session, without `pytest`."""

    @property
    def set_name(self) -> str:
        """The kernel set's name: of a list, its file's stem."""
        from tile_oracle.pool.rules import set_name

        return set_name(self.kernel_set)

    @property
    def pool_name(self) -> str:
        """The pool in words: the kernel set, kernels in Triton, libraries."""
        return self.kernels.named(self.set_name)

    @property
    def on_cluster(self) -> bool:
        """Whether the devices are those of a Ray cluster."""
        return self.fleet not in (None, LOCAL)

    def of_each_model(self) -> tuple[SessionOptions, ...]:
        """Returns the options of each picker that is judged, with its name as their model."""
        return tuple(replace(self, model=name) for name in self.models.split(",") if name) or (self,)

    @property
    def tolerances(self) -> dict[str, float]:
        """The limits of the criteria, as tile_oracle.judge.criteria.Criteria takes them."""
        names = ("mean", "median", "p10", "problem", "coverage")
        return {f"{name}_points": getattr(self, f"{name}_tolerance") for name in names}

    def recorded(self) -> dict[str, str]:
        """Returns the options that reports state, as they are given on a command line; flags as `yes`."""
        values = ((one, getattr(self, one.field)) for one in OPTIONS.values() if one.name in _RECORDED)
        given = ((one, value) for one, value in values if value not in (None, False) and str(value))
        return {f"--{one.name}": _written(one, value) for one, value in given}


def _written(one: Option, value: object) -> str:
    if isinstance(value, float):
        return f"{1000 * value:g}ms" if one.metavar == "TIME" else f"{value:g}"
    return "yes" if one.is_flag else str(value)


# ---- reading a session's options --------------------------------------------------------------------


def option_value(config: pytest.Config, name: str) -> Any:
    """Returns the value of an option of a session. name: with its leading dashes."""
    return config.getoption(f"tile_oracle_{name.removeprefix('--').replace('-', '_')}")


def read_options(config: pytest.Config) -> SessionOptions:
    """Raises HarnessError for an invalid value."""
    from tile_oracle.session.kernels_option import read_kernels

    # Paths on the command line are relative to the working directory, not to pytest's rootdir.
    here, root = config.invocation_params.dir, config.rootpath
    # pytest may derive its rootdir from an option's value, such as the folder of --build-dir: ignore it then.
    home = root if here.is_relative_to(root) else here
    found: dict[str, Any] = {}
    for name, one in OPTIONS.items():
        found[one.field] = one.read(option_value(config, name), here)
    if found["fleet_match"] and found["fleet"] in (None, LOCAL):
        raise HarnessError("--fleet-match is for sessions with --fleet=ADDRESS")
    if found["first"] is not None and (found["fleet"] is not None or config.getoption("dist", "no") != "no"):
        raise HarnessError("--first is for sessions of one process: leave -n and --fleet out")
    if found["models"]:
        if found["model"] != "auto":
            raise HarnessError(f"--model {found['model']} and --models {found['models']}: leave one out")
        found["model"] = found["models"].partition(",")[0]
    given = read_kernels(found["kernels"], here, found["ck_tile"])
    kernel_set = _kernel_set(given, found["kernel_set"])
    found |= {
        "kernel_set": kernel_set or given.pool_name or DEFAULT_KERNEL_SET,
        "kernels": given,
        "ck_tile": given.ck_tile,
        "report_dir": found["report_dir"] or home / "reports",
        "baseline_dir": found["baseline_dir"] or home / "models",
    }
    return SessionOptions(
        **found,
        kernel_set_asked=kernel_set is not None,
        models_dir=home / "models",
        command=tuple(map(str, config.invocation_params.args)),
    )


def _kernel_set(given: GivenKernels, asked: str | None) -> str | None:
    """Returns the kernel set of --kernels or --kernel-set, or None. Raises HarnessError if they
    contradict."""
    if asked is not None and given.kernel_set is not None:
        raise HarnessError(f"--kernels {given.kernel_set} and --kernel-set {asked}: leave one out")
    if asked is not None and given.pool_name:
        raise HarnessError("--kernel-set is for rule sets: with --kernels use --kernel-filter")
    return given.kernel_set or asked
