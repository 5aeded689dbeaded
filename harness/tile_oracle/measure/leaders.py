"""Chooses the kernels of a problem that are measured again, and for how long.

The best of many noisy times is biased. So the leaders are measured again, interleaved, before one of them
becomes the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.record.schema import ROUND_FINAL

_FAR_BEHIND = 2.0
"""A pick this many times slower than the best is not measured again: noise cannot change the conclusion."""


ALWAYS_IN_FULL = 8
"""So many of a problem's fastest kernels are checked and timed in full, however far apart they are."""


def has_lost_ms(fastest_ms: Sequence[float], settings: SweepSettings) -> float | None:
    """Returns a kernel that takes at least this long has lost; None: none has yet. fastest_ms: the fastest
    times of the problem so far, sorted."""
    plan = settings.timing
    if not plan.sequential or plan.exact_samples is not None or settings.cold_cache:
        return None  # each kernel is to be timed alike; a check says nothing about cold caches
    if len(fastest_ms) < ALWAYS_IN_FULL:
        return None
    return max(plan.far_behind * fastest_ms[0], fastest_ms[ALWAYS_IN_FULL - 1])


def choose_leaders(
    swept: Iterable[Measurement], picks: Collection[Kernel], settings: SweepSettings
) -> list[Measurement]:
    """Returns the best kernels, picks that are not far behind, and noisy kernels, which get a second
    chance."""
    swept = list(swept)
    ranked = sorted((m for m in swept if m.ok), key=lambda m: (m.latency_ms, m.kernel.name))
    noisy = sorted((m for m in swept if m.status == "noisy"), key=lambda m: m.latency_min_ms)
    noisy = noisy[: settings.max_noisy]
    if not ranked:
        return noisy
    limit = ranked[0].latency_ms * (1 + settings.leaders_within)
    near = [m for m in ranked if m.latency_ms <= limit]
    leaders = (near if len(near) > 1 else ranked[:2])[: settings.max_leaders]
    far = ranked[0].latency_ms * _FAR_BEHIND
    picked = [m for m in ranked if m.kernel in picks and m.latency_ms <= far and m not in leaders]
    return leaders + picked + noisy


def leaders_left(
    known: Iterable[Measurement], picks: Collection[Kernel], settings: SweepSettings
) -> list[Measurement]:
    """Returns the leaders that have not been measured again; none if there is nothing to compare them with.

    known: measurements of one problem, of all rounds, without copies of twins.
    """
    known = list(known)
    done = {m.kernel for m in known if m.round >= ROUND_FINAL}
    swept = (m for m in known if m.round < ROUND_FINAL)
    left = [m for m in choose_leaders(swept, picks, settings) if m.kernel not in done]
    return left if len(left) + len(done) > 1 or any(m.status == "noisy" for m in left) else []


def may_win_yet(known: Iterable[Measurement], settings: SweepSettings) -> list[Measurement]:
    """Returns the censored kernels that have not lost after all: what they had lost to is not ok any more.

    known: measurements of one problem, of all rounds, without copies of twins.
    """
    there = standing(known)
    censored = [m for m in there if m.is_censored]
    # Slower by less than this is drift.
    best_ms = min((m.latency_ms for m in there if not m.is_censored), default=math.inf)
    best_ms = min([best_ms, *(m.latency_ms for m in censored)]) / (1 + settings.leaders_within)
    return [m for m in censored if m.at_least_ms < settings.timing.far_behind * best_ms]


def standing(known: Iterable[Measurement]) -> list[Measurement]:
    """Returns the measurement that counts of each ok kernel: that of its last round. A kernel that failed in
    any round is left out; a second time that is noisy leaves the first."""
    last: dict[Kernel, Measurement] = {}
    failed: set[Kernel] = set()
    for m in sorted(known, key=lambda one: one.round):
        if m.ok:
            last[m.kernel] = m
        elif m.status not in ("noisy", "device_lost"):
            failed.add(m.kernel)
    return [m for kernel, m in last.items() if kernel not in failed]


def final_passes(leaders: Sequence[Measurement], settings: SweepSettings) -> int:
    """Returns the number of interleaved passes over all leaders; fewer for long kernels."""
    total_ms = sum(m.latency_ms for m in leaders)
    return max(1, min(settings.final_passes, int(settings.final_total_ms / total_ms)))


def samples_a_pass(leader: Measurement, settings: SweepSettings) -> int:
    """Returns the number of samples of one leader in a pass."""
    # For a noisy kernel a single sample per pass would prove nothing.
    least = 2 if leader.status == "noisy" else 1
    return max(least, min(settings.final_samples, int(settings.final_budget_ms / leader.latency_ms)))
