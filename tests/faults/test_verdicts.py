"""A sample of the campaign of planted losses: the shipped recording of a CPU."""

from __future__ import annotations

import numpy as np

from tools.faults import verdicts

PATHS = [path for path in verdicts.recordings() if "_bf16_cpu" in str(path)]


def test_an_unchanged_run_does_not_fail() -> None:
    verdict = verdicts.verdict_on(verdicts.load(PATHS[0]), "unchanged", np.random.default_rng([20260, 0, 0]))
    assert not verdict.failed
    assert verdict.compared == 300
