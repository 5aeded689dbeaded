"""Rankings are ordered by problem, then prediction, then name."""

from __future__ import annotations

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.judge.ranking import Ranking

NAMES = st.sampled_from(["a", "b", "ba", "c"])
PAIRS = st.dictionaries(st.tuples(NAMES, NAMES), st.sampled_from([0.0, 1.0, 2.5]), max_size=12)


def table_of(pairs: dict[tuple[str, str], float]) -> pd.DataFrame:
    rows = [(problem, kernel, value) for (problem, kernel), value in pairs.items()]
    return pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])


@given(PAIRS)
def test_the_order_is_that_of_a_sorted_table(pairs: dict[tuple[str, str], float]) -> None:
    rankings = table_of(pairs)
    ordered = rankings.sort_values(["problem", "predicted_tflops", "kernel"], ascending=[True, False, True])
    order = Ranking.of(rankings)
    expected = [
        (problem, group["kernel"].tolist(), group["predicted_tflops"].tolist())
        for problem, group in ordered.groupby("problem", sort=False)
    ]
    assert list(order.of_problems()) == expected
    ranks = ordered.groupby("problem").cumcount() + 1
    assert order.ranks.tolist() == ranks.tolist()
    assert not order.has_duplicates


@given(PAIRS, st.integers(1, 3), NAMES)
def test_the_best_are_the_first_ones_and_the_oracle(
    pairs: dict[tuple[str, str], float], most: int, oracle: str
) -> None:
    found = Ranking.of(table_of(pairs)).best(most, {"a": oracle, "b": "nowhere"})
    wanted = []
    for problem in ("a", "b"):
        listed = sorted((-value, kernel) for (name, kernel), value in pairs.items() if name == problem)
        for rank, (value, kernel) in enumerate(listed, 1):
            if rank <= most or (problem == "a" and kernel == oracle):
                wanted.append((problem, kernel, -value, rank))
    assert list(found.itertuples(index=False, name=None)) == wanted


def test_a_pair_that_is_ranked_twice_is_found() -> None:
    rows = [("p", "k", 1.0), ("p", "k", 2.0)]
    assert Ranking.of(pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])).has_duplicates
