"""A sample of power cuts, if this machine can mount a file system."""

from __future__ import annotations

import pytest

from tools.faults.powercut import is_possible, run


@pytest.mark.slow
def test_a_power_cut_costs_no_row_older_than_a_second() -> None:
    if not is_possible():
        pytest.skip("mounting an ext4 image needs root, mkfs.ext4 and loop devices")
    outcome = run(1, 3)
    assert outcome.faults == 1
    assert list(outcome.failures) == []
    assert outcome.counts["rows kept"] > 0
