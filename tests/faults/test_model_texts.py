"""A sample of the campaign of mutated model texts."""

from __future__ import annotations

import pytest

from tools.faults.model_texts import run


@pytest.mark.slow
def test_no_mutated_text_ends_or_hangs_its_reader() -> None:
    outcome = run(count=60, seed=7)
    assert not outcome.failures
    assert outcome.counts["refused"] > 30
