"""Under pytest-xdist all pairs of a problem go to one worker: data are made once, leaders compared fairly."""

from __future__ import annotations

import re
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_PROBLEM_IN_ID = re.compile(
    r"[\[-]((?:forward|bwd_data|bwd_weight)-[a-z0-9]+-n[0-9]+-[a-z0-9-]*?f[0-9x]+(?:-[spd][0-9x]+)*)[\]-]"
)


def problem_of(nodeid: str) -> str | None:
    """The problem id inside a test's id, or None for a test that is not about a problem."""
    match = _PROBLEM_IN_ID.search(nodeid)
    return match[1] if match else None


class ProblemScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests of one problem are one unit; any other test is a unit of its own."""

    def _split_scope(self, nodeid: str) -> Any:
        return problem_of(nodeid) or nodeid
