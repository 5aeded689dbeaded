"""The suite's test files, the names of their tests, and the problems and kernels of pytest's test items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tile_oracle.session.pytest_private import PYTEST_FIXTURES, fixture_definitions

if TYPE_CHECKING:
    from tile_oracle.kernel import Kernel
    from tile_oracle.problem import Problem


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


FIXTURES = "tile_oracle.plugin"
"""The module that defines the fixtures `problem` and `kernel`."""


MEASURING = ("measure", "replayed")
"""The fixtures by which a test measures or replays."""


def is_fixture_of_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Returns whether a test uses the plugin's fixture `name`."""
    definitions = fixture_definitions(metafunc.definition, name)
    return name in metafunc.fixturenames and any(one.func.__module__ == FIXTURES for one in definitions)


def is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Returns whether the plugin provides the values of a test's fixture `name`.

    Not if the user's project has a fixture of this name (unless that one requests the plugin's), or if the
    test itself is parametrized by this name.
    """
    definitions = fixture_definitions(metafunc.definition, name)
    places = [place for place, one in enumerate(definitions) if one.func.__module__ == FIXTURES]
    if name not in metafunc.fixturenames or not places:
        return False
    if any(name not in one.argnames for one in definitions[places[-1] + 1 :]):
        return False
    for mark in metafunc.definition.iter_markers("parametrize"):
        named = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if name in ([word.strip() for word in named.split(",")] if isinstance(named, str) else named):
            return False
    return True


def is_replay(item: pytest.Item) -> bool:
    """Returns whether a test is the replay suite's own."""
    return item.path == REPLAY_SUITE and "problem" in params_of(item)


def params_of(item: pytest.Item) -> dict[str, Any]:
    """Returns the values that a test is parametrized with, by name."""
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def pair_of_item(item: pytest.Item) -> tuple[Problem, Kernel] | None:
    """Returns the pair that a test will measure; None if that is not certain before it runs."""
    params = params_of(item)
    if not {"problem", "kernel"} <= params.keys() or "measure" not in getattr(item, "fixturenames", ()):
        return None
    for name in ("problem", "kernel"):
        last = fixture_definitions(item, name)[-1]
        # A fixture of the user's project may change the value.
        if not hasattr(params[name], "op") or last.func.__module__ not in (FIXTURES, PYTEST_FIXTURES):
            return None
    return params["problem"], params["kernel"]
