"""Kernels are compiled by actors on the nodes of a cluster; where they cannot, by the session's process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet.real_engine import LIMIT_S, cluster_of, engine_on, events_until, joined, messages
from tests.pytest_project import KERNELS, PROBLEMS
from tile_oracle.fleet import ray_compilers
from tile_oracle.fleet.ray_engine import RayEngine
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Ended, Row, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.engine import Joined
from tile_oracle.problem import problem_from_id
from tile_oracle.targets import TargetOptions
from tile_oracle.targets.resolve import open_target
from tile_oracle.targets.target import Target
from tools.faults.ray_cluster import RayCluster

pytest.importorskip("ray")
PROBLEM = problem_from_id(PROBLEMS[0])


def kernels(*names: str) -> list[Kernel]:
    return [parse_kernel_name(f"grouped_conv_forward_fp32_2d_{name}") for name in names]


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """Two nodes, each with a cache of its own."""
    with cluster_of(0, monkeypatch) as cluster:
        for number in range(2):
            cluster.add(TILE_ORACLE_CACHE=str(tmp_path / f"node-{number}"))
        yield cluster


@contextmanager
def building(
    cluster: RayCluster, folder: Path, identity: str = ""
) -> Iterator[tuple[Target, RayEngine, Builds]]:
    """The target of a session, its engine and its builds. identity: of its sources, if not the target's."""
    here = open_target("cpu", TargetOptions(build_dir=folder / "driver"))
    fleet = engine_on(cluster)
    builds = Builds(here, fleet.ship, fleet.compilers(identity or here.source_identity()))
    yield here, fleet, builds
    for one in (builds, fleet, here):
        one.close()


def wait_for(builds: Builds) -> None:
    end = time.monotonic() + LIMIT_S
    while builds.outstanding:
        assert time.monotonic() < end
        builds.ready()
        time.sleep(0.05)


def entries(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("*/*.entry")}


@pytest.mark.slow
def test_kernels_are_compiled_once_over_the_nodes_and_shipped_to_the_devices(
    two_nodes: RayCluster, tmp_path: Path
) -> None:
    with building(two_nodes, tmp_path) as (here, fleet, builds):
        every = kernels(*KERNELS, *(name.replace("x64_", f"x{k}_") for name in KERNELS for k in (16, 32, 48)))
        both = events_until(fleet, lambda events: len(joined(events)) == 2)
        assert all(event.remote for event in both if isinstance(event, Joined))
        assert not builds.want("all", PROBLEM, every)
        wait_for(builds)
        assert here.builder.stats().compiled == 0
        built = [entries(tmp_path / f"node-{number}") for number in range(2)]
        assert all(built), "both nodes compile"
        assert not built[0] & built[1], "nothing is compiled twice"
        assert entries(tmp_path / "driver") == built[0] | built[1]
        assert sorted(one.compiled for one in builds.places) == sorted(map(len, built))
        names = tuple(kernel.name for kernel in every)
        for number, device in enumerate(joined(both)):
            binaries = builds.binaries(every, remote=True)
            fleet.assign(device, Work(number, PROBLEM.id, names, finals=False, binaries=binaries))
        told = events_until(fleet, lambda events: sum(isinstance(m, Ended) for m in messages(events)) == 2)
        rows = [m for m in messages(told) if isinstance(m, Row)]
        assert len(rows) == 2 * len(every)
        assert {row.result.status for row in rows} <= {"ok", "noisy"}
        for number in range(2):
            assert entries(tmp_path / f"node-{number}") == built[0] | built[1]


@pytest.mark.slow
def test_nodes_that_would_build_other_binaries_build_none_and_the_driver_builds_all(
    two_nodes: RayCluster, tmp_path: Path
) -> None:
    with building(two_nodes, tmp_path, "another toolchain's") as (here, _, builds):
        assert not builds.want("all", PROBLEM, kernels(*KERNELS))
        wait_for(builds)
        assert here.builder.stats().compiled == len(KERNELS)
        assert {one.why for one in builds.places} == {
            "its compiler, its CPU or its sources are not those of the session's machine"
        }


@pytest.mark.slow
def test_kernels_that_actors_do_not_return_are_compiled_by_the_driver(
    two_nodes: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_compilers, "_LONGEST_S", 0.0)
    with building(two_nodes, tmp_path) as (here, _, builds):
        assert not builds.want("all", PROBLEM, kernels(*KERNELS))
        wait_for(builds)
        assert here.builder.stats().compiled == len(KERNELS)
