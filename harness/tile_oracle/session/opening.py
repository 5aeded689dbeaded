"""Opens the session that the options ask for."""

from __future__ import annotations

from typing import Any

from tile_oracle.session.options import SessionOptions
from tile_oracle.session.recording import replays
from tile_oracle.session.session import Session


def open_session(options: SessionOptions, **process: Any) -> Session:
    """A ReplaySession where records are named or the target is `replay`, a FleetSession with --fleet, else a
    LiveSession.

    process: the keyword arguments of Session that a worker of pytest-xdist is given. Raises HarnessError.
    """
    if replays(options):
        from tile_oracle.session.replay_session import ReplaySession

        return ReplaySession(options, **process)
    if options.fleet is not None:
        from tile_oracle.session.fleet_session import FleetSession

        return FleetSession(options, **process)
    from tile_oracle.session.live import LiveSession

    return LiveSession(options, **process)
