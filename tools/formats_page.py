"""Writes docs/formats.md: what every command makes of the smallest file of each known format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import fill

from tile_oracle.errors import HarnessError, first_line
from tile_oracle.foreign.formats import FORMATS, IMPORT, KERNELS, MODEL, PROBLEMS, Format, recognised
from tile_oracle.foreign.importers import import_file
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.pickers.table import picker_of_file
from tile_oracle.pool.rules import load_rule_set
from tile_oracle.problem_set import load_problem_set

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "formats.md"
FILES = ROOT / "tests" / "foreign" / "formats"
ARCH, LAYOUT = "gfx950", "rcr"
_PICKED = GemmProblem("fp16", "rcr", 1024, 512, 256)


def _imported(path: Path, known: Format | None) -> str:
    layout = LAYOUT if known is not None and known.asks_layout else ""
    summary = import_file(path, ARCH, layout=layout).summary
    return f"{summary.ok} ok of {summary.rows}"


def _problems(path: Path, known: Format | None) -> str:
    layout = f":{LAYOUT}" if known is not None and known.asks_layout else ""
    return f"{len(load_problem_set(f'{path}{layout}').problems)}"


def _kernels(path: Path, _: Format | None) -> str:
    load_rule_set(str(path))
    return "yes"


def _model(path: Path, known: Format | None) -> str:
    layout = LAYOUT if known is not None and known.asks_layout else ""
    if (table := picker_of_file(path, ARCH, layout)) is not None:
        return f"{len(table.rows)}"
    if path.suffix in (".csv", ".log"):
        return f"{len(read_picks(path, [_PICKED])[0])}"
    Predictor.load(path)
    return "yes"


DOORS: Mapping[str, Callable[[Path, Format | None], str]] = {
    IMPORT: _imported,
    PROBLEMS: _problems,
    KERNELS: _kernels,
    MODEL: _model,
}
"""The commands that read files, and what each reads from one."""


def known_files() -> dict[Path, Format | None]:
    """The smallest files, with what each is, in the order of the formats."""
    found = {
        path: recognised(path, path.read_text("utf-8")) for path in sorted(FILES.iterdir()) if path.is_file()
    }
    order = {one.what: place for place, one in enumerate(FORMATS)}
    return dict(sorted(found.items(), key=lambda item: order[item[1].what] if item[1] else len(order)))


def outcome(path: Path, door: str, known: Format | None) -> tuple[str, str]:
    """What a command reads from a file, and why it refuses it; one of the two is empty."""
    try:
        return DOORS[door](path, known), ""
    except HarnessError as error:
        return "", first_line(error)


_HEAD = f"""\
# Files of other programs

For engineers who have files of other tools. Every command finds out what a file is from its name and its
first lines. `python -m tools.formats_page` writes this page: it gives a small file of each format to each
command. A cell is what the command read: of records ({ARCH}) the rows that are ok, of a problem set the
distinct problems, of a model its [picks](pickers.md). `-`: the command says what the file is, and which
command takes it.

| a file is | for example | `runs import` | `--problem-set` | `--kernel-set` | `--model` |
|---|---|---|---|---|---|
"""

_TAIL = f"""
- Rows of another architecture, data type or operation are refused by name and counted. So are those with more
  than the operation (scales, bias, another result type or memory order); a problem set counts these as plain
  problems ([which imported rows count](problem_lists.md#which-imported-rows-count)).
- Kernels keep the names that their programs give them: `gemm_bf16_rcr_hipblaslt.s300662`,
  `gemm_fp16_rcr_triton.matmul.BLOCK_M=128...`, and so with `cutlass`, `aiter`, `inductor`, `miopen`.
- Triton's and rocKE's keys are read as M, N, K and data types. Their layout is not in the file: `runs import
  --layout {LAYOUT}`, or `FILE.json:{LAYOUT}` for a problem set or a model. So it is with Inductor's logs
  without strides.
- Of a file of several architectures or operations, `FILE.csv:gfx950` or `FILE.csv:fused_gemm` is one;
  `runs import` has `--op` (default: that of most rows).
- A trace of flashinfer-bench needs `definitions/**/NAME.json` beside or above it.
- TunableOp's `Default` and results without a solution's index name no kernel: they are problems, not records.
"""


def page() -> str:
    """The page as Markdown."""
    lines, refused = [], []
    for path, known in known_files().items():
        cells = [outcome(path, door, known)[0] or "-" for door in DOORS]
        what = known.what if known is not None else "JSON of no known kind"
        if set(cells) == {"-"}:
            refused.append(f"{what} (`{path.name}`)")
        else:
            lines.append(f"| {what} | `{path.name}` | {' | '.join(cells)} |")
    never = fill(f"No command takes, and each says so: {'; '.join(refused)}.", 110, break_long_words=False)
    return _HEAD + "\n".join(lines) + f"\n\n{never}\n{_TAIL}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
