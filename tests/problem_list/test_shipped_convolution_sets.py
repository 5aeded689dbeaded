"""Properties of the shipped training and validation sets of convolutions."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from tile_oracle.judge.slices import slices_of
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem_set import ProblemSet, load_problem_set

KINDS = ("training", "held_out")


@cache
def shipped(direction: str, kind: str) -> ProblemSet:
    if kind == "held_out":
        kind = "unseen_300" if direction == "forward" else "validation_300"
    return load_problem_set(f"{direction}_{kind}")


def layers(problem_set: ProblemSet) -> set[GroupedConvProblem]:
    return {dataclasses.replace(p, N=1, direction="forward", dtype="bf16") for p in problem_set.problems}


def architectures(problem_set: ProblemSet) -> set[str]:
    labels = {source.split("@")[0].split("[")[0] for source in problem_set.sources}
    return {label for label in labels if not label.startswith("synthetic:")}


def share(problem_set: ProblemSet, name: str) -> float:
    return sum(name in slices_of(p) for p in problem_set.problems) / len(problem_set.problems)


@pytest.mark.parametrize("direction", DIRECTIONS)
class TestBothKinds:
    def test_counts(self, direction: str) -> None:
        assert len(shipped(direction, "training").problems) >= 1300
        assert len(shipped(direction, "held_out").problems) == 300

    def test_no_architecture_and_no_layer_is_in_both(self, direction: str) -> None:
        validation = shipped(direction, "held_out")
        for other in DIRECTIONS:
            training = shipped(other, "training")
            assert not architectures(training) & architectures(validation)
            if other == direction:
                assert not layers(training) & layers(validation)

    def test_validation_keys_are_in_no_training_set(self, direction: str) -> None:
        keys = {p.key for p in shipped(direction, "held_out").problems}
        assert not any(keys & {p.key for p in shipped(other, "training").problems} for other in DIRECTIONS)

    @pytest.mark.parametrize("kind", KINDS)
    def test_direction_dtype_and_sources(self, direction: str, kind: str) -> None:
        problem_set = shipped(direction, kind)
        assert {(p.direction, p.dtype) for p in problem_set.problems} == {(direction, "bf16")}
        for source in problem_set.sources:
            assert source.startswith(("timm/", "torchvision/", "synthetic:"))
            assert source.startswith("synthetic:") or "@" in source
        synthetic = sum(source.startswith("synthetic:") for source in problem_set.sources)
        assert synthetic < 0.35 * len(problem_set.problems)

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_of_layer_is_there_and_none_drowns_the_rest(self, direction: str, kind: str) -> None:
        problem_set = shipped(direction, kind)
        count = len(problem_set.problems)
        assert sum(p.G > 1 for p in problem_set.problems) >= 0.2 * count
        assert share(problem_set, "dilated") * count >= 8
        assert share(problem_set, "3D") * count >= 12
        assert share(problem_set, "odd channels") >= 0.05
        assert share(problem_set, "depthwise") >= 0.1
        assert share(problem_set, "1x1") < 0.35

    @pytest.mark.parametrize("kind", KINDS)
    def test_work_spans_the_bands(self, direction: str, kind: str) -> None:
        gflops = [p.flops / 1e9 for p in shipped(direction, kind).problems]
        most, mean = (400, 10) if kind == "training" else (120, 5)
        assert max(gflops) <= most
        assert sum(gflops) / len(gflops) <= mean
        assert sum(g < 0.01 for g in gflops) < 0.2 * len(gflops)
        assert sum(g >= 1 for g in gflops) > 0.2 * len(gflops)
        assert any(g > 100 for g in gflops)
        assert all(p.bytes <= 10**9 for p in shipped(direction, kind).problems)

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_header_states_how_it_was_made(self, direction: str, kind: str) -> None:
        said = " ".join(shipped(direction, kind).provenance.split())
        assert f"Made by: tile-oracle crawl --out-dir problems --direction {direction} with timm" in said
        for part in (
            "torch 2.",
            "torchvision 0.",
            "seed 1",
            "Held out for validation, whole families:",
            "strata",
        ):
            assert part in said

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_beginning_is_a_fair_sample(self, direction: str, kind: str) -> None:
        problems = shipped(direction, kind).problems
        first = problems[: len(problems) // 5]
        grouped = [sum(p.G > 1 for p in part) / len(part) for part in (first, problems)]
        assert abs(grouped[0] - grouped[1]) < 0.15
        assert len({name for p in first for name in slices_of(p)}) >= 8


@pytest.mark.parametrize("kind", KINDS)
def test_the_directions_are_not_copies_of_each_other(kind: str) -> None:
    forward, data, weight = (
        {p.key[2:] for p in shipped(direction, kind).problems} for direction in DIRECTIONS
    )
    forward, data, weight = ({key[1:] for key in keys} for keys in (forward, data, weight))
    assert len(forward & data) < 0.6 * len(forward)
    assert len(data & weight) < 0.6 * len(data)


class TestThePublishedSet:
    def test_it_is_the_published_list_without_its_repetition(self) -> None:
        published = load_problem_set("forward_validation_300")
        numbers = {int(source.removeprefix("published/")) for source in published.sources}
        assert numbers == set(range(300)) - {212}
        assert {(p.direction, p.dtype, p.ndim) for p in published.problems} == {("forward", "bf16", 2)}
        assert sum(p.G == 1 for p in published.problems) == 230

    def test_none_of_its_layers_is_trained_on(self) -> None:
        assert not layers(load_problem_set("forward_validation_300")) & layers(shipped("forward", "training"))
