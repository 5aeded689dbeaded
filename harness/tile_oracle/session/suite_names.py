"""The suite's test files, and the names of their tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "suite" / "test_kernels.py"
REPLAY_SUITE = SUITE.with_name("test_replay.py")
SUITE_ID = "tile_oracle"
"""The prefix of the suite's test ids, wherever the package is installed: tile_oracle::test_kernel[...], and
in a replay tile_oracle::test_problem[...]."""


def is_only_suite(args: Sequence[str]) -> bool:
    """Returns whether only the suite's tests were requested."""
    return all(arg.split("::")[0] in (str(SUITE), str(REPLAY_SUITE)) for arg in args)


def name_suite(config: pytest.Config, suite: Path) -> bool:
    """Makes pytest run the suite, and accept the suite's test ids as it prints them. Returns whether it runs
    only beside the named tests."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(suite)]
        return False

    def meant(arg: str) -> str:
        name, _, test = arg.partition("::")
        if name != SUITE_ID:
            return arg
        if test.startswith("verdict["):
            return str(suite)  # a verdict is about all pairs
        # A replay has tests for problems; a test for a pair runs only if it is named.
        of_pair, of_problem = test.startswith("test_kernel"), test.startswith("test_problem")
        module = SUITE if of_pair else REPLAY_SUITE if of_problem else suite
        return f"{module}::{test}" if test else str(module)

    named = [meant(arg) for arg in config.args]
    is_beside = not any(is_only_suite([arg]) for arg in named)
    config.args[:] = [*named, str(suite)] if is_beside else named
    return is_beside
