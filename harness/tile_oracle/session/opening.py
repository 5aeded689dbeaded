"""Opens the session that the options ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.session.models import AUTO, NONE
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.recording import replays
from tile_oracle.session.session import Session
from tile_oracle.targets.target import INTERPRET


def open_session(options: SessionOptions, **process: Any) -> Session:
    """Returns a ReplaySession where records are named or the target is `replay`, else a LiveSession. In
    Triton's interpreter no pick is judged, since nothing is timed.

    process: the keyword arguments of Session that a worker of pytest-xdist is given. Raises HarnessError.
    """
    channel = process.pop("channel", None)
    if replays(options):
        from tile_oracle.session.replay_session import ReplaySession

        if options.first is not None:
            raise HarnessError("--first is for sessions that measure: a replay has all kernels at once")
        return ReplaySession(options, **process)
    if options.target == INTERPRET:
        if options.model not in (AUTO, NONE):
            raise ModelError(
                f"--model {options.model}: --target {INTERPRET} times nothing: leave --model out"
            )
        options = replace(options, model=NONE)
    if options.on_cluster:
        from tile_oracle.fleet.ray_engine import import_ray

        import_ray()  # before anything is written
    if channel is not None:
        from tile_oracle.session.asking import AskingSession

        return AskingSession(options, channel=channel, **process)
    from tile_oracle.session.live import LiveSession

    return LiveSession(options, **process)
