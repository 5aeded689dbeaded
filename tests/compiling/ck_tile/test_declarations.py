"""Reads C++ declarations by name, as in CK Tile's headers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.compiling.ck_tile.declarations import (
    Parameter,
    constructor_parameters,
    find_template,
    split_list,
    without_comments,
)

TEXT = """
template <typename T> struct Problem;
template <typename A_, bool Flag_ = (1 > 0), int N_ = sizeof(pair<A_, int>), template <class> class C_ = Box>
struct Problem
{
    Problem() = default;
    Problem(const pair<A_, int>& first_, void (*call_)(int, int), int last_ = 3) {}
    Problem(int one_);
    struct Inner { int x; };
    enum { last = 1 };
};
template <> struct Problem<int> {};
using Short = Problem<int>;
template <class X = int> using Alias = Problem<X>;
int outside;
"""


def test_parameters_and_the_longest_constructor_have_their_defaults() -> None:
    found = find_template(TEXT, "Problem")
    assert found.parameters == (
        Parameter("A_", None),
        Parameter("Flag_", "(1 > 0)"),
        Parameter("N_", "sizeof(pair<A_, int>)"),
        Parameter("C_", "Box"),
    )
    assert found is not None
    parameters = constructor_parameters(found)
    assert parameters is not None
    assert [(p.name, p.default) for p in parameters][::2] == [("first_", None), ("last_", "3")]
    text = "template <class A, int N = 4> struct S;\ntemplate <class A, int N> struct S { };"
    found = find_template(text, "S")
    assert found.parameters == (Parameter("A", None), Parameter("N", "4"))
    assert find_template(TEXT, "Prob") is None
    assert find_template("template <class T> struct Only;", "Only") is None
    plain = find_template("struct Plain { int x; };", "Plain")
    assert plain is not None
    assert constructor_parameters(plain) is None


def test_code_that_the_preprocessor_or_a_comment_hides_is_no_code() -> None:
    text = without_comments(
        "#if 0\nstruct A { int gone; };\n#endif\n"
        "  # if 0 // off\nstruct B {};\n  # else\nstruct C { int kept; };\n  # endif\n"
    )
    assert find_template(text, "A") is None
    assert find_template(text, "B") is None
    kept = find_template(text, "C")
    assert "int kept" in kept.body
    text = without_comments('struct A { // }\n /* } */ const char* s = "}"; int end; };')
    found = find_template(text, "A")
    assert "end" in found.body


_WORD = st.text("abcxyz_ 019", min_size=1, max_size=8).map(str.strip).filter(bool)
_PART = st.recursive(
    _WORD,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"f<{', '.join(parts)}>"),
    max_leaves=6,
)


@given(st.lists(_PART, min_size=1, max_size=6))
def test_a_list_is_split_at_its_own_commas_only(parts: list[str]) -> None:
    assert split_list(", ".join(parts)) == parts


@given(st.text("<>(){}[],=; template struct S\n", max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    found = find_template(without_comments(text), "S")
    if found is not None:
        constructor_parameters(found)
