"""The part of a compiler's log that is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.compiling.compiler_message import compiler_message, shortened


def test_the_first_error_is_the_message() -> None:
    log = (
        "In file included from kernel.hip:3:\n"
        "gemm.hpp:13:15: error: static assertion failed: too large\n"
        "gemm.hpp:13:65: note: expression evaluates to '320 <= 256'\n"
        "1 error generated when compiling for gfx950.\n"
    )
    assert compiler_message(log) == "gemm.hpp:13:15: error: static assertion failed: too large"
    assert compiler_message("killed\n\n") == "killed"
    assert compiler_message("") == ""


@given(st.text(max_size=300), st.integers(1, 120))
def test_a_log_is_shortened_to_its_message_and_its_end(log: str, most: int) -> None:
    kept = shortened(log, most)
    assert len(kept) <= max(most, len(compiler_message(log))) + len("\n[...]\n")
    assert compiler_message(log)[:most] in kept or compiler_message(log) in kept
    if len(log.strip()) <= most:
        assert kept == log.strip()
