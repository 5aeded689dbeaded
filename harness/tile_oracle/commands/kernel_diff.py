"""`tile-oracle pool list --diff A B`: what changed between two versions of a pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tile_oracle.compiling.drift import Drift, PoolVersion
from tile_oracle.terminal.text_table import text_table


@dataclass(frozen=True)
class _Group:
    title: str
    names: tuple[str, ...]


def diff_lines(drift: Drift, first: int) -> list[str]:
    """Returns a table of counts, then the first names of each kind of difference and the first groups of
    twins."""
    rows = [("", "kernels", "distinct binaries", "made by")]
    rows += [_side("A", drift.a), _side("B", drift.b)]
    lines = [f"A: {drift.a.where}", f"B: {drift.b.where}", "", *text_table(rows, right_aligned=(1, 2))]
    for group in _groups(drift):
        if group.names:
            lines += ["", f"{group.title}: {len(group.names):,}", *_shown(group.names, first)]
    lines += ["", _summary(drift)]
    return lines


def diff_document(drift: Drift) -> dict[str, object]:
    """Returns all differences as one JSON object."""
    return {
        "a": {"where": drift.a.where, "made_by": drift.a.made_by, "kernels": len(drift.a.kernels)},
        "b": {"where": drift.b.where, "made_by": drift.b.made_by, "kernels": len(drift.b.kernels)},
        "gained": drift.gained,
        "lost": drift.lost,
        "renamed": [{"a": before, "b": after} for before, after in drift.renamed],
        "changed": drift.changed,
        "same": len(drift.same),
        "twins": {"a": drift.a.twins(), "b": drift.b.twins()},
    }


def _groups(drift: Drift) -> Iterator[_Group]:
    yield _Group("gained (only in B)", drift.gained)
    yield _Group("lost (only in A)", drift.lost)
    yield _Group("renamed (one binary, two names)", tuple(f"{a} -> {b}" for a, b in drift.renamed))
    yield _Group("changed (same name, other binary)", drift.changed)
    twins = drift.b.twins()
    yield _Group("groups of names in B that are one binary", tuple(" = ".join(names) for names in twins))


def _side(letter: str, side: PoolVersion) -> tuple[str, str, str, str]:
    return letter, f"{len(side.kernels):,}", f"{len({*side.kernels.values()}):,}", side.made_by


def _shown(names: Iterable[str], first: int) -> list[str]:
    listed = list(names)
    lines = [f"  {name}" for name in listed[:first]]
    return [*lines, f"  and {len(listed) - first:,} more (--first N)"] if len(listed) > first else lines


def _summary(drift: Drift) -> str:
    if not drift:
        return f"no difference in {len(drift.same):,} kernels"
    return (
        f"{len(drift.gained):,} gained, {len(drift.lost):,} lost, {len(drift.renamed):,} renamed, "
        f"{len(drift.changed):,} changed, {len(drift.same):,} the same"
    )
