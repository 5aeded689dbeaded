"""Parts of a descriptor are named by their place, and imported when they are first needed."""

from __future__ import annotations

import pytest

from tests.processes import run_python
from tile_oracle.operation import Operation, deferred, operations, part

PARTS = (
    "kernel_lists", "gpu_source", "ck_tile", "on_device", "on_gpu", "triton_view", "features", "search"
)  # fmt: skip


@pytest.mark.parametrize("operation", tuple(operations()), ids=lambda one: one.name)
def test_every_named_part_of_an_operation_is_there(operation: Operation) -> None:
    loads = [load for name in PARTS if (load := getattr(operation, name)) is not None]
    assert loads
    assert all(load() is not None for load in loads)


def test_places_are_modules_or_objects_in_them() -> None:
    assert part("math")().pi == part("math:pi")()
    assert part(".part:part", "tile_oracle.operation")() is part
    assert deferred("math:hypot")(3, 4) == 5


def test_a_descriptor_imports_none_of_its_parts() -> None:
    code = "import sys, tile_oracle.operations.gemm.descriptor; print(*sys.modules)"
    done = run_python("-c", code, check=True)
    assert "tile_oracle.operations.gemm.descriptor" in done.stdout.split()
    assert not {"numpy", "tile_oracle.operations.gemm.rules"} & set(done.stdout.split())
