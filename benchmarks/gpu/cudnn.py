"""The vendor's convolutions through PyTorch: bf16, channels_last, benchmark mode, timed from CUDA graphs."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem_set import load_problem_sets

_GRAPH_MS = 1.0
_REPLAYS = 20
_MOST_REPEATS = 200


def time_convolution(torch: Any, problem: GroupedConvProblem, device: str = "cuda") -> float:
    """Milliseconds of one forward convolution: median over graphs of their mean run."""
    p = problem
    assert (p.direction, p.dtype) == ("forward", "bf16"), "forward and bf16 are what is compared"
    layout = torch.channels_last if p.ndim == 2 else torch.channels_last_3d
    options = {"device": device, "dtype": torch.bfloat16}
    image = torch.randn((p.N, p.C, *p.input_spatial), **options).to(memory_format=layout)
    weight = torch.randn((p.K, p.C // p.G, *p.filter), **options).to(memory_format=layout)
    convolve = torch.nn.functional.conv2d if p.ndim == 2 else torch.nn.functional.conv3d

    def run() -> None:
        convolve(image, weight, None, p.stride, p.pad, p.dilation, p.G)

    return time_cpu(run) if device == "cpu" else time_graph(torch, run)


def time_cpu(run: Callable[[], None]) -> float:
    """For dry runs."""
    import time

    began = time.monotonic()
    run()
    return 1e3 * (time.monotonic() - began)


def time_graph(torch: Any, run: Callable[[], None]) -> float:
    """Of as many runs in a graph as fill a millisecond; 20 graphs, the first ones not counted."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # benchmark mode chooses its algorithm in the first
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    once = _median_ms(torch, _graph(torch, run, 1), 5)
    repeats = max(1, min(_MOST_REPEATS, math.ceil(_GRAPH_MS / max(once, 1e-3))))
    return _median_ms(torch, _graph(torch, run, repeats), _REPLAYS) / repeats


def _graph(torch: Any, run: Callable[[], None], repeats: int) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    return graph


def _median_ms(torch: Any, graph: Any, count: int) -> float:
    for _ in range(3):
        graph.replay()
    taken = []
    for _ in range(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def main(problem_set: str, output: str, device: str) -> None:
    """Writes {problem id: milliseconds} for a problem set."""
    import torch

    torch.backends.cudnn.benchmark = True
    found = {}
    for problem in load_problem_sets(problem_set).problems:
        assert isinstance(problem, GroupedConvProblem)
        found[problem.id] = time_convolution(torch, problem, device)
        print(f"{problem.id} {found[problem.id]:.4f} ms", flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
    Path(output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
