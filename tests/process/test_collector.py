"""Python's collector pauses and goes on."""

from __future__ import annotations

import gc

import pytest

from tile_oracle.process.collector import paused_collector


def test_it_goes_on_afterwards_also_after_an_error() -> None:
    def fails() -> None:
        with paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.isenabled()


def test_a_collector_that_the_user_has_stopped_stays_so() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
