"""Under pytest-xdist all pairs of a problem go to one worker: data are made once, leaders compared fairly."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from harness.session.pair_id import pair_of


class ProblemScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests of one problem are one unit; any other test is a unit of its own."""

    def _split_scope(self, nodeid: str) -> Any:
        return pair_of(nodeid)[0] or nodeid
