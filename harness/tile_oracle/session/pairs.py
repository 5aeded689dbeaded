"""Reads --pairs: a CSV file with the pairs that a session is limited to."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from tile_oracle.errors import KernelError, ProblemError, RuleError
from tile_oracle.files.spreadsheet import cell_text
from tile_oracle.files.table_file import csv_text
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.problem import problem_from_id


def read_pairs(path: Path, pools: Mapping[str, Sequence[Kernel]]) -> dict[str, frozenset[str]]:
    """Problem id -> names of its kernels, from a CSV file with the columns `problem` and `kernel`.

    pools: the candidates of every problem of the session, by problem id. Kernels are named by their full or
    short name. Raises RuleError for a file that cannot be read, and for a pair that is not part of the
    session.
    """
    listed: dict[str, set[str]] = {}
    names: dict[int, dict[str, str]] = {}
    for line, problem, kernel in _rows(path):
        try:
            found: str = problem_from_id(problem).id
            if (pool := pools.get(found)) is None:
                raise RuleError(f"{problem[:200]} is in none of the problem sets of --problem-set")
            known = names.setdefault(id(pool), {n: k.name for k in pool for n in (k.name, k.short_name)})
            name = known.get(kernel) or known.get(parse_kernel_name(kernel).name)
            if name is None:
                raise RuleError(
                    f"{kernel[:200]} is not a candidate for {found}: choose the --kernel-set (and target) "
                    "that it is from"
                )
        except (RuleError, ProblemError, KernelError) as error:
            raise RuleError(f"{path}:{line}: {error}") from None
        listed.setdefault(found, set()).add(name)
    if not listed:
        raise RuleError(f"{path} lists no pair: it needs rows below the header problem,kernel")
    return {problem: frozenset(kernels) for problem, kernels in listed.items()}


def _rows(path: Path) -> list[tuple[int, str, str]]:
    try:
        with io.StringIO(csv_text(path), newline="") as file:
            reader = csv.DictReader(file)
            missing = {"problem", "kernel"} - set(reader.fieldnames or ())
            if missing:
                raise RuleError(
                    f"{path} has no column {sorted(missing)[0]}: it needs the columns problem and kernel"
                )
            return [(reader.line_num, _cell(row["problem"]), _cell(row["kernel"])) for row in reader]
    except OSError as error:
        raise RuleError(f"cannot read the pairs in {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise RuleError(f"{path} is not a CSV file of pairs: {str(error)[:200]}") from None


def _cell(text: str | None) -> str:
    return cell_text((text or "").strip())
