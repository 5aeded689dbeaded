"""`tile-oracle pool portfolio`: the kernels that are worth their compile time.

Chooses sets of kernels by the mean efficiency of their fastest kernel: greedily, with swaps. The bound is
an upper limit of the mean of every set of that size on the same problems.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tile_oracle.commands.arguments import AS_JSON, RECORDS_HELP, progress_stream, put, write_text
from tile_oracle.errors import RecordError
from tile_oracle.evaluation.portfolio import (
    PoolEfficiencies,
    Portfolio,
    Summary,
    bound_percent,
    choose,
    pool_efficiencies,
)
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.pages.words import short_name
from tile_oracle.pool.named_kernels import may_be_listed, named_kernels_json
from tile_oracle.problem import kind_text
from tile_oracle.record.dataset import load_records
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.documentation import page
from tile_oracle.terminal.text_table import text_table

EXAMPLES = f"""\
examples:
  tile-oracle pool portfolio reports/my_run                           sets of 4, 8, 16, 32 and 64 kernels
  tile-oracle pool portfolio training.parquet --judge unseen.parquet  and how they do on other problems
  tile-oracle pool portfolio training.parquet --reach 98 -o few.json  the smallest set with a mean of 98 %
  tile-oracle build -o few --arch sm_90 --kernels few.json       build these kernels only
  pytest --problem-set forward_validation_300 --kernels few.json

Every kind of problem has sets of its own. A problem's efficiency is that of the fastest kernel of the set, as
a share of the fastest recorded one; a pair that was not measured counts as 0. {page("pool")} has more.
"""

_SIZES = "4,8,16,32,64"


ARGUMENTS = argument_table(f"""
records RECORDS...  {RECORDS_HELP}
--sizes N,...={_SIZES}  sizes to show
--judge RECORDS*  records of other problems, on which the sets are judged, too (may be repeated)
--reach PERCENT=99  the mean efficiency that counts as enough
-o --output FILE.json  write the kernels as a list for --kernels: of every kind the smallest set that reaches
    --reach, or the largest of --sizes
--json [FILE]  everything {AS_JSON}
""")


@dataclass(frozen=True)
class KindResult:
    """The portfolios of one kind of problem: of 1, 2, ... kernels. bounds: of the sizes to show.
    summaries: of the same sets on the problems of the choice (""), and on those of each file of --judge that
    has some."""

    pool: PoolEfficiencies
    portfolios: tuple[Portfolio, ...]
    bounds: Mapping[int, float]
    summaries: Mapping[str, tuple[Summary, ...]]

    def at(self, size: int) -> Portfolio:
        """Returns the set of this size; the largest where further kernels add nothing."""
        return self.portfolios[min(size, len(self.portfolios)) - 1]

    def needed(self, percent: float, judged_by: str = "") -> int | None:
        """Returns the smallest size whose mean reaches this; None if none does."""
        means = (one.mean_percent for one in self.summaries[judged_by])
        return next((size for size, mean in enumerate(means, start=1) if mean >= percent), None)


def run(args: argparse.Namespace) -> int:
    """Prints the tables and writes the files. Raises RecordError."""
    sizes = _sizes(args.sizes)
    records, *others = (load_records(paths) for paths in (args.records, *([one] for one in args.judge)))
    judged = {str(path): _pools_of(one) for path, one in zip(args.judge, others, strict=True)}
    archs = sorted({arch for one in (records, *others) for arch in one["arch"].dropna().unique()})
    if len(archs) > 1:
        raise RecordError(f"the records are of {' and '.join(archs)}: a pool is of one architecture")
    found = {kind: _result(pool, judged, sizes) for kind, pool in _pools_of(records).items()}
    strays = [name for name, pools in judged.items() if not pools.keys() & found.keys()]
    if strays:
        raise RecordError(f"{strays[0]} has no problem of {', '.join(found)}: there is nothing to judge")
    lines: list[str] = []
    for result in found.values():
        lines += [*_describe(kind_text(result.pool.kind), result, sizes, args.reach), ""]
    put(args, {kind: _as_json(one, sizes) for kind, one in found.items()}, lines[:-1])
    if args.output is not None:
        print(_write_list(args.output, found, archs, args.reach), file=progress_stream(args))
    return 0


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise RecordError(f"--sizes {text!r}: numbers from 1, joined by commas, such as {_SIZES}")
    return sizes


def _pools_of(records: Any) -> dict[str, PoolEfficiencies]:
    return {kind_text(pool.kind): pool for pool in pool_efficiencies(records)}


def _result(
    pool: PoolEfficiencies, judged: Mapping[str, Mapping[str, PoolEfficiencies]], sizes: Sequence[int]
) -> KindResult:
    portfolios, kind = choose(pool, sizes[-1]), kind_text(pool.kind)
    bounds = {size: bound_percent(pool, portfolios[min(size, len(portfolios)) - 1]) for size in sizes}
    others = {name: found[kind] for name, found in judged.items() if kind in found}
    summaries = {
        name: tuple(Summary.of(other.of(one.kernels)) for one in portfolios) for name, other in others.items()
    }
    own = tuple(one.summary for one in portfolios)
    return KindResult(pool, portfolios, bounds, {"": own, **summaries})


def _describe(kind: str, result: KindResult, sizes: Sequence[int], reach: float) -> list[str]:
    pool = result.pool
    lines = [
        f"{kind}: {count(len(pool.kernels), 'kernel')}, {count(len(pool.problems), 'problem')}, "
        f"{100 * pool.measured_share:.0f} % of the pairs measured"
    ]
    for name in result.summaries:
        lines += ["", f"judged by {name}:"] if name else []
        lines += _table(result, name, sizes)
        needed, where = result.needed(reach, name), "there" if name else "on these problems"
        has = (
            f"{count(needed, 'kernel')} {'has' if needed == 1 else 'have'}"
            if needed
            else "no set of these sizes has"
        )
        lines.append(f"{has} a mean of {reach:g} % {where}")
        if pool.without_oracle and not name:
            lines.append(f"left out: {count(len(pool.without_oracle), 'problem')} without any ok kernel")
    listed = result.at(result.needed(reach) or max(sizes)).kernels
    return [*lines, "", f"the set of {len(listed)}:", *(f"  {short_name(name)}" for name in listed)]


def _table(result: KindResult, name: str, sizes: Sequence[int]) -> list[str]:
    bound = () if name else ("bound %",)
    rows = [("kernels", "mean %", *bound, "P10 %", "worst %", "none ok")]
    for size in sizes:
        kernels = len(result.at(size).kernels)
        one = result.summaries[name][min(size, len(result.portfolios)) - 1]
        rows.append(
            (
                str(size) if kernels == size else f"{size} (only {kernels} add anything)",
                f"{one.mean_percent:.2f}",
                *(f"{result.bounds[size]:.2f}" for _ in bound),
                *(f"{one.p10_percent:.2f}", f"{one.worst_percent:.2f}", str(one.problems - one.covered)),
            )
        )
    return text_table(rows, range(1, len(rows[0])))


def _write_list(path: Path, found: Mapping[str, KindResult], archs: Sequence[str], reach: float) -> str:
    if not archs:
        raise RecordError("the records name no architecture, which a kernel list needs")
    names: list[str] = []
    parts = []
    for kind, result in found.items():
        kernels = result.at(result.needed(reach) or len(result.portfolios)).kernels
        names += kernels
        parts.append(f"{len(kernels)} for {kind}")
    listed = [name for name in names if may_be_listed(parse_kernel_name(name))]
    if not listed:
        raise RecordError("all chosen kernels are a library's algorithms, which a list cannot name")
    about = f"tile-oracle pool portfolio: {', '.join(parts)}"
    write_text(path, named_kernels_json(listed, archs, about))
    left_out = len(names) - len(listed)
    more = f"; {left_out} are a library's algorithms and not in the list" if left_out else ""
    return (
        f"\n{path}: {count(len(listed), 'kernel')} ({', '.join(parts)}){more}; use it with --kernels {path}"
    )


def _as_json(result: KindResult, sizes: Sequence[int]) -> dict[str, Any]:
    pool = result.pool
    return {
        "kernels": len(pool.kernels),
        "problems": len(pool.problems),
        "without_oracle": list(pool.without_oracle),
        "measured_share": pool.measured_share,
        "curve": [
            {
                "size": size,
                **asdict(one.summary),
                "judged": {name: asdict(of[size - 1]) for name, of in result.summaries.items() if name},
            }
            for size, one in enumerate(result.portfolios, start=1)
        ],
        "bounds": {str(size): percent for size, percent in result.bounds.items()},
        "sets": {str(size): result.at(size).kernels for size in sizes},
    }
