"""Problems for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem


def _extent(least: int = 1) -> st.SearchStrategy[int]:
    return st.integers(least, 40)


@st.composite
def problems(draw: st.DrawFn) -> GroupedConvProblem:
    ndim, groups = draw(st.sampled_from((2, 3))), draw(st.integers(1, 4))
    values = {"N": draw(_extent()), "G": groups, "C": groups * draw(_extent()), "K": groups * draw(_extent())}
    for axis, inside, taps in (("d", "Di", "Z"), ("h", "Hi", "Y"), ("w", "Wi", "X"))[3 - ndim :]:
        pad, dilation = draw(st.integers(0, 3)), draw(st.integers(1, 3))
        values |= {
            f"pad_{axis}": pad,
            f"dilation_{axis}": dilation,
            f"stride_{axis}": draw(st.integers(1, 3)),
        }
        values[taps] = draw(st.integers(1, 5))
        values[inside] = draw(_extent(max(1, (values[taps] - 1) * dilation + 1 - 2 * pad)))
    return GroupedConvProblem(
        draw(st.sampled_from(DIRECTIONS)), draw(st.sampled_from(DTYPES)), ndim, **values
    )
