"""Python's collector of cycles, paused while much is computed that has none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pauses the collector, which walks over all objects of the process again and again: a tenth of a
    report's time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def leave_to_the_end_of_the_process() -> None:
    """Excludes all present objects from collections. pytest collects several times before it ends,
    which takes a quarter of a second after a replay."""
    gc.freeze()
