"""Pickers that are files: Origami's rankings, tilewright's log of picks, AITER's tuned tables.

Origami and tilewright state column-major products, as BLAS does: their M and N, and their tiles, are our N
and M (operations.gemm.blas_call).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError, ProblemError
from tile_oracle.foreign.aiter import aiter_entries
from tile_oracle.foreign.formats import PICK_LOG, RANKING, TUNED, format_of
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.kernel import Kernel
from tile_oracle.operations.gemm.blas_call import gemm_of
from tile_oracle.pickers.picker import Configuration, has_a_tile
from tile_oracle.problem import Problem
from tile_oracle.record.dataset_file import digest_of

Key = tuple[str, str, int, int, int]
"""Data type ("" for any), layout, M, N, K."""

_RANKING_NAME = re.compile(r"(?:.*_)?(?P<gfx>gfx\w+?)_(?P<dtype>[a-z0-9]+)_(?P<trans>[NT]{2})")
_LOGGED = re.compile(
    r"\[TILEWRIGHT_PICK\] m=(?P<m>\d+) n=(?P<n>\d+) k=(?P<k>\d+) b=(?P<b>\d+) "
    r"tA=(?P<transA>[NT]) tB=(?P<transB>[NT]) .*?"
    r"\(mt_m=(?P<mt_m>\d+),mt_n=(?P<mt_n>\d+),mt_k=(?P<mt_k>\d+),"
)


@dataclass(frozen=True)
class Table:
    """The choices of a file. padded: other M under which a row of the table serves a problem, in the order in
    which they are looked up; such a row, and what has none, is the table's fallback."""

    name: str
    identity: str
    rows: Mapping[Key, Sequence[Configuration]]
    maps: bool = True
    aiter: bool = False

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Configuration]:
        """As Picker.pick."""
        if problem.op != "gemm":
            return ()
        layout, m, n, k = (getattr(problem, name) for name in ("layout", "M", "N", "K"))
        for place, rows in enumerate((m, *(aiter_padded_m(m, n, level) for level in (0, 1) if self.aiter))):
            for dtype in (problem.dtype, ""):
                if found := self.rows.get((dtype, layout, rows, n, k)):
                    return [Configuration(one.values, one.among, one.kernel, place > 0) for one in found]
        return (Configuration({}, lambda kernel: False, "", fallback=True),) if self.aiter else ()


def aiter_padded_m(m: int, n: int, level: int) -> int:
    """The M under which AITER looks a shape up that has no row of its own: first rounded up to a step that
    grows with M (level 0), then to a power of two, at most 8,192 for N above 4,096 (level 1)."""
    power = 1 << max(m - 1, 0).bit_length()
    if level:
        return 8192 if m > 8192 and n > 4096 else power
    if m < 16:
        return power
    step = next((step for most, step in ((256, 16), (1024, 32), (4096, 64)) if m <= most), 128)
    return -(-m // step) * step


@dataclass
class _Read:
    """What a file said. rows: in its order. left_out: reasons, with the number of rows."""

    rows: dict[Key, list[Configuration]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, call: Mapping[str, str], dtype: str, tile: tuple[int, int, int]) -> None:
        """One choice for a BLAS call: a tile of its M, N and K."""
        if call.get("batch_count", "1") != "1":
            self.left_out["batched"] += 1
            return
        one = gemm_of({**call, "a_type": dtype or "bf16", "b_type": dtype or "bf16"})
        chosen = Configuration({"tile_m": tile[1], "tile_n": tile[0], "tile_k": tile[2]}, has_a_tile)
        row = self.rows.setdefault((one.dtype if dtype else "", one.layout, one.M, one.N, one.K), [])
        if chosen not in row:
            row.append(chosen)


def picker_of_file(path: Path, arch: str) -> Table | None:
    """The picker that a file is; None for one of another kind. Raises ModelError for a damaged one."""
    try:
        known = format_of(path)
        if known is None or known.what not in (RANKING, TUNED, PICK_LOG):
            return None
        if known.what == RANKING:
            found, what = _ranking(path, arch), "Origami's ranking"
        elif known.what == TUNED:
            found, what = _aiter(path, arch), "AITER's tuned table"
        else:
            found, what = _log(path), "tilewright's log"
        digest = digest_of(path)[:12]
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except (ProblemError, ValueError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as a picker: {error}") from None
    if not found.rows:
        raise ModelError(f"{path}: {what} has no choice for {arch}" + _told(found.left_out))
    is_aiter = what.startswith("AITER")
    identity = f"{what} {path.name} sha256:{digest}{_told(found.left_out)}"
    return Table(path.stem, identity, found.rows, maps=not is_aiter, aiter=is_aiter)


def _told(left_out: Mapping[str, int]) -> str:
    parts = [f"{count:,} rows left out: {why}" for why, count in sorted(left_out.items())]
    return f" ({'; '.join(parts)})" if parts else ""


@contextmanager
def _listed(path: Path) -> Iterator[ListFile]:
    try:
        with path.open("rb") as file:
            yield ListFile(file, path, str(path))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None


def _ranking(path: Path, arch: str) -> _Read:
    named = _RANKING_NAME.fullmatch(path.stem)
    if named is None:
        raise ValueError("its name has to say architecture, type and transposition: ranking_gfx942_bf16_NN")
    found = _Read()
    with _listed(path) as listed:
        rows = sorted(listed.rows(listed.lines()), key=lambda row: int(row["rank"]))
    if named["gfx"] != arch:
        found.left_out[f"of {named['gfx']}"] += len(rows)
        return found
    trans = {"transA": named["trans"][0], "transB": named["trans"][1]}
    for row in rows:
        sizes = dict(zip(("m", "n", "k", "batch_count"), row["problem"].split("x"), strict=False))
        found.add(trans | sizes, named["dtype"], (int(row["mt_m"]), int(row["mt_n"]), int(row["mt_k"])))
    return found


def _log(path: Path) -> _Read:
    """Its lines name no data type: they are for any."""
    found = _Read()
    with _listed(path) as listed:
        for line in listed.lines():
            if one := _LOGGED.search(line):
                call = {name: one[name] for name in ("m", "n", "k", "transA", "transB")}
                tile = (int(one["mt_m"]), int(one["mt_n"]), int(one["mt_k"]))
                found.add({**call, "batch_count": one["b"]}, "", tile)
    return found


def _aiter(path: Path, arch: str) -> _Read:
    found, cus = _Read(), str(load_arch(arch).hardware.num_cus)
    with _listed(path) as listed:
        for one in aiter_entries(listed):
            problem, gfx, of_cus = one.problem, one.gfx, one.stated.get("cu_num", "")
            if problem is None or one.more or not one.kernel:
                found.left_out[one.why or ", ".join(one.more) or one.why_no_kernel] += 1
            elif gfx not in ("", arch):
                found.left_out[f"of {gfx}"] += 1
            elif of_cus not in ("", cus):
                found.left_out[f"of {of_cus} compute units, not {cus}"] += 1
            else:
                key = (problem.dtype, *(getattr(problem, name) for name in ("layout", "M", "N", "K")))
                found.rows.setdefault(key, [Configuration({}, kernel=one.kernel)])
    return found
