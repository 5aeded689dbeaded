"""The fast check of all pairs of kernels saves single checks and changes no result."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.model.aliases import _agree, _may_agree
from tile_oracle.model.noise import NoiseModel


@settings(max_examples=150, deadline=None)
@given(st.integers(15, 45), st.floats(0.0, 0.4), st.floats(0.001, 0.05), st.integers(0, 10_000))
def test_every_agreeing_pair_is_a_candidate(problems: int, missing: float, spread: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    level = np.exp(random.normal(size=(problems, 1)))
    times = level * np.exp(spread * random.standard_normal((problems, 6)))
    times[random.random(times.shape) < missing] = np.nan
    noise = NoiseModel()
    for i in range(5):
        candidates = _may_agree(times, i, noise)
        for j in range(i + 1, 6):
            assert candidates[j - i - 1] or not _agree(times[:, i], times[:, j], noise)


def test_most_pairs_are_skipped() -> None:
    random = np.random.default_rng(1)
    times = np.exp(random.normal(size=(30, 200)))
    assert sum(int(_may_agree(times, i, NoiseModel()).sum()) for i in range(199)) == 0


def test_a_pair_at_the_limit_is_a_candidate() -> None:
    """Of 20 differences 18 are nothing and two are just beyond the limit: the 90 % quantile is below it."""
    times = np.ones((20, 2))
    times[:2, 1] = np.exp(5.0 * np.sqrt(2.0) * float(NoiseModel().sigma(1.0)))
    assert _agree(times[:, 0], times[:, 1], NoiseModel())
    assert _may_agree(times, 0, NoiseModel()).tolist() == [True]
