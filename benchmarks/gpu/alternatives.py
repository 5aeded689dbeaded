"""What people would use instead of our pick, on one GPU in one run.

    python -m benchmarks.gpu.alternatives OUT --set gemm_validation_286 --count 40 --kernels triton,cublaslt
    python -m benchmarks.gpu.alternatives OUT --set forward_unseen_300 --count 40 --kernels native

A seeded sample of a problem set. A session measures our kernels and picks, Inductor tunes meanwhile (both
take turns on the GPU), and then all race on the same operands (race.py): the shipped model's pick, the best
of the session's leaders, PyTorch's own choice with and without cudnn.benchmark, what Inductor's max-autotune
made, and nvMatmulHeuristics' first choice if that is installed. OUT/NAME.md has the table, OUT/NAME.csv all
times.
`--target cpu` is a dry run: sessions' times for our kernels, single runs for PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gpu.cudnn import time_cpu
from benchmarks.gpu.figures import geometric_mean
from benchmarks.gpu.pytorch import Operation, operation, random_operands, tuned
from benchmarks.gpu.race import Capture, Track
from benchmarks.gpu.setting import Session, Setting, environment, run_session, write_problems
from tile_oracle.api import kernels, pick
from tile_oracle.commands.evaluate import picker_for, rank_recorded
from tile_oracle.compiling.kernel_source import NATIVE
from tile_oracle.device.gpu_data import GpuData
from tile_oracle.device.gpu_timer import Timed
from tile_oracle.errors import BuildError, HarnessError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.libraries.algorithms import Algorithms
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.libraries.offers import load_offers, offers_file
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool.named_kernels import named_kernels_json
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.record.final import final_measurements
from tile_oracle.targets.base import TargetOptions
from tile_oracle.targets.resolve import open_target
from tile_oracle.targets.target import Target

PICK, BEST, EAGER, SEARCH, INDUCTOR, HEURISTIC = (
    "our pick",
    "the best of our pool",
    "PyTorch",
    "PyTorch, cudnn.benchmark",
    "Inductor, max-autotune",
    "nvMatmulHeuristics",
)
OTHERS = ("agrees", "failed", "race_s")
"""Columns that are no times."""
LEADERS = 4
"""Kernels of a session that race: the fastest there, one of which is the best."""
CORES_A_TUNER = 3
ALLOWED = "no-baseline,cannot-tell,incomplete,in-sample,nothing-judged"
RACE_S, SESSION_SHARE, MORE_SHARE = 7.0, 0.8, 0.3
"""Seconds of a problem's race, most of which Inductor compiles; the sessions' share of what the races leave,
and that of the second one."""


@dataclass(frozen=True)
class Asked:
    """The command line. alone: problems that Inductor tunes before anything else runs, for its seconds.
    seconds: in all; the race ends then. more: kernels of our pool that the model does not rank."""

    name: str
    problems: tuple[Problem, ...]
    file: Path
    setting: Setting
    kernels: str
    more: str
    alone: int
    seconds: float
    session: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.monotonic() - self.began)

    @property
    def before_the_race(self) -> float:
        """Seconds."""
        return max(1.0, self.left - RACE_S * len(self.problems))


def sample(names: str, count: int, seed: int) -> tuple[Problem, ...]:
    """Returns problems in a random order, of which any count begins alike; of convolutions those in 2D."""
    problems = list(load_problem_sets(names).problems)
    random.Random(seed).shuffle(problems)
    return tuple(one for one in problems if not isinstance(one, GroupedConvProblem) or one.ndim == 2)[:count]


def tune_alone(asked: Asked, torch: Any, device: str) -> dict[str, float]:
    """Returns Inductor's seconds for the first problems, with all cores and the GPU for itself; none of the
    first call, which starts its compilers."""
    tuned(torch, asked.problems[-1], random_operands(torch, asked.problems[-1], device))
    found = {}
    for problem in asked.problems[: asked.alone]:
        found[problem.id] = tuned(torch, problem, random_operands(torch, problem, device))[1]
        print(f"alone: {problem.id} {found[problem.id]:.1f} s", flush=True)
    return found


def tuners_and_threads() -> tuple[int, int]:
    """Returns how many processes tune, and how many threads compile for each."""
    cores = len(os.sched_getaffinity(0))
    tuners = max(1, cores // CORES_A_TUNER)
    return tuners, max(1, cores // tuners)


def start_tuners(asked: Asked, device: str) -> tuple[list[subprocess.Popen[bytes]], Path]:
    """Starts the processes that tune all problems, each with some cores."""
    parts, threads = tuners_and_threads()
    output = asked.setting.out / f"{asked.name}-tuned.jsonl"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu.pytorch", str(asked.file), str(output)]
    log = (asked.setting.out / f"{asked.name}-tuners.log").open("wb")
    started = [
        subprocess.Popen(
            [*command, device, str(part), str(parts)],
            env=environment() | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        for part in range(parts)
    ]
    return started, output


def end_tuners(tuners: Sequence[subprocess.Popen[bytes]], output: Path, seconds: float) -> pd.DataFrame:
    """Returns what was tuned in time."""
    until = time.monotonic() + seconds
    for one in tuners:
        try:
            one.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    lines = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    return pd.DataFrame(lines, columns=["problem", "pid", "seconds", "failed"]).set_index("problem")


def narrowed(asked: Asked, most: int) -> Asked:
    """Returns the same with the kernels that the shipped model ranks among its first `most` on any of the
    problems, which are compiled before anything else runs."""
    arch, names = asked.setting.target, set[str]()
    for problem in asked.problems:
        names |= {kernel.name for kernel, _ in pick(problem, arch, kernels=kernels(problem, arch))[:most]}
    listed = asked.setting.out / f"{asked.name}-kernels.json"
    listed.write_text(named_kernels_json(sorted(names), [arch], "benchmarks/gpu/alternatives.py"))
    built = asked.setting.out / f"{asked.name}-built"
    command = [sys.executable, "-m", "tile_oracle", "build", "-o", str(built), "--arch", arch]
    subprocess.run([*command, "--kernels", str(listed)], env=environment(), check=False)
    print(f"{len(names)} kernels, {asked.left:.0f} s are left", flush=True)
    return replace(asked, kernels=str(listed))


def measured(asked: Asked, name: str, kernels: str, model: str, share: float) -> Session:
    """Returns a session over the problems. share: of the seconds that the races leave."""
    options = [f"--kernels={kernels}", f"--model={model}", "--settle-budget=0", *asked.session]
    options += [f"--allow={ALLOWED}", f"--budget={share * asked.before_the_race:.0f}s"]
    return run_session(asked.setting, name, asked.file, *options)


def ours(asked: Asked) -> tuple[pd.DataFrame, Path, dict[str, dict[str, str]]]:
    """Measures our kernels. Returns the records, the run's folder, and for each problem the names of the
    kernels that race, by what they are."""
    run = measured(asked, asked.name, asked.kernels, "auto", SESSION_SHARE - MORE_SHARE * bool(asked.more))
    records = run.records
    if asked.more:
        try:
            more = measured(asked, f"{asked.name}-more", asked.more, "none", SESSION_SHARE)
            records = pd.concat([records, more.records], ignore_index=True)
        except AssertionError as error:
            print(f"without {asked.more}: {error}", flush=True)
    final = final_measurements(records)
    final = final[final["status"].isin(("ok", "noisy"))].sort_values("latency_ms")
    chosen: dict[str, dict[str, str]] = {
        problem: {f"leader {place}": kernel for place, kernel in enumerate(rows["kernel"].head(LEADERS))}
        for problem, rows in final.groupby("problem")
    }
    selection = pd.read_parquet(run.folder / "selection.parquet").dropna(subset=["pick_kernel"])
    for problem, kernel in zip(selection["problem"], selection["pick_kernel"], strict=True):
        chosen.setdefault(problem, {})[PICK] = kernel
    for problem, kernel in heuristic_picks(records).items():
        chosen.setdefault(problem, {})[HEURISTIC] = kernel
    return records, run.folder, chosen


def heuristic_picks(records: pd.DataFrame) -> dict[str, str]:
    """Returns nvMatmulHeuristics' first choices as kernels of the pool; none, with the reason, without it."""
    try:
        ranked = rank_recorded(picker_for("nvmatmul", records), records)[0]
    except HarnessError as error:
        print(f"without {HEURISTIC}: {error}", flush=True)
        return {}
    first = ranked.sort_values("predicted_tflops", ascending=False).drop_duplicates("problem")
    return dict(zip(first["problem"], first["kernel"], strict=True))


def functions(
    torch: Any, problem: Problem, operands: tuple[Any, Any], compile_it: bool
) -> dict[str, Callable[[], Operation]]:
    """Returns what PyTorch has for a problem: by what it is, what makes the function."""
    found: dict[str, Callable[[], Operation]] = {EAGER: lambda: operation(torch, problem)}
    if isinstance(problem, GroupedConvProblem):
        found[SEARCH] = found[EAGER]
    if compile_it:
        found[INDUCTOR] = lambda: tuned(torch, problem, operands)[0]
    return found


def captures(
    track: Track, target: Target, torch: Any, data: GpuData, kernels: Mapping[str, str], compile_it: bool
) -> Iterator[tuple[str, Callable[[], Capture]]]:
    """Yields each contender of a problem, and what makes its capture."""

    def kernel(name: str) -> Capture:
        built = target.build(parse_kernel_name(name)).result()
        if built.binary is None:
            raise BuildError(built.log)
        return track.kernel(data, built.binary.path)

    def function(name: str, make: Callable[[], Operation]) -> Capture:
        run, operands = make(), track.operands(data)
        return track.function(lambda: run(*operands), search=name == SEARCH)

    for name, full in kernels.items():
        yield name, partial(kernel, full)
    for name, make in functions(torch, data.problem, track.operands(data), compile_it).items():
        yield name, partial(function, name, make)


def race_on_gpu(
    asked: Asked, torch: Any, folder: Path, chosen: Mapping[str, Mapping[str, str]], known: frozenset[str]
) -> Iterator[dict[str, Any]]:
    """Yields a row of milliseconds a problem, until the time is over. known: what Inductor has tuned."""
    words = [one for one in f"{asked.kernels},{asked.more}".split(",") if one and one not in LIBRARIES]
    words = [NATIVE if one.endswith(".json") else one for one in words]
    options = TargetOptions(sources=tuple(words), build_dir=asked.setting.kernels)
    target = open_target(asked.setting.target, options)
    offered = (offers_file(folder, name) for name in LIBRARIES)
    target.sources += [Algorithms(load_offers(one), target.arch) for one in offered if one.is_file()]
    track = Track(torch, Path(target.device_options()["work"]))
    for problem in asked.problems:
        if asked.left <= 0:
            break
        began, row = asked.left, {"problem": problem.id}
        try:
            row |= one_race(track, target, torch, problem, chosen.get(problem.id, {}), problem.id in known)
        except Exception as error:  # of a driver or of memory: other problems may go
            row["failed"] = f"{type(error).__name__}: {error}"[:400]
        yield row | {"race_s": round(began - asked.left, 2)}
    target.close()


def one_race(
    track: Track, target: Target, torch: Any, problem: Problem, kernels: Mapping[str, str], compile_it: bool
) -> dict[str, Any]:
    """Returns the milliseconds of a problem's contenders, whether PyTorch agrees, and who failed."""
    data = track.open(problem)
    ready: dict[str, Timed] = {}
    failed: list[str] = []
    for name, capture in captures(track, target, torch, data, kernels, compile_it):
        try:
            ready[name] = track.ready(capture())
        except Exception as error:  # of PyTorch's compilers or of a driver: the others race without it
            failed.append(f"{name}: {type(error).__name__}: {error}"[:400])
    row: dict[str, Any] = dict(track.race(ready))
    try:
        row["agrees"] = track.agrees(data, operation(torch, problem))
    except Exception as error:  # such as memory: the times stand
        failed.append(f"the check: {type(error).__name__}: {error}"[:400])
    track.close(data, ready)
    return row | {"failed": "; ".join(failed)}


def single_runs(
    asked: Asked,
    torch: Any,
    records: pd.DataFrame,
    chosen: Mapping[str, Mapping[str, str]],
    known: frozenset[str],
) -> Iterator[dict[str, Any]]:
    """Yields the same for a dry run: the session's times of our kernels, single runs of PyTorch's."""
    times = final_measurements(records).set_index(["problem", "kernel"])["latency_ms"]
    for problem in asked.problems:
        row: dict[str, Any] = {"problem": problem.id}
        row |= {name: times.get((problem.id, kernel)) for name, kernel in chosen.get(problem.id, {}).items()}
        operands = random_operands(torch, problem, "cpu")
        found = functions(torch, problem, operands, problem.id in known)
        with torch.no_grad():
            for name, make in found.items():
                run = partial(make(), *operands)
                run()
                row[name] = time_cpu(run)
        yield row


def with_best(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the milliseconds by problem, with the best of our pool in place of the leaders."""
    table = pd.DataFrame(rows).set_index("problem")
    ours = [name for name in table if name == PICK or str(name).startswith("leader ")]
    table[BEST] = table[ours].min(axis=1)
    kept = [name for name in (PICK, BEST, EAGER, SEARCH, INDUCTOR, HEURISTIC) if name in table]
    return table[[*kept, *(name for name in OTHERS if name in table)]]


def summary(table: pd.DataFrame, seconds: Mapping[str, float], tuned_s: pd.Series) -> pd.DataFrame:
    """Returns a row a contender.

    time: geometric mean of its time / our pick's, over the problems that both have. faster: percent of these
    on which it is faster than our pick. P10: of our pick's time / its, in percent. efficiency, its P10: time
    of the fastest contender / its, in percent. tuning: mean seconds a problem, alone on the machine; beside
    others with the cores divided.
    """
    names = [name for name in table if name not in OTHERS]
    fastest, rows = table[names].min(axis=1), []
    for name in names:
        ratio = (table[name] / table[PICK]).dropna()
        share = (fastest / table[name]).dropna()
        row: dict[str, Any] = {
            "contender": name,
            "problems": len(ratio),
            "time": round(geometric_mean(ratio), 3),
            "faster": round(100 * float((ratio < 1).mean()), 1),
            "P10": round(100 * float(np.percentile(1 / ratio, 10)), 1),
            "efficiency": round(100 * float(share.mean()), 1),
            "its P10": round(100 * float(np.percentile(share, 10)), 1),
        }
        if name == INDUCTOR:
            alone = pd.Series(seconds, dtype="float64")
            row["tuning"] = f"{alone.mean():.1f} s alone ({len(alone)}), {tuned_s.mean():.1f} s beside others"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def as_markdown(table: pd.DataFrame) -> str:
    lines = [table.columns.tolist(), ["---"] * table.shape[1], *table.astype(str).values.tolist()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse(words: Sequence[str] | None = None) -> Asked:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description=__doc__,
        epilog="Other options are the session's.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", required=True, help="names or files of problem sets")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", default="native", help="as for pytest --kernels")
    parser.add_argument("--more-kernels", default="", help="the same, for a second session without a model")
    parser.add_argument("--ranked", type=int, help="only kernels that the model ranks so high on a problem")
    parser.add_argument("--build-dir", type=Path, help="a folder of `tile-oracle build`")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--alone", type=int, default=3, help="problems tuned alone, for Inductor's seconds")
    parser.add_argument("--seconds", type=float, default=1e6, help="in all; the race ends then")
    parser.add_argument("--name", default="")
    args, session = parser.parse_known_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    setting = Setting(args.target, args.build_dir, args.out.resolve())
    name, problems = args.name or Path(args.set).stem, sample(args.set, args.count, args.seed)
    file = write_problems(setting, f"{name}-problems", problems)
    asked = Asked(
        name,
        problems,
        file,
        setting,
        args.kernels,
        args.more_kernels,
        args.alone,
        args.seconds,
        tuple(session),
    )
    return narrowed(asked, args.ranked) if args.ranked else asked


def main(words: Sequence[str] | None = None) -> int:
    asked = parse(words)
    out, dry = asked.setting.out, asked.setting.dry
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(out / "inductor"))
    import torch

    torch.backends.cudnn.benchmark = False
    device = "cpu" if dry else "cuda"
    seconds = tune_alone(asked, torch, device)
    print(f"alone: {asked.left:.0f} s are left", flush=True)
    tuners, output = start_tuners(asked, device)
    try:
        records, folder, chosen = ours(asked)
        print(f"session: {len(records):,} records, {asked.left:.0f} s are left", flush=True)
    finally:
        tuning = end_tuners(tuners, output, asked.before_the_race)
    known = frozenset(tuning.index[tuning["seconds"].notna()])
    print(f"tuned {len(known)} of {len(asked.problems)}, {asked.left:.0f} s are left", flush=True)
    # As in the tuners: it may be part of the key by which their results are found.
    torch._inductor.config.compile_threads = tuners_and_threads()[1]
    race = single_runs if dry else race_on_gpu
    rows = []
    try:
        for row in race(asked, torch, records if dry else folder, chosen, known):
            rows.append(row)
            if row.get("failed"):
                print(row["problem"], row["failed"], flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} problems", flush=True)
    (out / f"{asked.name}-raced.json").write_text(json.dumps(chosen, indent=1) + "\n")
    table = with_best(rows).assign(tuning_s=tuning["seconds"])
    table.to_csv(out / f"{asked.name}.csv", float_format="%.6g")
    beside_others = tuning["seconds"].drop(list(seconds), errors="ignore")
    found = summary(table.drop(columns="tuning_s"), seconds, beside_others)
    text = as_markdown(found)
    (out / f"{asked.name}.md").write_text(text)
    print(f"{text}\n{asked.seconds - asked.left:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
