"""Opens the session that the options ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.session.models import AUTO, NONE
from tile_oracle.session.option_names import PREFIX, asked_names
from tile_oracle.session.options import OF_DEVICES, SessionOptions
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

        asked = {word.replace(PREFIX, "--") for word in asked_names(options.command)}
        if idle := [f"--{name}" for name in OF_DEVICES if f"--{name}" in asked]:
            raise HarnessError(f"{idle[0]} is for sessions that measure: in a replay leave it out")
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
