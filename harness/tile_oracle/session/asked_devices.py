"""How many devices measure at once: -n, where only the suite's tests run, and --fleet=local."""

from __future__ import annotations

import pytest

from tile_oracle.session.items import SUITE_ID, is_only_suite
from tile_oracle.session.options import LOCAL, option_value

ALL = 0
"""In place of a number of devices: all that the target has."""
_DEVICES = pytest.StashKey[int]()


def take_devices(config: pytest.Config) -> None:
    """Keeps -n from pytest-xdist where only the suite's tests run: they wait for devices, so workers of
    pytest-xdist would only collect them once more each."""
    asked = config.getoption
    count = asked("numprocesses", None)
    if not count and option_value(config, "--fleet") == LOCAL and not asked("usepdb"):
        config.stash[_DEVICES] = ALL
    names_others = config.args_source is pytest.Config.ArgsSource.ARGS and not all(
        arg.partition("::")[0] == SUITE_ID or is_only_suite([arg]) for arg in config.args
    )
    if not count or names_others or asked("dist") == "each" or asked("usepdb"):
        return
    if option_value(config, "--first"):
        return  # refused with -n
    if not isinstance(count, int):
        count = config.hook.pytest_xdist_auto_num_workers(config=config)
    config.stash[_DEVICES] = min(count, asked("maxprocesses", None) or count)
    config.option.numprocesses, config.option.dist = None, "no"


def devices_of(config: pytest.Config) -> int | None:
    """Returns how many devices measure, or ALL; None for the one of this process, or a cluster's."""
    if config.getoption("dist", "no") != "no":
        from xdist.workermanage import parse_tx_spec_config

        return len(parse_tx_spec_config(config))
    return config.stash.get(_DEVICES, None)
