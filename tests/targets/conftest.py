"""Targets that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tile_oracle.targets import TargetOptions
    from tile_oracle.targets.target import Target

Resolve = Callable[..., "tuple[Target, str]"]


@pytest.fixture
def options(tmp_path: Path) -> TargetOptions:
    from tile_oracle.targets import TargetOptions

    return TargetOptions(toolchain="ziglang", build_dir=tmp_path / "build", jobs=1)


@pytest.fixture
def resolve(options: TargetOptions) -> Iterator[Resolve]:
    """resolve(name, options): the target, and why it was chosen."""
    from tile_oracle.targets import resolve_target

    with ExitStack() as opened:

        def make(name: str, asked: TargetOptions = options) -> tuple[Target, str]:
            target, why = resolve_target(name, asked)
            opened.callback(target.close)
            return target, why

        yield make
