"""One test per problem, for replays: one test per pair would take longer than the rest of the session."""

from __future__ import annotations

import pytest

from tile_oracle.plugin import Replayed
from tile_oracle.problem import Problem


def test_problem(problem: Problem, replayed: Replayed) -> None:
    """Takes the problem's records. The verdict on the model's picks follows at the end of the session.

    Recorded failures do not fail the test: the gate decides whether they are new. A problem without any ok
    kernel is a known failure, or skipped if no kernel failed.
    """
    __tracebackhide__ = True
    measurements = replayed(problem)
    if any(one.ok for one in measurements):
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
