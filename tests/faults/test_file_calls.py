"""A sample of failing file calls: the errors in turn, spread over all calls of a small session."""

from __future__ import annotations

import pytest

from tools.faults.file_calls import run


@pytest.mark.slow
def test_no_failing_file_call_of_a_sample_costs_or_doubles_a_row() -> None:
    outcome = run(12, 20260)
    assert outcome.faults == 12
    assert list(outcome.failures) == []
    assert outcome.counts["refused in one line"] > 6
