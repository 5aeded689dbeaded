"""The outcome of a test that measures a pair, or that replays a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from tile_oracle.session.settled import Settled

if TYPE_CHECKING:
    from tile_oracle.measure.measurement import Measurement


def check_outcome(measurement: Measurement) -> None:
    """The outcome of a test that is about one measurement: passes, skips, fails, or is a known failure."""
    __tracebackhide__ = True
    status, known = measurement.status, measurement.known_failure
    said = f"{status}: {measurement.detail}" if measurement.detail else status
    if status in ("ok", "untimed"):
        return
    if status in ("unsupported", "noisy"):
        pytest.skip(said)
    if known and status != "device_lost":
        pytest.xfail(f"known since the baseline ({known}): {said}")
    pytest.fail(said, pytrace=False)


def check_outcomes(measurements: Sequence[Measurement]) -> None:
    """The outcome of a test that replays a problem with all its kernels.

    Recorded failures do not fail a test: the gate decides whether they are new. A problem without any ok
    kernel is a known failure, or skipped if no kernel failed.
    """
    __tracebackhide__ = True
    any_ok = measurements.any_ok if isinstance(measurements, Settled) else any(one.ok for one in measurements)
    if any_ok:
        return
    if not measurements:
        pytest.skip("never recorded")
    failed = [one for one in measurements if one.status not in ("unsupported", "noisy")]
    first = (failed or measurements)[0]
    said = f"no kernel is ok: {first.kernel.short_name} is {first.status}"
    if first.detail:
        said += f": {first.detail}"
    if len(measurements) > 1:
        said += f", and {len(measurements) - 1} more"
    if failed:
        pytest.xfail(said)
    pytest.skip(said)
