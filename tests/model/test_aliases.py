"""Aliases are found, merged, and picked by their faster twin."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.features.hardware import hardware_features
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import UNMEASURED_CAUTION, Aliases, _agree, find_aliases, merge, noise_of
from tile_oracle.model.physics import PhysicalModel, explain_aliases
from tile_oracle.training.training_rows import training_rows


@pytest.fixture(scope="module")
def twins() -> pd.DataFrame:
    """Records in which compv5 has the times of compv3 with the same tile."""
    return make_records(make_problems(30), make_kernels(("compv3", "compv5")))


def test_only_twins_are_found_by_their_times(twins: pd.DataFrame) -> None:
    groups = find_aliases(training_rows(twins).table).groups()
    assert len(groups) == 10
    for names in groups.values():
        assert len({parse_kernel_name(name).tile for name in names}) == 1


def test_too_few_shared_problems_make_no_alias(twins: pd.DataFrame) -> None:
    few = twins[twins["problem"].isin(sorted(twins["problem"].unique())[:10])]
    assert find_aliases(training_rows(few).table).groups() == {}


def test_identical_binaries_are_aliases_with_any_number_of_problems(twins: pd.DataFrame) -> None:
    few = twins[twins["problem"] == twins["problem"].iloc[0]].assign(source_hash=None)
    names = sorted(few["kernel"].unique())[:3]
    few.loc[few["kernel"].isin(names), "source_hash"] = "abc"
    aliases = find_aliases(training_rows(few).table)
    assert list(aliases.groups().values()) == [names]
    assert aliases.because == {names[0]: "identical binaries"}


def test_merging_gives_one_row_per_distinct_kernel(twins: pd.DataFrame) -> None:
    rows = training_rows(twins).table
    aliases = find_aliases(rows)
    merged = merge(rows, aliases)
    assert len(merged) == 30 * 10
    assert set(merged["measurements"]) == {2}
    assert set(merged["kernel"]) == set(aliases.groups())
    both = rows[rows["kernel"].map(aliases.representative) == merged["kernel"][0]]
    both = both[both["problem"] == merged["problem"][0]]["latency_ms"]
    assert merged["latency_ms"][0] == pytest.approx(np.sqrt(both.prod()))
    assert len(merge(rows, Aliases({name: name for name in rows["kernel"]}))) == len(rows)


def test_a_group_is_represented_by_the_name_that_explains_its_times(twins: pd.DataFrame) -> None:
    # A kernel that was measured under two more names, with other tiles.
    real = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x128_compv3")
    rows = twins[twins["kernel"] == real.name]
    false_names = [
        parse_kernel_name(f"grouped_conv_forward_bf16_2d_{t}_compv4") for t in ("128x128x64", "64x64x64")
    ]
    copies = [rows.assign(**kernel.as_row(), kernel=kernel.name) for kernel in false_names]
    true_twin = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x128_compv4")
    copies.append(rows.assign(**true_twin.as_row(), kernel=true_twin.name))
    table = training_rows(pd.concat(copies, ignore_index=True)).table
    found = find_aliases(table)
    assert list(found.groups()) != [true_twin.name]  # by name alone another one would stand for the group
    explained = explain_aliases(table, found, hardware_features("gfx950"))
    assert list(explained.groups()) == [true_twin.name]


def test_an_unmeasured_twin_is_predicted_like_the_measured_one_and_goes_first() -> None:
    known = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv3").name
    aliases = Aliases({known: known})
    stands, offset = aliases.stand_in(parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv5").name)
    assert stands == known
    assert offset < 0
    assert aliases.stand_in(known) == (known, 0.0)
    stranger = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_mem").name
    assert aliases.stand_in(stranger) == (stranger, UNMEASURED_CAUTION)


def test_a_kernel_without_coefficients_uses_its_nearest_with_scaled_steps() -> None:
    small = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv3").name
    large = parse_kernel_name("grouped_conv_forward_bf16_2d_64x128x64_compv3").name
    model = PhysicalModel(("start", "first_steps"), {small: (1.0, 2.0)})
    assert model.coefficients_of([small])[0].tolist() == [1.0, 2.0]
    start, step = model.coefficients_of([large])[0].tolist()
    assert start == 1.0
    assert 2.0 < step < 4.0
    assert PhysicalModel.from_json(model.as_json()) == model


def test_aliases_round_trip_through_json(twins: pd.DataFrame) -> None:
    aliases = find_aliases(training_rows(twins).table)
    back = msgspec.convert(aliases.as_json(), Aliases)
    assert back.representative == aliases.representative
    assert back.because == aliases.because


@pytest.mark.parametrize(("strays", "agree"), [(2, True), (3, False)])
def test_nine_in_ten_differences_must_be_within_noise(strays: int, agree: bool) -> None:
    """Of 20 problems; of fewer nothing is known."""
    times = np.ones((20, 2))
    times[:strays, 1] = np.exp(5.0 * np.sqrt(2.0) * float(noise_of(1.0)))
    assert _agree(times, 0).tolist() == [agree]
    assert _agree(times[:-1], 0).tolist() == [False]
    assert _agree(np.where(np.arange(20)[:, None] < 19, times, np.nan), 0).tolist() == [False]
