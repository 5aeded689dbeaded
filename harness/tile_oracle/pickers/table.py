"""Pickers that are files: what a file of another program names for a problem, best first.

The readers are those of `foreign.formats`. A row names a kernel or a tile. Rows of times are read as the
program that loads them would: the fastest kernel of a problem that was right is its choice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError, ProblemError, ProblemSetError, first_line
from tile_oracle.foreign.contract import FIELDS, against, arch_named, status_named
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.formats import MODEL, TUNED, Format, format_of
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.pickers.picker import NAMES, Configuration, Value, configuration_of, has_a_tile
from tile_oracle.problem import Problem
from tile_oracle.record.dataset_file import digest_of

_TILE = ("tile_m", "tile_n", "tile_k")


@dataclass(frozen=True)
class Table:
    """The choices of a file, by problem. aiter: it is asked as AITER asks its tables: a row of a larger M
    serves a problem without a row, and is a fallback, as is the default of what has none."""

    name: str
    identity: str
    rows: Mapping[str, Sequence[Configuration]]
    maps: bool = True
    aiter: bool = False

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Configuration]:
        """As Asked.pick."""
        if not self.aiter:
            return self.rows.get(problem.id, ())
        if problem.op != GemmProblem.op and problem.kind.words.get("scale") != "mx":
            return ()
        gemm = cast("GemmProblem | ScaledGemmProblem", problem)
        for place, m in enumerate((gemm.M, *(aiter_padded_m(gemm.M, gemm.N, level) for level in (0, 1)))):
            if found := self.rows.get(replace(gemm, M=m).id):
                return [replace(one, fallback=place > 0) for one in found]
        return (Configuration({}, lambda kernel: False, "", fallback=True),)


def aiter_padded_m(m: int, n: int, level: int) -> int:
    """Returns the M under which AITER looks a shape up that has no row of its own: first rounded up to a step
    that grows with M (level 0), then to a power of two, at most 8,192 for N above 4,096 (level 1)."""
    power = 1 << max(m - 1, 0).bit_length()
    if level:
        return 8192 if m > 8192 and n > 4096 else power
    if m < 16:
        return power
    step = next((step for most, step in ((256, 16), (1024, 32), (4096, 64)) if m <= most), 128)
    return -(-m // step) * step


@dataclass
class _Read:
    """What a file says for an architecture. rows: problem -> (order, choice). left_out: reasons, with the
    number of rows."""

    known: Format
    arch: str
    rows: dict[str, list[tuple[tuple[int, float], Configuration]]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, one: Entry) -> None:
        chosen = _choice(one)
        if why := self._why_not(one, chosen):
            self.left_out[why] += 1
        elif one.problem is not None and chosen is not None:
            time_ms = next((float(time) for time in one.times_ms if time == time), 0.0)
            self.rows.setdefault(one.problem.id, []).append(((one.rank, time_ms), chosen))

    def _why_not(self, one: Entry, chosen: Configuration | None) -> str:
        if one.problem is None or one.more or chosen is None:
            return one.why or ", ".join(one.more) or one.why_no_kernel
        gfx, of_cus = arch_named(one.gfx) or one.gfx, one.stated.get("cu_num", "")
        if gfx not in ("", self.arch):
            return f"of {gfx}"
        cus = str(load_arch(self.arch).hardware.num_cus)
        if of_cus not in ("", cus):
            return f"of {of_cus} compute units, not {cus}"
        said = str(one.figures.get("status", "ok"))
        status = status_named(said) or said
        if status != "ok" or any(math.isinf(time) for time in one.times_ms if isinstance(time, float)):
            return f"status {status}"
        denied = against({**FIELDS, **self.known.fields}, one.stated, one.problem, self.arch)
        return next((why for why, what in denied if what.status != "untimed"), "")

    def choices(self) -> dict[str, tuple[Configuration, ...]]:
        """Problem -> its choices, best first, each once."""
        return {
            problem: tuple({str(one): one for _, one in sorted(found, key=lambda row: row[0])}.values())
            for problem, found in self.rows.items()
        }


def _choice(one: Entry) -> Configuration | None:
    """Returns what a row chooses: a tile, or a kernel, whose tile and the like mean others in pools without
    it."""
    if one.tile is not None:
        return Configuration(dict(zip(_TILE, one.tile, strict=True)), has_a_tile)
    if not one.kernel:
        return None
    kernel = parse_kernel_name(one.kernel)
    values: Mapping[str, Value] = {}
    if kernel.source and has_a_tile(kernel):
        values = {name: value for name, value in configuration_of(kernel).items() if name in NAMES}
    return Configuration(values, has_a_tile, one.kernel)


def picker_of_file(path: Path, arch: str, layout: str = "") -> Table | None:
    """Returns the picker that a file is; None for one of another kind. layout: of GEMMs in a tuner's file
    that does not state it. Raises ModelError for a damaged one."""
    try:
        known = format_of(path)
        if known is None or known.entries is None or MODEL not in known.taken_by:
            return None
        read = _Read(known, arch)
        with path.open("rb") as file:
            for one in known.entries_in(ListFile(file, path, str(path), layout)) or ():
                read.add(one)
        digest = digest_of(path)[:12]
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except (ProblemError, ProblemSetError) as error:
        raise ModelError(f"{path} cannot be read as a picker: {first_line(error)}") from None
    if not read.rows:
        raise ModelError(f"{path}, {known.what}, has no choice for {arch}" + _told(read.left_out))
    identity = f"{known.what} {path.name} sha256:{digest}{_told(read.left_out)}"
    return Table(path.name.partition(".")[0], identity, read.choices(), aiter=known.what == TUNED)


def _told(left_out: Mapping[str, int]) -> str:
    parts = [f"{count:,} rows left out: {why}" for why, count in sorted(left_out.items())]
    return f" ({'; '.join(parts)})" if parts else ""
