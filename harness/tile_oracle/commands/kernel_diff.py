"""`tile-oracle pool list --diff A B`: what changed between two versions of a pool."""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.compiling.drift import Drift, PoolVersion
from tile_oracle.terminal.text_table import text_table


def diff_lines(drift: Drift, first: int) -> list[str]:
    """Returns a table of counts, then the first names of each kind of difference and the first groups of
    twins."""
    rows = [("", "kernels", "distinct binaries", "made by")]
    rows += [_side("A", drift.a), _side("B", drift.b)]
    lines = [f"A: {drift.a.where}", f"B: {drift.b.where}", "", *text_table(rows, right_aligned=(1, 2))]
    for title, names in _groups(drift).items():
        if names:
            lines += ["", f"{title}: {len(names):,}", *_shown(names, first)]
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


def _groups(drift: Drift) -> dict[str, Sequence[str]]:
    return {
        "gained (only in B)": drift.gained,
        "lost (only in A)": drift.lost,
        "renamed (one binary, two names)": [f"{a} -> {b}" for a, b in drift.renamed],
        "changed (same name, other binary)": drift.changed,
        "groups of names in B that are one binary": [" = ".join(names) for names in drift.b.twins()],
    }


def _side(letter: str, side: PoolVersion) -> tuple[str, str, str, str]:
    return letter, f"{len(side.kernels):,}", f"{len({*side.kernels.values()}):,}", side.made_by


def _shown(names: Sequence[str], first: int) -> list[str]:
    lines = [f"  {name}" for name in names[:first]]
    return [*lines, f"  and {len(names) - first:,} more (--first N)"] if len(names) > first else lines


def _summary(drift: Drift) -> str:
    if not drift:
        return f"no difference in {len(drift.same):,} kernels"
    return (
        f"{len(drift.gained):,} gained, {len(drift.lost):,} lost, {len(drift.renamed):,} renamed, "
        f"{len(drift.changed):,} changed, {len(drift.same):,} the same"
    )
