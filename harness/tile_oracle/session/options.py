"""The command-line options of the plugin: registered, read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import HarnessError
from tile_oracle.session.outcome import ALLOWABLE, Outcome, read_allowed
from tile_oracle.session.shards import Shard, read_shard

if TYPE_CHECKING:
    import pytest

    from tile_oracle.session.kernels_option import GivenKernels
    from tile_oracle.vendor.libraries import Sources

_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_LONGEST_S = 365 * 24 * 3600.0
_LARGEST_SEED = 2**63 - 1
_MOST_SAMPLES = 10_000
_MOST_ALGORITHMS = 100_000
MOST_ALGORITHMS = 100
"""Algorithms of a library for a problem, unless --library-algorithms says otherwise."""
DEFAULT_KERNEL_SET = "default"
INTERVAL = "interval"
"""Also in tile_oracle.judge.criteria, which is too slow to import in every pytest run."""
SEQUENTIAL, EQUAL, AUTO_SAMPLING = "sequential", "equal", "auto"
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _declare(add: Callable[..., None]) -> None:
    """Declare every option, as for argparse."""
    add(
        "--problem-set",
        metavar="SETS",
        help="measure these problem sets: names that `tile-oracle problems` lists, or paths of your own "
        "files (CSV, MIOpenDriver command lines, tile_engine's .py), separated by commas. The "
        "plugin's own sweep runs, beside the tests that are named",
    )
    add(
        "--kernel-set",
        metavar="RULES",
        help="the candidates: default, full, full-tests, tiny, the path of a rule file; with --ck-tile also "
        "profiler and tests (default: default; in a replay what was recorded)",
    )
    add(
        "--kernel-filter",
        metavar="EXPR",
        help="keep only kernels for which this holds, e.g. \"tile_n >= 128 and pipeline == 'compv4'\"",
    )
    add(
        "--target",
        metavar="NAME",
        default="auto",
        help="where kernels run: gfx950, gfx942, gfx90a, sm_90, cpu, or auto: what there is (default); or "
        "replay: use the measurements of --oracle or of the oracle shipped with the model",
    )
    add(
        "--oracle",
        metavar="FILE",
        help="replay these records: a file of `tile-oracle import`, `oracle` or `merge`, or a run's folder; "
        "without --problem-set, all problems in it",
    )
    add(
        "--pairs",
        metavar="FILE",
        help="measure only the pairs of this CSV file (columns problem and kernel), such as `tile-oracle "
        "suggest --csv` writes",
    )
    add(
        "--shard",
        metavar="I/N",
        help="only part I of N of the problems, balanced by expected time, for array jobs; `tile-oracle "
        "merge` puts the runs together (docs/shards.md)",
    )
    add(
        "--fleet",
        metavar="ADDRESS",
        nargs="?",
        const="local",
        help="measure on all devices of a Ray cluster: its address, auto (the cluster that this machine "
        "belongs to), or local, which is meant without an address: a Ray of the session's own over this "
        "machine's GPUs, or its cores for --target cpu (docs/fleet.md)",
    )
    add(
        "--fleet-devices",
        metavar="N",
        type=int,
        help="with --fleet: use at most N devices (default: all)",
    )
    add(
        "--fleet-match",
        metavar="KIND",
        help="with --fleet: only devices of this kind, by their own name; * and ? match any text",
    )
    add(
        "--toolchain",
        metavar="NAME",
        default="auto",
        help="compiler: auto, zig, clang++, or a path; on cpu also g++, for AMD's GPUs rocm and hipcc, "
        "for sm_90 nvcc",
    )
    add(
        "--ck-tile",
        metavar="DIR",
        help="on AMD's GPUs: run CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm "
        "install; a checkout's configurations are --kernel-set profiler and --kernel-set tests",
    )
    add(
        "--kernel-source",
        metavar="NAME[=ARGUMENT]",
        help="run the kernels of a kernel source that is installed (--ck-tile DIR is ck_tile=DIR)",
    )
    add(
        "--kernels",
        metavar="SOURCES",
        default="",
        help="where the candidates come from, separated by commas: native (the kernels of --kernel-set, the "
        "default); kernels written in Triton: a Python file that declares them (tile_oracle.triton), a "
        "folder that `tile-oracle build --kernels` made, or triton for those that ship; a .json file of "
        "--kernel-set, such as a list of `tile-oracle portfolio`; a folder that `tile-oracle build` made of "
        "a kernel set (also native=FOLDER); and libraries whose "
        "algorithms are candidates: on sm_90 cublaslt (GEMM) and cudnn (convolution), on AMD's GPUs "
        "hipblaslt (GEMM), miopen (convolution); cudnn=PATH says where the library is",
    )
    add(
        "--library-algorithms",
        metavar="N",
        type=int,
        default=MOST_ALGORITHMS,
        help=f"at most N algorithms of a library for a problem: those of its own ranking, then others "
        f"(default: {MOST_ALGORITHMS})",
    )
    add("--isa", metavar="NAME", default="native", help="instruction set to compile for (default: native)")
    add(
        "--build-dir",
        metavar="DIR",
        help="where binaries are kept, or a folder that `tile-oracle build` made",
    )
    add("--build-jobs", metavar="N", type=int, help="compilers at once (default: cores - 1)")
    add(
        "--report-dir",
        metavar="DIR",
        help="where runs are kept (default: reports/ beside the pytest rootdir)",
    )
    add(
        "--report-json",
        metavar="FILE",
        help="write the session's outcome as JSON: exit status, outcomes, the verdict on each set",
    )
    add(
        "--run-name",
        metavar="NAME",
        help="name of the run's folder (default: from the sets, target and time)",
    )
    add(
        "--resume",
        action="store_true",
        help="continue the newest run with the same settings (or --run-name): "
        "recorded pairs are not measured again",
    )
    add(
        "--budget",
        metavar="TIME",
        help="stop cleanly after this time, e.g. 90s, 10m, 2h; --resume continues",
    )
    add(
        "--kernel-budget",
        metavar="TIME",
        default="20ms",
        help="time for the samples of one kernel on one problem (default: 20ms)",
    )
    add(
        "--kernel-timeout",
        metavar="TIME",
        help="limit for one kernel on one problem (default: from its flops)",
    )
    add(
        "--samples",
        metavar="N",
        type=int,
        help="take exactly N timed samples of a kernel (default: until the median is precise enough)",
    )
    add(
        "--sampling",
        metavar="HOW",
        default=AUTO_SAMPLING,
        help="sequential: a few samples for every kernel, more for those that may be among a problem's "
        "fastest; equal: the same plan for all; auto: sequential on GPUs, equal on cpu (default)",
    )
    add(
        "--cold-cache",
        action="store_true",
        help="flush the caches before each timed run; such records are never combined with others",
    )
    add("--data-seed", metavar="N", type=int, default=20260, help="seed of the input data (default: 20260)")
    add(
        "--model",
        metavar="MODEL",
        default="auto",
        help="the model to judge: a folder, a name under models/, a CSV file of picks, auto (for each kind "
        "of problem the best founded one that can rank the candidates, else vendor or out-of-fold), vendor "
        "(the choice of a library of --kernels), roofline (an analytic model of GEMM, without training), "
        "out-of-fold (predictions of a model cross-validated on this run's own records), or none",
    )
    add("--baseline-dir", metavar="DIR", help="where baselines are kept (default: models/)")
    add("--update-baseline", action="store_true", help="accept this run's efficiencies as the new baseline")
    add(
        "--allow",
        metavar="OUTCOMES",
        action="append",
        help="exit with status 0 for these outcomes, too, separated by commas: "
        + ", ".join(f"{outcome.option} (else {outcome.value})" for outcome in ALLOWABLE)
        + ". in-sample: problems that the model was trained on count in the verdict",
    )
    add(
        "--repick",
        action="store_true",
        help="without a trained model for the target: rank the kernels again (out-of-fold) instead of "
        "judging the baseline's picks; --update-baseline implies it",
    )
    add(
        "--abstain",
        action="store_true",
        help="pick nothing for problems outside of the model's training range, which count as not covered. "
        "Such sessions have their own baselines",
    )
    add(
        "--criteria",
        metavar="RULE",
        default=INTERVAL,
        help="interval: a criterion fails if its whole confidence interval is beyond the limit, and suspects "
        "are measured again first; published: compare plain values (default: interval)",
    )
    add(
        "--settle-budget",
        metavar="TIME",
        help="time at the end to measure suspects again, 0 for none (default: 60s, or 10 %% of the session "
        "if that is more)",
    )
    criteria = (
        ("mean", "0.5", "mean efficiency may be lower than the baseline's"),
        ("median", "0.5", "median efficiency may be lower than the baseline's"),
        ("p10", "2", "P10 efficiency may be lower than the baseline's"),
        ("problem", "10", "one problem's efficiency may be lower than the baseline's"),
        ("coverage", "0", "the share of covered problems may be lower than the baseline's"),
    )
    for name, default, meaning in criteria:
        add(
            f"--{name}-tolerance",
            metavar="POINTS",
            type=float,
            default=float(default),
            help=f"by how many points {meaning} (default: {default})",
        )


@cache
def declared_options() -> Mapping[str, Mapping[str, Any]]:
    """The options without their leading dashes, and the attributes that argparse takes."""
    found: dict[str, Mapping[str, Any]] = {}

    def add(name: str, **attributes: Any) -> None:
        found[name.removeprefix("--")] = attributes

    _declare(add)
    return found


def option_flags() -> dict[str, bool]:
    """The options without their leading dashes, and whether they are flags."""
    return {name: one.get("action") == "store_true" for name, one in declared_options().items()}


def option_value(config: pytest.Config, name: str) -> Any:
    """The value of an option of a session. name: with its leading dashes."""
    return config.getoption(f"tile_oracle_{name.removeprefix('--').replace('-', '_')}")


@dataclass(frozen=True)
class SessionOptions:
    """The options, read and converted: durations in seconds, paths as paths.

    problem_set: None with `oracle` alone, which is for the problems that are recorded there.
    """

    problem_set: str | None
    kernel_set: str
    kernel_set_asked: bool
    kernel_filter: str | None
    pairs: Path | None
    target: str
    oracle: Path | None
    toolchain: str
    isa: str
    build_dir: Path | None
    build_jobs: int | None
    report_dir: Path
    report_json: Path | None
    run_name: str | None
    resume: bool
    budget_s: float | None
    kernel_budget_s: float
    kernel_timeout_s: float | None
    samples: int | None
    sampling: str
    cold_cache: bool
    data_seed: int
    model: str
    models_dir: Path
    baseline_dir: Path
    ck_tile: Path | None
    kernel_source: str
    update_baseline: bool
    allowed: frozenset[Outcome]
    tolerances: dict[str, float]
    repick: bool = False
    abstain: bool = False
    rule: str = INTERVAL
    settle_budget_s: float | None = None
    kernels: str = ""
    more_sources: tuple[str, ...] = ()
    """Kernel sources besides `kernel_source`: NAME or NAME=ARGUMENT."""
    library_algorithms: int = MOST_ALGORITHMS
    shard: Shard | None = None
    fleet: str | None = None
    fleet_devices: int | None = None
    fleet_match: str = ""
    command: tuple[str, ...] = ()
    """The command line of the session, without `pytest`."""

    @property
    def sources(self) -> Sources:
        """What --kernels names. Raises BuildError."""
        from tile_oracle.vendor.libraries import read_sources

        return read_sources(self.kernels)

    @property
    def set_name(self) -> str:
        """The kernel set's name: of a list, its file's stem."""
        from tile_oracle.pool.rules import set_name

        return set_name(self.kernel_set)

    @property
    def pool_name(self) -> str:
        """The pool in words: the kernel set, kernels in Triton, libraries."""
        return self.pool_with(self.set_name)

    def pool_with(self, kernel_set: str) -> str:
        """`pool_name`, with another name for the kernel set."""
        sources = self.sources
        names = [kernel_set] if sources.native else []
        triton = (part.name or part.text for part in sources.triton)
        return "+".join((*names, *triton, *(library.name for library, _ in sources.libraries)))


def read_options(config: pytest.Config) -> SessionOptions:
    """Raises HarnessError for an invalid value."""
    value = partial(option_value, config)

    from tile_oracle.build.source_providers import kernel_source_option
    from tile_oracle.session.kernels_option import read_kernels

    def path(name: str) -> Path | None:
        given = value(name)
        # Paths on the command line are relative to the working directory, not to pytest's rootdir.
        return None if given is None else (config.invocation_params.dir / Path(str(given)).expanduser())

    here, root = config.invocation_params.dir, config.rootpath
    # pytest may derive its rootdir from an option's value, such as the folder of --build-dir: ignore it then.
    home = root if here.is_relative_to(root) else here
    kernel_budget = duration_s("--kernel-budget", value("--kernel-budget"))
    timeout, budget = value("--kernel-timeout"), value("--budget")
    given = read_kernels(value("--kernels"), here)
    kernel_set = _kernel_set(given, value("--kernel-set"))
    _check_numbers(config)
    return SessionOptions(
        problem_set=value("--problem-set"),
        kernel_set=kernel_set or given.name or DEFAULT_KERNEL_SET,
        kernel_set_asked=kernel_set is not None,
        kernel_filter=value("--kernel-filter"),
        pairs=path("--pairs"),
        target=value("--target"),
        oracle=path("--oracle"),
        toolchain=value("--toolchain"),
        isa=value("--isa"),
        build_dir=_build_dir(given, path("--build-dir")),
        build_jobs=value("--build-jobs"),
        report_dir=path("--report-dir") or home / "reports",
        report_json=path("--report-json"),
        run_name=value("--run-name"),
        resume=value("--resume"),
        budget_s=None if budget is None else duration_s("--budget", budget),
        kernel_budget_s=kernel_budget,
        kernel_timeout_s=None if timeout is None else duration_s("--kernel-timeout", timeout),
        samples=value("--samples"),
        sampling=value("--sampling"),
        cold_cache=value("--cold-cache"),
        data_seed=value("--data-seed"),
        model=value("--model"),
        models_dir=home / "models",
        baseline_dir=path("--baseline-dir") or home / "models",
        ck_tile=path("--ck-tile"),
        kernel_source=kernel_source_option(value("--kernel-source"), path("--ck-tile"), given.source or None),
        update_baseline=value("--update-baseline"),
        allowed=read_allowed(",".join(value("--allow") or ())),
        tolerances={
            f"{name}_points": _points(f"--{name}-tolerance", value(f"--{name}-tolerance"))
            for name in ("mean", "median", "p10", "problem", "coverage")
        },
        repick=value("--repick"),
        abstain=value("--abstain"),
        rule=value("--criteria"),
        settle_budget_s=_settle_budget(value("--settle-budget")),
        kernels=given.sources,
        more_sources=given.more,
        library_algorithms=value("--library-algorithms"),
        fleet=value("--fleet"),
        fleet_devices=value("--fleet-devices"),
        fleet_match=value("--fleet-match") or "",
        shard=None if value("--shard") is None else read_shard(value("--shard")),
        command=tuple(map(str, config.invocation_params.args)),
    )


def _check_numbers(config: pytest.Config) -> None:
    """Raises HarnessError for a number out of its range."""
    value = partial(option_value, config)
    seed, samples = value("--data-seed"), value("--samples")
    if not 0 <= seed <= _LARGEST_SEED:
        raise HarnessError(f"--data-seed {seed} is not from 0 to 2^63 - 1")
    if samples is not None and not 1 <= samples <= _MOST_SAMPLES:
        raise HarnessError(f"--samples {samples} is not from 1 to {_MOST_SAMPLES}")
    sampling = value("--sampling")
    if sampling not in (SEQUENTIAL, EQUAL, AUTO_SAMPLING):
        raise HarnessError(f"--sampling {sampling} is none of {SEQUENTIAL}, {EQUAL}, {AUTO_SAMPLING}")
    most, jobs = value("--library-algorithms"), value("--build-jobs")
    if not 1 <= most <= _MOST_ALGORITHMS:
        raise HarnessError(f"--library-algorithms {most} is not from 1 to {_MOST_ALGORITHMS:,}")
    devices = value("--fleet-devices")
    if devices is not None and devices < 1:
        raise HarnessError(f"--fleet-devices {devices}: at least one device must measure")
    if value("--fleet") is None and (devices is not None or value("--fleet-match")):
        raise HarnessError("--fleet-devices and --fleet-match are for sessions with --fleet")
    if value("--fleet") is not None and config.getoption("dist", "no") != "no":
        raise HarnessError("--fleet has workers of its own: leave -n out")
    if jobs is not None and jobs < 1:
        raise HarnessError(f"--build-jobs {jobs}: at least one compiler must run")


def _kernel_set(given: GivenKernels, asked: str | None) -> str | None:
    """The kernel set of --kernels or --kernel-set, or None. Raises HarnessError if they contradict."""
    if asked is not None and given.kernel_set is not None:
        raise HarnessError(f"--kernels {given.kernel_set} and --kernel-set {asked}: leave one out")
    if asked is not None and given.source:
        raise HarnessError("--kernel-set is for rule sets: with --kernels use --kernel-filter")
    return given.kernel_set or asked


def _build_dir(given: GivenKernels, asked: Path | None) -> Path | None:
    """The folder for the first source's binaries. Raises HarnessError for two of them."""
    if given.build_dir is not None and asked is not None and not given.source:
        raise HarnessError(f"--kernels native={given.build_dir} and --build-dir {asked}: leave one out")
    return given.build_dir or asked


def _settle_budget(given: str | None) -> float | None:
    if given is None or given.strip() in ("0", "0s", "0m"):
        return None if given is None else 0.0
    return duration_s("--settle-budget", given)


def _points(option: str, given: float) -> float:
    if not 0 <= given <= 100:
        raise HarnessError(f"{option} {given:g} is not a number of points from 0 to 100")
    return given


def duration_s(option: str, text: str) -> float:
    """Seconds of `20ms`, `90s`, `10m`, `2h` or a plain number. Raises HarnessError."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise HarnessError(f"{option} {text!r} is not a time: write 20ms, 90s, 10m or 2h")
    return seconds
