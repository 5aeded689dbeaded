"""What sequential sampling costs and saves: both ways of sampling on recorded times, with simulated noise.

    python benchmarks/sampling_study.py models/MODEL/DEVICE/SET/default.parquet --baseline default.json
    python benchmarks/sampling_study.py models/MODEL/DEVICE/SET/*.parquet ... --far-behind 3

With --far-behind, one sequential session over each file is simulated, in which kernels that have lost by
their first checked run are censored; the same session goes on with each of them as if nothing had been left
out. The two differ in nothing else: their oracles, their eight fastest kernels and their times on the device
are compared.

Without it, two sessions, one with `--sampling equal` and one with `--sampling sequential`, are simulated over
the same records (no kernel is censored), and a second one with `equal` shows how much two equal sessions
differ. Policy, GPU timer, choice of the leaders and of the final rounds are the harness's own code; only the
device is simulated: a clock that advances by the times of kernels, events and operand changes.

A pair's true time is the recorded one. A run takes that, times noise: the pair's recorded spread (or that of
pairs of about its length, if it was timed once), 0.3 % for every round of a session, a pause of 30 to 300
microseconds in one of 1,000 runs, and in its first three runs 20 % or 50 microseconds for cold caches. Check
runs that are not used as timed runs are counted separately; the host takes 10 microseconds to launch them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.device.gpu_timer import CHANGES, GpuTimer, Timed
from tile_oracle.device.timing import COARSE, at_least_ms, summarise, time_kernel
from tile_oracle.measure.kernel_order import KernelOrder
from tile_oracle.measure.leaders import choose_leaders, final_passes, has_lost_ms, samples_a_pass
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import problem_from_id

_EVENT_NS, _CHANGE_NS, _RENEW_NS = 2_500.0, 2_000.0, 10_000.0
_HOST_NS = 10_000.0
_ROUND_SIGMA = 0.003
_PAUSE_CHANCE, _PAUSE_NS = 1e-3, (30_000.0, 300_000.0)
_COLD_RUNS, _COLD_SHARE, _COLD_NS = 3, 0.2, 50_000.0
_LEAST_VALUES, _CHECK_RUNS = 8, 2
_SPREAD_OF_SIGMA = 1.349


@dataclass
class Kernel:
    """A recorded kernel. factor: the noise of the present round."""

    name: str
    true_ns: float
    sigma: float
    factor: float = 1.0
    runs: int = 0


class VirtualDriver:
    """The calls of a GPU's driver that the timer makes, with a simulated clock."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.now_ns = 0.0
        self._random = generator
        self._numbers = itertools.count(1)
        self._events: dict[int, float] = {}
        self._graphs: dict[int, tuple[Sequence[Any], int]] = {}

    def launch(self, what: Kernel | float) -> None:
        self._run(what, 1)

    def _run(self, what: Kernel | float, count: int) -> None:
        if not isinstance(what, Kernel):
            self.now_ns += what * count
            return
        # The samples' own noise is about that of one sample, whether it is a run or a graph of several.
        mean = what.true_ns * what.factor * (1 + what.sigma * float(self._random.standard_normal()))
        cold = max(0, min(count, _COLD_RUNS - what.runs))
        what.runs += count
        self.now_ns += mean * count + cold * min(_COLD_SHARE * mean, _COLD_NS)
        if self._random.random() < _PAUSE_CHANCE:
            self.now_ns += float(self._random.uniform(*_PAUSE_NS))

    def capture(self, launches: Sequence[Any], count: int) -> int:
        number = next(self._numbers)
        self._graphs[number] = (launches, count)
        return number

    def launch_graph(self, graph: int) -> None:
        launches, count = self._graphs[graph]
        for one in launches:
            self._run(one, count)

    def destroy_graph(self, graph: int) -> None:
        del self._graphs[graph]

    def make_event(self) -> int:
        return next(self._numbers)

    def record(self, event: int) -> None:
        self.now_ns += _EVENT_NS / 2
        self._events[event] = self.now_ns
        self.now_ns += _EVENT_NS / 2

    def elapsed_ns(self, events: Sequence[int]) -> list[float]:
        return [self._events[later] - self._events[first] for first, later in itertools.pairwise(events)]

    def synchronize(self) -> None:
        """Launches run at once."""


class Device:
    """What tile_oracle.device.gpu.GpuDevice does to time a kernel."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.driver = VirtualDriver(generator)
        self.timer = GpuTimer(self.driver, 0)  # type: ignore[arg-type]  # the calls that the timer makes
        self._timers: dict[str, Timed] = {}
        self._looks: dict[str, Timed] = {}
        self._checked: list[float] = []
        self.check_ns = self.reused_ns = 0.0

    def check(self, kernel: Kernel, begin: int = 0, end: int = _CHECK_RUNS) -> float:
        """Makes some of the check runs; the nanoseconds of the first."""
        for number in range(begin, end):
            self.timer.mark(2 * number)
            self.driver.now_ns += _HOST_NS
            self.driver.launch(kernel)
            self.timer.mark(2 * number + 1)
        self._checked = self.timer.between_marks_ns(end)
        self.check_ns += sum(self._checked[begin:])
        self._looks.clear()
        return self._checked[0]

    @property
    def spent_s(self) -> float:
        """The device's time in check runs and timed runs, in seconds."""
        return (self.check_ns - self.reused_ns) / 1e9 + self.timer.timed_ms / 1e3

    def look(self, kernel: Kernel, count: int) -> npt.NDArray[np.float64]:
        if kernel.name not in self._looks:
            of_checks = self.timer.of_checks(self._checked)
            self._looks[kernel.name] = self.timer.for_look((kernel,), min(self._checked))  # type: ignore[arg-type]
            if of_checks:
                self.reused_ns += sum(of_checks)
                return np.array(of_checks)
        return self.timer.look(self._looks[kernel.name], count, self._renew, self.driver.synchronize)

    def sample(self, kernel: Kernel, count: int) -> npt.NDArray[np.float64]:
        timer = self._timers.get(kernel.name)
        if timer is None:
            changes = [(_CHANGE_NS,)] * CHANGES
            timer = self._timers[kernel.name] = self.timer.prepare((kernel,), changes)  # type: ignore[arg-type]
        self._renew()
        return self.timer.time(timer, max(math.ceil(count / timer.repeats), min(count, _LEAST_VALUES)))

    def _renew(self) -> None:
        self.driver.launch(_RENEW_NS)


@dataclass
class Session:
    """The outcome: problem -> kernel -> (latency in ms by the records' rule, sampling)."""

    times: dict[str, dict[str, float]] = field(default_factory=dict)
    coarse: int = 0
    pairs: int = 0
    noisy: int = 0
    timed_s: float = 0.0
    sweep_s: float = 0.0
    check_s: float = 0.0
    errors: list[float] = field(default_factory=list)
    """Of coarse measurements: ln(measured / true)."""
    censored: dict[str, dict[str, float]] = field(default_factory=dict)
    """problem -> kernel -> ms of the first run, of those that would have been given up by it."""
    saved_s: float = 0.0
    """What they took after that run."""
    bounds: list[float] = field(default_factory=list)
    """Of these: the lower bound / the true time."""


def simulate(
    records: dict[str, list[Kernel]], picks: dict[str, str], settings: SweepSettings, seed: int
) -> Session:
    """One session over all problems."""
    session = Session()
    order, loaded = KernelOrder(), set[str]()
    for place, (problem_id, kernels) in enumerate(records.items()):
        generator = np.random.default_rng([seed, place])
        if settings.timing.sequential:
            by_name: dict[Any, Kernel] = {_Name(kernel.name): kernel for kernel in kernels}
            kernels = [by_name[name] for name in order.ordered(by_name)]
        order.learn(_one(session, problem_id, kernels, picks.get(problem_id), settings, generator, loaded))
        loaded |= {kernel.name for kernel in kernels}
    return session


def _one(
    session: Session,
    problem_id: str,
    kernels: Sequence[Kernel],
    pick: str | None,
    settings: SweepSettings,
    generator: np.random.Generator,
    loaded: set[str],
) -> list[Measurement]:
    device, problem = Device(generator), problem_from_id(problem_id)
    by_name = {kernel.name: replace(kernel) for kernel in kernels}
    swept: list[Measurement] = []
    best_ms: float | None = None
    for kernel in by_name.values():
        kernel.factor = 1 + _ROUND_SIGMA * float(generator.standard_normal())
        first_ms = device.check(kernel, 0, 1) / 1e6
        lost = has_lost_ms(sorted(m.latency_ms for m in swept[:-_WINDOW] if m.ok), settings)
        is_lost = lost is not None and kernel.name in loaded and at_least_ms(first_ms) > lost
        before_s = device.spent_s
        device.check(kernel, 1)
        timing, noisy = time_kernel(
            partial_of(device.sample, kernel), settings.timing, partial_of(device.look, kernel), best_ms
        )
        if is_lost and kernel.name != pick:
            session.censored.setdefault(problem_id, {})[kernel.name] = first_ms
            session.saved_s += device.spent_s - before_s
            session.bounds.append(at_least_ms(first_ms) / (kernel.true_ns / 1e6))
        session.pairs += 1
        session.coarse += timing.sampling == COARSE
        session.noisy += noisy
        if timing.sampling == COARSE:
            session.errors.append(math.log(timing.median_ms / (kernel.true_ns / 1e6)))
        if not noisy:
            best_ms = min(best_ms or timing.median_ms, timing.median_ms)
        status = "noisy" if noisy else "ok"
        swept.append(_measured(problem, kernel.name, status, timing.median_ms, timing.min_ms))
    session.sweep_s += device.timer.timed_ms / 1e3
    final = {m.kernel.name: m.latency_ms for m in swept if m.ok}
    picked = [m.kernel for m in swept if m.kernel.name == pick]
    leaders = choose_leaders(swept, picked, settings)
    samples: dict[str, list[npt.NDArray[np.float64]]] = {m.kernel.name: [] for m in leaders}
    drift = 1 + _ROUND_SIGMA * float(generator.standard_normal())
    for leader in leaders:
        by_name[leader.kernel.name].factor = drift
    for _ in range(final_passes(leaders, settings) if len(leaders) > 1 else 0):
        for leader in leaders:
            taken = device.sample(by_name[leader.kernel.name], samples_a_pass(leader, settings) + 1)
            samples[leader.kernel.name].append(taken[1:])
    for name, taken_in_passes in samples.items():
        if taken_in_passes:
            final[name] = summarise(np.concatenate(taken_in_passes) / 1e6).median_ms
    again = {name: ms for name, ms in final.items() if samples.get(name)}
    session.times[problem_id] = {**final, "": min((again or final).values())}
    session.timed_s += device.timer.timed_ms / 1e3
    session.check_s += (device.check_ns - device.reused_ns) / 1e9
    return swept


@dataclass(frozen=True)
class _Name:
    name: str


def _measured(problem: Any, name: str, status: str, median_ms: float, least_ms: float) -> Measurement:
    kernel: Any = _Name(name)
    return Measurement(problem, kernel, status, latency_ms=median_ms, latency_min_ms=least_ms)


def partial_of(
    function: Callable[[Kernel, int], npt.NDArray[np.float64]], kernel: Kernel
) -> Callable[[int], npt.NDArray[np.float64]]:
    return lambda count: function(kernel, count)


def recorded(path: Path, most_problems: int) -> dict[str, list[Kernel]]:
    """Problem -> its kernels in the order of the sweep, from a file of records."""
    columns = ["problem", "kernel", "round", "status", "latency_ms", "spread", "samples"]
    frame = pd.read_parquet(path, columns=columns)
    frame = frame[frame["status"] == "ok"].sort_values("round", kind="stable")
    known = frame[(frame["samples"] > 5) & (frame["spread"] > 0)]
    sigma = known["spread"] / _SPREAD_OF_SIGMA
    lengths = np.log(known["latency_ms"])
    typical = sigma.groupby(pd.cut(lengths, np.log([1e-4, 0.01, 0.1, 1, 4, 1e6]))).median()
    last = frame.drop_duplicates(["problem", "kernel"], keep="last").set_index(["problem", "kernel"])
    first = frame[frame["round"] == 0].sort_index()
    problems = sorted(first["problem"].unique())
    step = max(1, len(problems) // most_problems) if most_problems else 1
    chosen = set(problems[::step])
    found: dict[str, list[Kernel]] = {}
    for row in first[first["problem"].isin(chosen)].itertuples():
        times = last.loc[(row.problem, row.kernel)]
        own = float(times["spread"]) / _SPREAD_OF_SIGMA
        if not (times["samples"] > 5 and own > 0):
            found_sigma = typical.get(math.log(times["latency_ms"]), math.nan)
            own = 0.002 if math.isnan(found_sigma) else float(found_sigma)
        kernel = Kernel(str(row.kernel), 1e6 * float(times["latency_ms"]), own)
        found.setdefault(str(row.problem), []).append(kernel)
    return found


def _efficiencies(session: Session, picks: dict[str, str]) -> npt.NDArray[np.float64]:
    return np.array(
        [
            100 * min(1.0, times[""] / times[picks[problem]]) if picks.get(problem) in times else math.nan
            for problem, times in session.times.items()
        ]
    )


def compare(name: str, one: Session, other: Session, picks: dict[str, str]) -> None:
    """Prints how the second session differs from the first."""
    ratios = np.array([other.times[problem][""] / times[""] for problem, times in one.times.items()])
    apart = np.abs(np.log(ratios))
    print(f"\n{name}")
    print(
        f"  oracles within 1 %: {100 * np.mean(apart < 0.01):.1f} % of the problems, within 2 %: "
        f"{100 * np.mean(apart < 0.02):.1f} %, the worst {100 * float(apart.max()):.1f} % apart"
    )
    if picks:
        first, second = _efficiencies(one, picks), _efficiencies(other, picks)
        print(
            f"  picks: mean efficiency {np.nanmean(first):.2f} and {np.nanmean(second):.2f} %, "
            f"P10 {np.nanpercentile(first, 10):.2f} and {np.nanpercentile(second, 10):.2f} %"
        )
    for what, first_s, second_s in (
        ("sweep, timed runs", one.sweep_s, other.sweep_s),
        ("all timed runs", one.timed_s, other.timed_s),
        ("with check runs", one.timed_s + one.check_s, other.timed_s + other.check_s),
    ):
        print(f"  GPU time, {what}: {first_s:.1f} s and {second_s:.1f} s ({100 * second_s / first_s:.0f} %)")


_TOP = 8
_WINDOW = 8
"""Kernels that a worker is sent in advance."""


def given_up(path: Path, records: dict[str, list[Kernel]], session: Session) -> tuple[int, int, int]:
    """Prints what giving kernels up by their first run changes. Problems, and those with the same oracle and
    with the same fastest kernels."""
    same = alike = 0
    for problem, times in session.times.items():
        full = {name: ms for name, ms in times.items() if name}
        short = full | session.censored.get(problem, {})
        first, second = (sorted(one, key=lambda name: (one[name], name))[:_TOP] for one in (full, short))
        same += first[0] == second[0]
        alike += set(first) == set(second)
    number, problems = sum(map(len, session.censored.values())), len(session.times)
    spent_s = session.timed_s + session.check_s
    bounds = np.array(session.bounds or [0.0])
    print(
        f"{path.parent.name}/{path.name}: {problems} problems, {session.pairs:,} pairs, "
        f"{100 * number / session.pairs:.0f} % given up after one run\n"
        f"  the same oracle on {same}, the same {_TOP} fastest on {alike}; "
        f"GPU time {spent_s:.1f} s and {spent_s - session.saved_s:.1f} s "
        f"({100 * (1 - session.saved_s / spent_s):.0f} %)\n"
        f"  true time below its bound: {100 * np.mean(bounds > 1):.3f} % of them"
    )
    return problems, same, alike


def main() -> None:
    """Simulates and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+", help="recorded measurements: parquet files")
    parser.add_argument(
        "--far-behind", type=float, metavar="FACTOR", help="what giving kernels up at this factor changes"
    )
    parser.add_argument("--baseline", type=Path, help="a baseline whose picks are judged")
    parser.add_argument("--budget-ms", type=float, default=4.0, help="--kernel-budget (default: 4)")
    parser.add_argument("--problems", type=int, default=0, metavar="N", help="at most about N problems")
    parser.add_argument(
        "--mean-below-ms",
        type=float,
        default=math.inf,
        metavar="MS",
        help="only problems with such a mean time",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.far_behind:
        plan = TimingPlan(budget_ms=options.budget_ms, sequential=True, far_behind=options.far_behind)
        settings = SweepSettings(timing=plan, final_budget_ms=options.budget_ms / 5)
        found = []
        for path in options.records:
            records = recorded(path, options.problems)
            found.append(given_up(path, records, simulate(records, {}, settings, options.seed)))
        problems, same, alike = map(sum, zip(*found, strict=True))
        print(
            f"all: the same oracle on {100 * same / problems:.2f} % of {problems:,} problems, "
            f"the same {_TOP} fastest kernels on {100 * alike / problems:.2f} %"
        )
        return
    records = recorded(options.records[0], options.problems)
    records = {
        problem: kernels
        for problem, kernels in records.items()
        if np.mean([kernel.true_ns for kernel in kernels]) < 1e6 * options.mean_below_ms
    }
    picks: dict[str, str] = {}
    if options.baseline:
        document = json.loads(options.baseline.read_text())
        picks = {problem: entry["pick"] for problem, entry in document.get("picks", {}).items()}
    equal = SweepSettings(
        timing=TimingPlan(budget_ms=options.budget_ms), final_budget_ms=options.budget_ms / 5
    )
    sequential = replace(equal, timing=replace(equal.timing, sequential=True))
    first = simulate(records, picks, equal, options.seed)
    second = simulate(records, picks, equal, options.seed + 1)
    short = simulate(records, picks, sequential, options.seed + 2)
    print(f"{len(records)} problems, {first.pairs:,} pairs, budget {options.budget_ms:g} ms")
    compare("equal and equal again", first, second, picks)
    compare("equal and sequential", first, short, picks)
    errors = np.abs(np.array(short.errors))
    median, most, nearly_all = (100 * np.quantile(errors, share) for share in (0.5, 0.95, 0.999))
    print(
        f"\nsequential: {100 * short.coarse / short.pairs:.0f} % of the pairs coarse; their times differ "
        f"from the true ones by {median:.1f} % (median), {most:.1f} % (95 %), {nearly_all:.1f} % (99.9 %)"
    )
    print(f"noisy: {first.noisy} and {short.noisy}")


if __name__ == "__main__":
    main()
