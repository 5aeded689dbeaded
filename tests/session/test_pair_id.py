"""Ids of tests and the pairs in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.pools import gemm_pool, kernel_pool
from tests.samples import sampled
from tile_oracle.kernel import Kernel
from tile_oracle.problem import problem_from_id
from tile_oracle.problem_set import list_problem_sets, load_problem_set
from tile_oracle.session.pair_id import pair_id, pair_of
from tile_oracle.session.pytest_private import share_place

KERNELS = (
    *kernel_pool("forward", "bf16", 2, arch="gfx950", rules="default"),
    *kernel_pool("bwd_weight", "fp16", 3, arch="gfx950", rules="full-tests"),
)
GEMM_KERNELS = gemm_pool("bf16", "rcr", arch="gfx950", rules="default")


@pytest.mark.parametrize("name", sampled(list_problem_sets(), every=4))
def test_problems_are_parsed_from_test_ids(name: str) -> None:
    for place, problem in enumerate(load_problem_set(name).problems):
        kernels = GEMM_KERNELS if problem.op == "gemm" else KERNELS
        kernel = kernels[place % len(kernels)]
        assert pair_of(f"tile_oracle::test_kernel[{pair_id(problem, kernel)}]") == (
            problem.id,
            kernel.short_name,
        )
        assert pair_of(f"test_own.py::TestIt::test_it[{problem.id}]") == (problem.id, None)


@pytest.mark.parametrize(
    ("problem", "kernels"),
    [
        ("bwd_data-fp16-n2-g8-c64-k64-i7x9x11-f1x3x3-s1x2x2-p0x1x1-d1x2x2", KERNELS),
        ("gemm-bf16-rcr-m1-n2-k3-s2", GEMM_KERNELS),
    ],
)
def test_kernels_are_parsed_from_test_ids_with_other_parameters(
    problem: str, kernels: Sequence[Kernel]
) -> None:
    one = problem_from_id(problem)
    for kernel in kernels:
        pair = pair_id(one, kernel)
        for nodeid in (f"t.py::t[{pair}]", f"t.py::t[a-{pair}-b]", f"t.py::t[fast-{pair}]", f"t[{pair}-1]"):
            assert pair_of(nodeid) == (problem, kernel.short_name)


@pytest.mark.parametrize(
    "nodeid", ["t.py::t", "t.py::t[forward]", "t.py::forward-bf16-n1", "t.py::t[64x64x64_mem]"]
)
def test_other_test_ids_have_no_pair(nodeid: str) -> None:
    assert pair_of(nodeid) == (None, None)


@pytest.mark.parametrize("value", ["a", "b"])
def test_a_test_has_the_place_that_pytest_finds(request: pytest.FixtureRequest, value: str) -> None:
    item, places = request.node, dict[str, tuple[str, int | None]]()
    found = vars(item).pop("location")
    share_place(item, places)
    assert item.location == found
    del vars(item)["location"]
    share_place(item, places)
    assert vars(item)["location"] == found, "it is not looked for again"
