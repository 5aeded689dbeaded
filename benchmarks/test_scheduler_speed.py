"""The controller's own time for dealing out 136,200 tests to eight workers of pytest-xdist."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture
from xdist.remote import Producer

from tile_oracle.session.expected_time import expected_times
from tile_oracle.session.scheduler import ProblemScheduling

WORKERS, PROBLEMS, KERNELS = 8, 300, 454


class Node:
    """Runs nothing: takes what it is sent."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: deque[int] = deque()
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def deal_out(tests: list[str]) -> int:
    config: Any = SimpleNamespace(getvalue=lambda name: [f"{WORKERS}*popen"])
    log = Producer("benchmark", enabled=False)
    scheduler = ProblemScheduling(config, log, lambda counts: expected_times(counts, None))
    nodes = [Node(f"gw{number}") for number in range(WORKERS)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, list(tests))
    scheduler.schedule()
    finished = 0
    while not scheduler.tests_finished:
        for node in nodes:
            if node.sent:
                test = node.sent.popleft()
                scheduler.begun(tests[test])
                scheduler.ended(tests[test])
                scheduler.mark_test_complete(node, test)
                finished += 1
    return finished + sum(len(node.sent) for node in nodes)


def test_dealing_out_136200_tests(benchmark: BenchmarkFixture) -> None:
    tests = [
        f"tile_oracle::test_kernel[forward-bf16-n{problem}-c64-k64-i56x56-f3x3-p1-"
        f"64x64x64_compv3_intrawave_w2x2x1_wt16x16x{kernel}]"
        for problem in range(1, PROBLEMS + 1)
        for kernel in range(KERNELS)
    ]
    assert benchmark.pedantic(deal_out, (tests,), rounds=3) == len(tests)
