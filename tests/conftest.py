"""Fixtures shared by several folders of tests: misbehaving kernels (tests/evil_kernels), users' projects."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.measured_tables import *  # noqa: F403

if TYPE_CHECKING:
    from tests.kernels.emulated_gpu.machine import EmulatedMachine
    from tests.pytest_project import Project
    from tile_oracle.device.cpu import CpuDevice
    from tile_oracle.session.options import SessionOptions

# Thousands of processes start in the tests: they share the modules that one of them compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Other tests run on the same cores: a thread of LightGBM that waits for another sleeps and does not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

EVIL_FOLDER = Path(__file__).parent / "evil_kernels"


# Modules of the tests, as for scripts by PYTHONPATH: imported by those tests that need them, because sessions
# in this folder load this file, too.
sys.path.append(str(EVIL_FOLDER))


def pytest_pycollect_makemodule() -> None:
    """Before the first module of tests: sessions in this folder load this file, too, and hypothesis takes a
    quarter of a second."""
    _set_hypothesis_profile()


@cache
def _set_hypothesis_profile() -> None:
    from hypothesis import HealthCheck, settings

    # No test hangs on how fast the machine is, and every run draws the same examples, but the nightly one.
    settings.register_profile(
        "tile_oracle",
        deadline=None,
        max_examples=40,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="TILE_ORACLE_NEW_EXAMPLES" not in os.environ,
    )
    settings.load_profile("tile_oracle")


@pytest.fixture(scope="session")
def evil_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session's evil kernels are built: what a script gives to `evil_builder`."""
    return tmp_path_factory.mktemp("evil")


@pytest.fixture(scope="session")
def evil_builder(evil_folder: Path) -> Iterator[object]:
    """The session's builder (tile_oracle.compiling.builder.Builder) of evil kernels."""
    from evil_target import evil_builder as make

    with make(evil_folder) as builder:
        yield builder


@pytest.fixture(scope="session")
def emulated_machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], EmulatedMachine]:
    """Makes a machine with emulated GPUs for an architecture; it is shared by all tests."""
    from tests.kernels.emulated_gpu.machine import make_machine

    base = _common_folder(tmp_path_factory) / "emulated-machines"
    return cache(lambda arch: make_machine(base / arch, arch))


def _common_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workers of pytest-xdist have folders of their own below a common one."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Project]:
    """Makes projects of users (tests.pytest_project); all of them share one cache of compiled kernels."""
    from tests.pytest_project import Project

    compiled = _common_folder(tmp_path_factory) / "compiled-kernels"
    return lambda: Project(tmp_path_factory.mktemp("project"), compiled)


@pytest.fixture
def read_command_line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SessionOptions]]:
    """Reads the options of a session as pytest does in the working folder."""
    from _pytest.config import _prepareconfig

    from tile_oracle.session.options import read_options

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    opened: list[pytest.Config] = []

    def read(*arguments: str) -> SessionOptions:
        opened.append(_prepareconfig(["-ptile_oracle.plugin", "-pno:cacheprovider", *arguments]))
        return read_options(opened[-1])

    yield read
    for config in opened:
        config._ensure_unconfigure()


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    """The CPU as a device of this process."""
    from tile_oracle.device.cpu import open_device

    opened = open_device()
    yield opened
    opened.idle()  # a core that this process keeps is one that others wait for


@pytest.fixture
def project(make_project: Callable[[], Project]) -> Project:
    """A fresh project of a user."""
    return make_project()
