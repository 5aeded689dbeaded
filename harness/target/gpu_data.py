"""One run of a GPU kernel on a caller's data: copied to the device, and the output back."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from harness.measure.reference import STORAGE
from harness.problem import GroupedConvProblem
from harness.target.base import CheckResult, DataFiles
from harness.target.gpu_abi import LaunchPlan, gpu_args
from harness.target.gpu_work import GUARD_BYTE, GUARD_BYTES, POISON_BYTE, Buffer, DeviceWork
from harness.target.runtime.driver import Arguments, Driver, Launch
from harness.target.stray_values import nan_count, unwritten


class LoadedKernel(Protocol):
    """A kernel on the device. finish: 0 for one of a single stage."""

    @property
    def conv(self) -> int: ...
    @property
    def finish(self) -> int: ...


def data_bytes(problem: GroupedConvProblem) -> int:
    """Device memory that a run needs besides the workspace."""
    return problem.bytes + 8 * GUARD_BYTES


def run_on_data(
    driver: Driver,
    work: DeviceWork,
    problem: GroupedConvProblem,
    data: DataFiles,
    kernel: LoadedKernel,
    plan: LaunchPlan,
) -> CheckResult:
    """See harness.target.base.Device.apply. Raises RuntimeFailure."""
    storage = STORAGE[problem.dtype]
    buffers: list[Buffer] = []

    def buffer(size_bytes: int, guard: int = GUARD_BYTE) -> Buffer:
        buffers.append(Buffer(driver, size_bytes, guard))
        return buffers[-1]

    try:
        given = [path.read_bytes() for path in (data.first, data.second)]
        operands = [buffer(len(values), POISON_BYTE) for values in given]
        for operand, values in zip(operands, given, strict=True):
            driver.copy_in(operand.address, values)
        written = {"output": buffer(math.prod(problem.operand_shapes[2]) * storage.itemsize)}
        if plan.workspace_bytes:
            written["workspace"] = buffer(plan.workspace_bytes)
        for one in written.values():
            one.poison()
        out, scratch = written["output"], written.get("workspace")
        first, second = (operand.address for operand in operands)
        workspace = scratch.address if scratch is not None else 0
        arguments = Arguments(gpu_args(problem, first, second, out.address, workspace, plan.split_k))
        driver.launch(Launch(kernel.conv, plan.conv, arguments))
        if plan.finish is not None:
            driver.launch(Launch(kernel.finish, plan.finish, arguments))
        driver.synchronize()
        for name, one in written.items():
            damaged = work.damaged_guard_bytes(one)
            if damaged:
                return CheckResult("wrong", f"wrote {damaged:,} bytes beside its {name}", tainted=True)
        result = driver.copy_out(out.address, out.size_bytes)
    finally:
        for one in buffers:
            one.close()
    missing = unwritten(np.frombuffer(result, storage))
    # A NaN that the caller put in may come out as any NaN.
    if missing and not any(nan_count(np.frombuffer(v, storage), problem.dtype) for v in given):
        return CheckResult("wrong", missing)
    data.out.write_bytes(result)
    return CheckResult("ok")
