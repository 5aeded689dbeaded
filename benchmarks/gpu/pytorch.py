"""What PyTorch has for a product or a forward convolution: its own choice, and Inductor's tuned one.

`python -m benchmarks.gpu.pytorch PROBLEMS OUTPUT DEVICE PART PARTS` tunes part PART of PARTS of the problems
and adds a line of JSON a problem to OUTPUT: its id and the seconds. What is tuned lies in
TORCHINDUCTOR_CACHE_DIR, where another process finds it. Processes that tune at once take turns on the GPU, as
sessions do.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_sets

MODE = "max-autotune-no-cudagraphs"
Operation = Callable[[Any, Any], Any]


def operation(torch: Any, problem: Problem) -> Operation:
    """Returns the function of both operands, as `views` makes them, that computes the problem's result."""
    if isinstance(problem, GemmProblem):
        a_by_row, b_by_row = (order == "r" for order in problem.layout[:2])

        def product(a: Any, b: Any) -> Any:
            return torch.mm(a if a_by_row else a.t(), b if b_by_row else b.t())

        return product
    assert isinstance(problem, GroupedConvProblem), problem.op
    assert (problem.direction, problem.ndim) == ("forward", 2), "forward and 2D are what is compared"
    stride, pad, dilation, groups = problem.stride, problem.pad, problem.dilation, problem.G

    def convolution(image: Any, weight: Any) -> Any:
        return torch.nn.functional.conv2d(image, weight, None, stride, pad, dilation, groups)

    return convolution


def views(problem: Problem, first: Any, second: Any) -> tuple[Any, Any]:
    """Returns both operands, flat tensors, as PyTorch's operation takes them: images in channels_last."""
    if isinstance(problem, GemmProblem):
        a, b = ((problem.M, problem.K), (problem.K, problem.N))
        by_row = (order == "r" for order in problem.layout[:2])
        shapes = [shape if straight else shape[::-1] for shape, straight in zip((a, b), by_row, strict=True)]
        return first.view(shapes[0]), second.view(shapes[1])
    assert isinstance(problem, GroupedConvProblem)
    batch, channels = problem.N, problem.C
    image = first.view(batch, *problem.input_spatial, channels).permute(0, 3, 1, 2)
    weight = second.view(problem.K, *problem.filter, channels // problem.G).permute(0, 3, 1, 2)
    return image, weight


def tuned(torch: Any, problem: Problem, operands: tuple[Any, Any]) -> tuple[Operation, float]:
    """Returns the operation compiled by Inductor, tuned for these operands, and the seconds that it took."""
    torch._dynamo.reset()
    compiled = torch.compile(operation(torch, problem), mode=MODE, dynamic=False)
    began = time.monotonic()
    with torch.no_grad():
        compiled(*operands)
    if operands[0].is_cuda:
        torch.cuda.synchronize()
    return compiled, time.monotonic() - began


def random_operands(torch: Any, problem: Problem, device: str) -> tuple[Any, Any]:
    """Returns operands of the problem's shapes, as `views` makes them, of normally distributed values."""
    flat = [
        torch.randn(math.prod(shape), device=device, dtype=torch.bfloat16)
        for shape in problem.operand_shapes[:2]
    ]
    return views(problem, *flat)


def take_turns(torch: Any) -> None:
    """Makes Inductor's timing wait for its turn on the GPU."""
    from torch._inductor.runtime.benchmarking import benchmarker

    from tile_oracle.device.runtime.cuda import open_cuda
    from tile_oracle.device.turn_lock import GpuLock

    torch.cuda.init()
    lock = GpuLock(open_cuda().properties().identity)
    times = benchmarker.benchmark_gpu

    def benchmark_gpu(*arguments: Any, **options: Any) -> Any:
        lock.acquire()
        try:
            return times(*arguments, **options)
        finally:
            lock.release()

    benchmarker.benchmark_gpu = benchmark_gpu


def main(problem_set: str, output: str, device: str, part: str, parts: str) -> None:
    """Tunes a part of the problems."""
    import torch

    torch.backends.cudnn.benchmark = False
    if device == "cuda":
        take_turns(torch)
    with Path(output).open("a", encoding="utf-8", buffering=1) as file:
        for problem in load_problem_sets(problem_set).problems[int(part) :: int(parts)]:
            found: dict[str, Any] = {"problem": problem.id, "pid": os.getpid()}
            try:
                found["seconds"] = tuned(torch, problem, random_operands(torch, problem, device))[1]
            except Exception as error:  # whatever Inductor's compilers raise
                found["failed"] = f"{type(error).__name__}: {error}"[:400]
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:6])
