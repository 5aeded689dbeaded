"""A Ray of this session's own: no other machine can reach it, and it ends with its driver, even a killed one.

Ray listens on all interfaces and asks for no password. It listens to this machine alone if its nodes cannot
form clusters, which is the default of other systems than Linux. Its agents may wait a minute for a dead
server before they end, and write their titles over the start of their environment, where the mark of their
session may stand, unless SPT_NOENV forbids it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tile_oracle.files.trusted_folder import check_trusted

_NO_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_NO_TITLES_OVER_SETTINGS = "SPT_NOENV"
_MARK = "TILE_ORACLE_LOCAL_RAY"
_WATCH = """
import os, signal, sys
sys.stdin.read()
for _ in range(10):
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as settings:
                if sys.argv[1].encode() in settings.read().split(b"\\0"):
                    os.kill(int(pid), signal.SIGKILL)
                    found = True
        except OSError:
            pass
    if not found:
        break
"""
"""A program that waits until its stdin ends, then kills all processes with a setting in their environment."""


@contextmanager
def of_this_session(ray: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Within the block, `ray.init` starts such a Ray. Yields what `end` takes."""
    constants = ray._private.ray_constants
    mark = f"{_MARK}={secrets.token_hex(16)}"
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCH, mark], stdin=subprocess.PIPE, start_new_session=True
    )
    settings = {_NO_CLUSTERS: "0", _NO_TITLES_OVER_SETTINGS: "1", _MARK: mark.partition("=")[2]}
    clusters, before = constants.ENABLE_RAY_CLUSTER, {name: os.environ.get(name) for name in settings}
    constants.ENABLE_RAY_CLUSTER = False
    os.environ.update(settings)
    try:
        yield watcher
    except BaseException:
        end(watcher)
        raise
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end(watcher: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the Ray."""
    watcher.communicate()


def short_folder() -> str | None:
    """A folder for Ray's sockets, whose paths have at most 107 characters; None if RAY_TMPDIR names one.

    Ray lets all users write there, so it lies in a folder that is closed. Raises BuildError if other users
    may change that.
    """
    if os.environ.get("RAY_TMPDIR"):
        return None
    folder = Path(f"/tmp/tile-oracle-ray-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    check_trusted(folder, "Ray's sockets")
    folder.chmod(0o700)
    return str(folder / "r")
