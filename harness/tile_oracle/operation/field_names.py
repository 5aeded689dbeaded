"""What the fields of an installed operation's problems and kernels must not be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from functools import cache

from tile_oracle.errors import OperationError
from tile_oracle.operation.descriptor import Operation

_NAMES = (
    "run time harness_version round op problem status detail latency_ms latency_min_ms spread samples "
    "precision sampling at_least_ms aligned tflops check check_points check_ms busy_ms build_wait_ms cache "
    "clock_mhz memory_clock_mhz temperature_c power_w throttled target arch implementation device driver "
    "toolchain flags source_hash binary_bytes vgprs agprs sgprs lds_bytes scratch_bytes spills "
    "workgroups_per_cu waves_per_cu loop_matrix_instructions seed kernel "
)
RECORD_COLUMNS = frozenset(_NAMES.split())
"""The columns that records have of every operation."""
_TYPES = ("str", "int", "bool")


def check_fields(operation: Operation, where: str) -> None:
    """Raises OperationError for a field that records cannot have. where: the operation's entry point."""
    for whose in (operation.problem, operation.kernel):
        for field in fields(whose):
            place = f"{where}: the field {field.name} of {whose.__name__}"
            if not isinstance(field.type, str):
                raise OperationError(
                    f"{place} has a type in place of its name: begin the module with "
                    "`from __future__ import annotations`"
                )
            if field.type not in _TYPES:
                raise OperationError(f"{place} is of type {field.type}: records have {', '.join(_TYPES)}")
            if field.name in RECORD_COLUMNS:
                raise OperationError(f"{place} has the name of a column that all records have: rename it")


@cache
def check_importable(module: str, where: str) -> None:
    """Raises OperationError when worker processes, which have no sys.path of this one, cannot import it."""
    if sys.flags.safe_path:  # a worker itself
        return
    package = module.partition(".")[0]
    find = f"import sys; from importlib.util import find_spec; sys.exit(find_spec({package!r}) is None)"
    if subprocess.run([sys.executable, "-P", "-c", find], check=False).returncode:
        raise OperationError(
            f"{where}: workers do not find the package {package}: pip install -e its folder, or put the "
            "folder on PYTHONPATH"
        )
